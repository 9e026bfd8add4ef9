"""Linear probes: can a variable be read from activations by a linear map, on examples that the map has not seen?"""

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from ..checks import require_fraction, require_integer, require_type
from ..errors import UserError, counted, warn
from ..seeds import MAX_SEED
from .tensors import finite_matrix

MIN_EXAMPLES = 8


@dataclass(frozen=True)
class LinearProbeResult:
    """How well a linear probe reads on held-out examples.

    Attributes:
        measure: ``r2`` for numbers, in the mean over the columns of z; ``accuracy`` for classes.
        score: that of the variable.
        control: that of a probe fitted in the same way after z has been shuffled, so that there is nothing to read.
        num_train: examples of the fit; ``num_test`` of the score.
        weight: (k, C) for k columns of z that were kept, or k classes; (1, C) for two classes. ``x @ weight.T + bias``
            predicts the numbers, or the logits of the classes: so ``weight[0]`` is a direction to steer along.
        bias: (k,).
    """

    measure: str
    score: float
    control: float
    num_train: int
    num_test: int
    weight: npt.NDArray[np.float64] = field(repr=False, compare=False)
    bias: npt.NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def r2(self) -> float:
        """The score of a probe of numbers."""
        return self._score_as("r2")

    @property
    def accuracy(self) -> float:
        """The score of a probe of classes."""
        return self._score_as("accuracy")

    def _score_as(self, measure: str) -> float:
        if self.measure != measure:
            raise UserError(
                f"linear probe: has no {measure}, but {self.measure}; expected classes={measure == 'accuracy'}"
            )
        return self.score


def linear_probe(
    x: npt.ArrayLike,
    z: npt.ArrayLike,
    classes: bool | None = None,
    groups: npt.ArrayLike | None = None,
    test_share: float = 0.5,
    seed: int = 0,
) -> LinearProbeResult:
    """Fit a linear probe of z on activations x, and score it on held-out examples, beside its control.

    >>> import arith_erd as ae
    >>> model = ae.load_pretrained("add-nanogpt")
    >>> examples = model.task.examples().sample(512, seed=0)
    >>> _, cache = model.run_with_cache(examples, "dec.3")
    >>> last = linear_probe(cache["dec.3"][:, 7], model.task.concepts(examples)["value"])
    >>> last.r2 > 0.9 > 0.1 > last.control
    True

    Args:
        x: activations (N, ...), flattened to vectors.
        z: one variable (N,), or several columns of numbers (N, k).
        classes: whether z are classes; by default if they are booleans, or only 0 and 1.
        groups: a number or name of each example (N,). Examples of one group are in the same part; by default each is
            its own. With the first operand as the group, no test example shares it with the fit.
        test_share: the share of groups that are held out.
        seed: seed of the parts and of the shuffled control.

    Raises:
        UserError: for shapes that do not fit, fewer than eight examples, a constant z, or several columns of classes.

    Warns:
        UserWarning: if some columns of numbers are constant in the fit or in the test. They are left out.
    """
    features = finite_matrix("linear_probe: x", x, "activations (N, ...)").detach().cpu().double().numpy()
    target = finite_matrix("linear_probe: z", z, "values (N,) or (N, k)", range(1, 9)).detach().cpu().double().numpy()
    if len(target) != len(features) or len(features) < MIN_EXAMPLES:
        received = f"{len(features)} activations and {len(target)} values of z"
        raise UserError(f"linear_probe: received {received}; expected as many of both, {MIN_EXAMPLES} or more")
    require_integer("seed", seed, 0, MAX_SEED)
    classes = _are_classes(target, classes)
    train, test = _split_groups(len(features), groups, test_share, seed)

    def varying(z: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        parts = [train] if classes else [train, test]  # r2 divides by the variance in the test
        return np.all([(z[rows] != z[rows[0]]).any(axis=0) for rows in parts], axis=0)

    if not (varies := varying(target)).any():
        raise UserError("linear_probe: z has one value in the examples of the fit or of the test; expected two or more")
    if not varies.all():
        columns = ", ".join(map(str, np.flatnonzero(~varies)))
        warn(f"linear_probe: left out columns {columns} of z, with one value in the fit or the test")
    target = target[:, varies]

    def fit(z: npt.NDArray[np.float64]) -> tuple[float, Pipeline | None]:
        z = z[:, 0] if classes else z[:, varying(z)]
        if not z.size:
            return 0.0, None
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000) if classes else Ridge())
        return float(model.fit(features[train], z[train]).score(features[test], z[test])), model

    (score, model), (control, _) = fit(target), fit(target[np.random.default_rng(seed).permutation(len(target))])
    assert model is not None
    scaler, linear = model
    weight = np.atleast_2d(linear.coef_) / scaler.scale_
    bias = np.atleast_1d(linear.intercept_) - weight @ scaler.mean_
    return LinearProbeResult("accuracy" if classes else "r2", score, control, len(train), len(test), weight, bias)


def _are_classes(target: npt.NDArray[np.float64], classes: bool | None) -> bool:
    """Whether z (N, k) are classes: as the caller says, by default if there is one column of 0 and 1."""
    if classes is None:
        return target.shape[1] == 1 and set(np.unique(target)) <= {0.0, 1.0}
    require_type("linear_probe: classes", classes, bool)
    if classes and target.shape[1] > 1:
        raise UserError(f"linear_probe: received {target.shape[1]} columns of classes; expected one")
    if classes and (target != target.round()).any():
        raise UserError("linear_probe: z has fractions; expected integers for classes, or classes=False")
    return classes


def _split_groups(
    count: int, groups: npt.ArrayLike | None, test_share: float, seed: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows of the fit and of the test; the examples of a group are in the same part."""
    labels = np.arange(count) if groups is None else np.asarray(groups)
    labels = labels.astype(str) if labels.dtype == object else labels  # such as a group None
    if labels.shape != (count,):
        raise UserError(f"linear_probe: received groups {labels.shape}; expected one for each of {count} examples")
    require_fraction("linear_probe: test_share", test_share)
    with suppress(ValueError):  # no group is left for the fit
        ((train, test),) = GroupShuffleSplit(1, test_size=test_share, random_state=seed).split(labels, groups=labels)
        if min(len(train), len(test)) >= 2:
            return train, test
    received = f"test_share={test_share} of {counted(len(np.unique(labels)), 'group')}"
    raise UserError(f"linear_probe: received {received}; expected two or more examples in the fit, and in the test")
