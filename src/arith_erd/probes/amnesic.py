"""Does a network need a concept in its embeddings? Erase the concept and measure accuracy (paper, appendix D)."""

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LinearRegression
from torch import Tensor

from ..errors import UserError, unknown_name
from ..interp import erasure
from ..interp.erasure import Eraser, Whitened, probe_predictions, whiten
from ..interp.hooked import Hooked, finite_cache
from ..interp.interventions import Erase
from ..models.network import sequence_accuracy
from ..plots.panels import Dots
from ..plots.style import BLUE, GREEN, GREY, INK, ORANGE
from ..tasks import Add, Task
from .probe import IN_FILE, Count, Natural, NetworkProbe, OneOrMore, as_list, select_sites

Key = tuple[str, str]  # concept, method
Method = Literal["inlp", "mean_projection", "leace"]

METHODS: dict[str, Callable[[Whitened, Tensor, int], Eraser]] = {
    "inlp": erasure.inlp,
    "mean_projection": lambda x, z, iterations: erasure.mean_projection(x, z),
    "leace": lambda x, z, iterations: erasure.leace(x, z),
}
NUM_CONTROL_EXAMPLES = 1024  # pairs on which random erasures are measured
TIE_TOLERANCE = 1e-6
TABLE_COLUMNS = {"variance_removed": "variance", "probe_error_after": "error", "seq_acc_after": "accuracy"}
TABLE_COLUMNS |= {"control_variance_mean": "random", "control_signs_mean": "flipped"}
CONTROL_STYLES = {
    "control_rank": (GREY, "random directions, same rank"),
    "control_variance": (ORANGE, "random directions, same variance"),
    "control_signs": (GREEN, "same erasure of a random concept, signs flipped"),
}
MARK_STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "seq_acc_before": ("before erasure", {"color": INK, "marker": "|", "markersize": 9}),
    "seq_acc_after_unseen": (
        "fitted on half of the pairs, measured on the others",
        {"color": BLUE, "marker": "o", "markerfacecolor": "white", "markersize": 8},
    ),
    "seq_acc_after": ("fitted and measured on all pairs", {"color": BLUE, "marker": "o", "markersize": 4.5}),
}
LINEARITY_NOTE = (
    "a value probe of addition cannot tell whether the network stores the sum: it is linear in the operands' digits, "
    "so a linear probe reads it without error from the bare digits too (baseline_operand_bits is 0)"
)


