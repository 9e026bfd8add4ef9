"""The algorithm whose signature (`mechanism.signature`) is nearest to a network's."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ..interp.algorithms import POST_HOC
from ..models import Network, Transformer
from ..models.handcoded import is_handcoded_task
from ..models.weights import state_shapes
from ..tasks import Task
from .prefixes import USER_MODEL
from .signature import COMPONENTS, POST_HOC_PREFIXES, PREFIX_COMPONENTS, MeasuredSignature, MechanismRow, Signature
from .steering import STEERING_COMPONENTS

MAX_DISTANCE = 1.0
"""Largest distance to an algorithm that counts as near."""
MIN_ACCURACY = 0.95
"""Smallest share of right answers for a verdict other than ``none``."""
MIN_EFFECT = 0.5
"""Smallest informedness of a step that counts as an effect."""
PART_LIMITS = {"prefix": 0.1, "steering": 0.25}
"""Largest root mean square differences that count as near. Prefixes have only sampling error, so less is allowed."""
TIE_MARGIN = 0.2
"""A runner-up within this of the best distance counts as equally near: the tests do not distinguish them."""
FITS_LATER = "fits only post-hoc algorithms, written after trained networks had been seen"
NO_EFFECT = "prefixes fit an algorithm, but steering has no effect; the network may read other directions"
PART_COMPONENTS = {
    "prefix": (*PREFIX_COMPONENTS, *POST_HOC_PREFIXES, USER_MODEL),
    "steering": STEERING_COMPONENTS,
}

Squares = dict[str, np.ndarray]  # part -> (components, m)


@dataclass(frozen=True)
class Classification:
    """A verdict (an algorithm's name, ``mixed``, ``none`` or ``undecided``), and the distances that it rests on.

    ``distance`` is to the ``nearest`` algorithm or mixture. ``post_hoc`` has the distances to `POST_HOC` algorithms:
    NaN if their agreements after random prefixes were not measured. ``fits_later`` names those of them that are near
    where nothing else is; a reason that starts with `FITS_LATER` says so.
    """

    verdict: str
    distance: float
    nearest: str
    distances: dict[str, float]
    post_hoc: dict[str, float]
    reasons: list[str]
    fits_later: tuple[str, ...] = ()

    def rows(self) -> list[MechanismRow]:
        rows = [MechanismRow("verdict", self.verdict, value=self.distance)] if self.distances else []
        every = self.distances | self.post_hoc
        return [*rows, *(MechanismRow("distance", name, value=distance) for name, distance in every.items())]


def classify(measured: MeasuredSignature, expected: dict[str, Signature]) -> Classification:
    """Compare a measured signature with the signatures of known algorithms, and name the nearest.

    A signature has two parts, the responses to wrong prefixes and those to steering. The distance of a part is the root
    mean square difference of its components, over all bits, in units of its entry in `PART_LIMITS`. The distance to an
    algorithm is the larger of the two; near means at most 1. A mixture is one algorithm below a border bit and another
    from there on: the verdict is ``mixed`` if a mixture is near and no single algorithm is. It is ``none`` if the
    network answers wrong or is far from every algorithm; ``undecided`` if prefixes fit an algorithm but steering has no
    effect, if two algorithms are equally near, or if ``expected`` is empty. If a user's model is as near as one of our
    algorithms, the verdict names our algorithm.
    """
    if not expected:
        return Classification("undecided", np.nan, "", {}, {}, [])
    squares = {name: _squared_differences(measured.components, signature) for name, signature in expected.items()}
    post_hoc = {name: _distance(squares.pop(name)) for name in POST_HOC if name in squares}
    if not all(np.isfinite(measured.components.get(name, np.nan)).any() for name in POST_HOC):
        post_hoc = dict.fromkeys(post_hoc, np.nan)
    of_mixtures = _mixtures(squares)
    algorithms, mixtures = ({name: _distance(x) for name, x in part.items()} for part in (squares, of_mixtures))
    best, mixture = _best_algorithm(algorithms), min(mixtures, key=mixtures.__getitem__)
    if algorithms[best] <= max(MAX_DISTANCE, mixtures[mixture]):
        nearest, distance, verdict = best, algorithms[best], best
    else:
        nearest, distance, verdict = mixture, mixtures[mixture], "mixed"
    equally_near = [x for x in algorithms if x != best and algorithms[x] - algorithms[best] < TIE_MARGIN]
    reasons: list[str] = []
    fits_later: tuple[str, ...] = ()
    if USER_MODEL in equally_near:
        equally_near.remove(USER_MODEL)
        reasons.append(f"{USER_MODEL} is as near as {best}; the tests do not distinguish them")

    if measured.accuracy < MIN_ACCURACY:
        verdict = "none"
        reasons.append(f"answers {measured.accuracy:.1%} of the examples right, fewer than {MIN_ACCURACY:.0%}")
    elif distance > MAX_DISTANCE:
        verdict, more_reasons = _judge_without_fit(measured, squares, of_mixtures)
        reasons += more_reasons
        if fits_later := tuple(name for name, x in post_hoc.items() if x <= MAX_DISTANCE):
            names = ", ".join(f"{name} ({post_hoc[name]:.2f})" for name in fits_later)
            reasons.append(f"{FITS_LATER}: {names}")
    elif verdict == best and equally_near:
        verdict = "undecided"
        reasons.append(f"as near as {best}: {', '.join(equally_near)}; the tests do not distinguish them")
    distances = algorithms | {"mixed": mixtures[mixture]}
    return Classification(verdict, distance, nearest, distances, post_hoc, reasons, fits_later)


def _best_algorithm(distances: Mapping[str, float]) -> str:
    """The nearest algorithm. A user's model must be nearer by `TIE_MARGIN`, since it may equal one of ours."""
    handicap = {USER_MODEL: TIE_MARGIN}
    return min(distances, key=lambda x: (distances[x] > MAX_DISTANCE, distances[x] + handicap.get(x, 0)))


def _judge_without_fit(
    measured: MeasuredSignature, squares: Mapping[str, Squares], mixtures: Mapping[str, Squares]
) -> tuple[str, list[str]]:
    """The verdict on a network far from every algorithm, and its reasons.

    ``undecided`` if prefixes fit an algorithm but steering has no effect, else ``none``.
    """
    prefix_distance = min(_part_distance(x, "prefix") for x in (*squares.values(), *mixtures.values()))
    effect = max(np.nanmax(measured.components[component], initial=-1) for component in STEERING_COMPONENTS)
    if prefix_distance <= MAX_DISTANCE and effect < MIN_EFFECT:
        return "undecided", [NO_EFFECT]
    reasons = []
    for part in PART_COMPONENTS:
        least, nearest = min((_part_distance(square, part), name) for name, square in squares.items())
        reasons.append(f"from the {part} test only, the nearest is {nearest} ({least:.2f})")
    return "none", reasons


def is_calibrated(network: Network, task: Task) -> bool:
    """Whether the verdict was checked on hand-coded networks of this task and exactly this architecture."""
    if type(network) is not Transformer or not is_handcoded_task(task):
        return False
    shapes = {name: x.shape for name, x in network.state_dict().items()}
    return shapes == state_shapes(lambda: Transformer(task.prompt_length, task.width))


def _squared_differences(measured: Signature, signature: Signature) -> Squares:
    """Squared differences of two signatures, NaN where either is NaN or lacks the component."""
    unknown = np.full_like(measured[COMPONENTS[0]], np.nan)
    return {
        part: np.stack([(measured.get(key, unknown) - signature.get(key, unknown)) ** 2 for key in components])
        for part, components in PART_COMPONENTS.items()
    }


def _mixtures(squares: Mapping[str, Squares]) -> dict[str, Squares]:
    """Mixture -> squared differences: below a border bit those of one algorithm, from there on those of another."""
    return {
        f"{low} below bit {border}, {high} from there": {
            part: np.hstack([squares[low][part][:, :border], squares[high][part][:, border:]]) for part in PART_LIMITS
        }
        for low, high in permutations(squares, 2)
        for border in range(2, max(3, squares[low]["prefix"].shape[1] - 1))
    }


def _distance(squares: Squares) -> float:
    return max(_part_distance(squares, part) for part in squares)


def _part_distance(squares: Squares, part: str) -> float:
    """Root mean square of a part over bits and their finite components, in units of its limit; 0 if unmeasured."""
    finite = squares[part][:, np.isfinite(squares[part]).any(axis=0)]
    return float(np.sqrt(np.nanmean(finite, axis=0).mean())) / PART_LIMITS[part] if finite.size else 0.0