class Amnesic(NetworkProbe):
    """Erase concepts from the embeddings at a site, and measure how often the whole answer is still right.

    Erasers are fitted under teacher forcing. The layers above the site then run on the erased embeddings. An answer is
    right if all its tokens are right, each after the right prefix. The columns:

    - ``iterations``: how often INLP iterates; 1 for the other two methods. ``rank``: number of directions erased.
    - ``variance_removed``: E|x - r(x)|^2 / tr Cov(x).
    - ``probe_error_before``, ``_after``: error of a linear probe of the concept, refitted after the erasure. For
      numbers it is the root mean squared error over all columns, in units of the number; for bits the error rate.
      ``baseline_operand_bits``: error of the same probe on the operands' digits instead of the embedding.
    - ``seq_acc_before``, ``_after``: accuracy of whole answers, fitted and measured on all pairs.
      ``seq_acc_after_unseen``: fitted on a random half of the pairs, measured on the other half.
    - Controls have mean and worst accuracy on 1,024 pairs, held out by ``RandomSplit(seed=seed)``. ``control_rank_*``
      erases ``rank`` random orthonormal directions. ``control_variance_*`` erases random directions until the same
      variance is removed, the last one in part. ``control_signs_*`` erases a random concept in the same way
      (`flip_signs`).
    """

    picture = Dots(
        *("seq_acc_after", "", "erasure", "site"),
        title="sequence accuracy after erasing a concept; bars: controls, worst to mean",
        xlabel="sequence accuracy",
        marks=MARK_STYLES,
        bars={(f"{kind}_min", f"{kind}_mean"): look for kind, look in CONTROL_STYLES.items()},
        size=(4.4, 0.9),
        cell=(0, 0.36),
    )
    units: ClassVar[dict[str, str]] = {
        "rank": "number",
        "variance_removed": "share",
        **dict.fromkeys(("seq_acc_before", "seq_acc_after", "seq_acc_after_unseen"), "accuracy"),
        **{f"{kind}_{end}": "accuracy" for kind in CONTROL_STYLES for end in ("mean", "min")},
    }

    site: OneOrMore[str] | None = IN_FILE
    concept: OneOrMore[str] | None = IN_FILE
    method: OneOrMore[Method] | None = IN_FILE
    iterations: Count = IN_FILE
    num_controls: Count = IN_FILE
    seed: Natural = IN_FILE

    def __post_init__(self) -> None:
        self.sites, concept_names = select_sites(self.models, self.site), self.task.concept_names
        self.concepts, self.methods = as_list(self.concept or concept_names), as_list(self.method or METHODS)
        for name in self.concepts:
            if name not in concept_names:
                accepted = f"null for all, or some of {', '.join(concept_names)}"
                raise unknown_name("probe.concept", name, concept_names, accepted)

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        examples = self.task.examples()
        targets = {
            name: torch.as_tensor(z) for name, z in self.task.concepts(examples).items() if name in self.concepts
        }
        for site in self.sites:
            embeddings = finite_cache(model, examples, [site])[site].flatten(1).cpu()  # (N, d)
            order = torch.as_tensor(np.random.default_rng(self.seed).permutation(len(embeddings)))
            half, other_half = order.chunk(2)
            x, x_half = whiten(embeddings), whiten(embeddings[half])
            measure_all = accuracy_after(model, site, torch.arange(len(order)))
            measure_unseen = accuracy_after(model, site, other_half)
            accuracy_before = measure_all()
            erasers = {(c, m): self._eraser(m, x, targets[c]) for c, m in product(targets, self.methods)}
            variances = {k: erasure.variance_removed(embeddings, eraser(embeddings)) for k, eraser in erasers.items()}
            measure_sample = accuracy_after(model, site, order[:NUM_CONTROL_EXAMPLES])
            controls = self._controls(measure_sample, x, erasers, variances)
            for (concept, method), eraser in erasers.items():
                z = targets[concept]
                yield {
                    "site": site,
                    "concept": concept,
                    "method": method,
                    "iterations": self.iterations if method == "inlp" else 1,
                    "rank": eraser.rank,
                    "variance_removed": variances[concept, method],
                    "probe_error_before": probe_error(z, probe_predictions(x, z)),
                    "probe_error_after": probe_error(z, probe_predictions(x, z, eraser)),
                    "seq_acc_before": accuracy_before,
                    "seq_acc_after": measure_all(eraser),
                    "seq_acc_after_unseen": measure_unseen(self._eraser(method, x_half, z[half])),
                    **controls.loc[(concept, method)].to_dict(),
                    "baseline_operand_bits": baseline_error(self.task, z),
                }

    def _eraser(self, method: str, x: Whitened, z: Tensor) -> Eraser:
        try:
            return METHODS[method](x, z, self.iterations)
        except UserError as error:
            raise UserError(re.sub("^iterations=", "probe.iterations=", str(error))) from error

    def _controls(
        self, measure: Callable[..., float], x: Whitened, erasers: dict[Key, Eraser], variances: dict[Key, float]
    ) -> pd.DataFrame:
        """Mean and worst accuracy after each kind of random erasure: same rank, same variance, flipped signs."""
        accuracies = []
        generator, signs = (torch.Generator().manual_seed(self.seed) for _ in range(2))
        for _ in range(self.num_controls):
            basis = erasure.random_basis(len(x.mean), generator)
            state = signs.get_state()
            ranks = {eraser.rank for eraser in erasers.values()}
            by_rank = {rank: measure(erasure.project_away(x, basis[:, :rank])) for rank in ranks}
            for key, eraser in erasers.items():
                signs.set_state(state)  # the same axes for every erasure
                same_variance = erasure.project_away_variance(x, basis, variances[key])
                flipped_signs = erasure.flip_signs(x, eraser, signs)
                accuracies.append((*key, by_rank[eraser.rank], measure(same_variance), measure(flipped_signs)))
        table = pd.DataFrame(accuracies, columns=["concept", "method", *CONTROL_STYLES])
        ends = table.groupby(["concept", "method"]).agg(["mean", "min"])
        return ends.set_axis(ends.columns.map("_".join), axis=1)

    def notes(self) -> list[str]:
        return [LINEARITY_NOTE] if "value" in self.concepts and isinstance(self.task, Add) else []

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super().table(rows[["seed", "site", "concept", "method", *TABLE_COLUMNS]]).rename(columns=TABLE_COLUMNS)

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(erasure=rows["concept"] + ", " + rows["method"])


def accuracy_after(model: Hooked, site: str, pairs: Tensor) -> Callable[..., float]:
    """A function that measures the share of right answers to ``pairs`` (M,), rows of the table, after an erasure."""
    examples = model.task.examples()[pairs.numpy()]
    completion = model.target_tokens(examples)
    forward = model.resume_from(site, examples)

    def measure(*erasers: Eraser) -> float:
        return sequence_accuracy(forward([Erase(site, None, eraser) for eraser in erasers]), completion)

    return measure


def probe_error(z: Tensor, predicted: Tensor) -> float:
    """Error of predictions (N, k): root mean squared for numbers, error rate for bits (a prediction of 1/2 is 0)."""
    if ((z == 0) | (z == 1)).all():
        return float((z != (predicted > 0.5 + TIE_TOLERANCE)).double().mean())
    return float((z - predicted).square().mean().sqrt())


def baseline_error(task: Task, z: Tensor) -> float:
    """`probe_error` of a linear probe of a concept (N, c) on the operands' digits instead of embeddings."""
    digits = task.operand_digits(task.examples().operands)  # (N, k * bits)
    return probe_error(z, torch.as_tensor(LinearRegression().fit(digits, z).predict(digits)))
