"""Which algorithm's signature is nearest to the network's, and is it near enough?

The distance of a part, responses to wrong prefixes or to steering, is the root mean square difference of its
components, over all bits, in units of the largest difference that counts as near. The distance to an algorithm is the
larger of the two, and near means at most 1. A mixture is one algorithm below a border bit, another from there on;
``mixed`` if one is near and no single algorithm is. ``none`` if the network answers wrong or is far from every
algorithm. ``undecided`` if prefixes fit an algorithm but steering has no effect, or two algorithms are equally near.
"""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch

from ..models import Network, Transformer
from ..models.references import written_for
from ..tasks import Task
from .card import NEAR, RIGHT
from .signature import COMPONENTS, EFFECT, POST_HOC, POST_HOC_PREFIXES, PREFIXES, STEERING, Measured, Signature

LIMITS = {"prefix": 0.1, "steering": 0.25}
"""Largest root mean square differences that count as near; smaller for prefixes, whose only error is sampling."""
APART = 0.2
"""A runner-up within this of the best distance counts as equally near: the tests do not distinguish them."""
BORDERS = range(2, 7)
VERDICTS = ("erd", "prefix_carry", "lookahead_carry", "remainder", "mixed", "none", "undecided")
NO_EFFECT = (
    "prefixes fit an algorithm, but steering along a fitted direction has no effect; the network may read other "
    "directions"
)
COMPARED = (*PREFIXES, *POST_HOC_PREFIXES, *STEERING)
PARTS = {"prefix": slice(-len(STEERING)), "steering": slice(-len(STEERING), None)}


@dataclass(frozen=True)
class Verdict:
    """A name of `VERDICTS`, and the distances behind it.

    ``distance`` is to the ``nearest`` algorithm or mixture; ``by_bit``, for t = 1 .. m - 1, the nearest algorithm, or
    all between which the bit does not discriminate, and the distance.
    """

    name: str
    distance: float
    nearest: str
    distances: dict[str, float]
    by_bit: list[tuple[str, float]]
    reasons: list[str]


def decide(measured: Measured, expected: dict[str, Signature]) -> Verdict:
    squares = {name: _squares(measured.components, signature) for name, signature in expected.items()}
    mixtures = {
        f"{low} below bit {border}, {high} from there": np.hstack([squares[low][:, :border], squares[high][:, border:]])
        for low, high in permutations(squares, 2)
        for border in BORDERS
    }
    single = {name: _distance(square) for name, square in squares.items()}
    mixed = {name: _distance(square) for name, square in mixtures.items()}
    best, mixture = min(single, key=single.__getitem__), min(mixed, key=mixed.__getitem__)
    by_bit = []
    for t in range(1, len(measured.components[COMPONENTS[0]])):
        of_bit = {name: _distance(square[:, t : t + 1]) for name, square in squares.items()}
        least = min(of_bit.values())
        by_bit.append((" or ".join(name for name, value in of_bit.items() if value - least < APART), least))
    name, nearest = (best, best) if single[best] <= NEAR else ("mixed", mixture)
    distances = single | {"mixed": mixed[mixture]}
    distance = distances[name]
    reasons = []
    rivals = [other for other in single if other != best and single[other] - single[best] < APART]
    if measured.accuracy < RIGHT:
        name = "none"
        reasons.append(f"answers {measured.accuracy:.1%} of the examples right, fewer than {RIGHT:.0%}")
    elif distance > NEAR:
        of_prefixes = min(_part(square, "prefix") for square in [*squares.values(), *mixtures.values()])
        effect = max(np.nanmax(measured.components[name], initial=-1) for name in STEERING)
        name = "none" if of_prefixes > NEAR or effect >= EFFECT else "undecided"
        nearest = min(distances, key=distances.__getitem__)
        reasons += [_nearest_by(part, squares) for part in PARTS] if name == "none" else [NO_EFFECT]
    elif name == best and rivals:
        name = "undecided"
        reasons.append(f"{', '.join(rivals)} is as near as {best}; the tests do not distinguish them")
    return Verdict(name, distance, nearest, distances, by_bit, reasons)


def distances_to(measured: Measured, expected: dict[str, Signature]) -> dict[str, float]:
    """The distance to each of `POST_HOC`; NaN if their agreements after random prefixes were not measured."""
    known = all(np.isfinite(measured.components.get(name, np.nan)).any() for name in POST_HOC)
    distances = {name: _distance(_squares(measured.components, signature)) for name, signature in expected.items()}
    return distances if known else dict.fromkeys(distances, float("nan"))


def is_calibrated(network: Network, task: Task) -> bool:
    """Whether the verdict was checked on references for this task, and of exactly this architecture."""
    if type(network) is not Transformer or not written_for(task):
        return False
    with torch.device("meta"):
        paper = Transformer(task.prompt_length, task.width)
    shapes = [{name: tensor.shape for name, tensor in of.state_dict().items()} for of in (paper, network)]
    return shapes[0] == shapes[1]


def _squares(measured: Signature, expected: Signature) -> np.ndarray:
    """Squared differences (components, m), NaN where either side is NaN or the algorithm has no such component."""
    unknown = np.full_like(measured[COMPONENTS[0]], np.nan)
    pairs = [(measured.get(name, unknown), expected.get(name, unknown)) for name in COMPARED]
    return np.stack([(found - wanted) ** 2 for found, wanted in pairs])


def _distance(squares: np.ndarray) -> float:
    return max(_part(squares, part) for part in PARTS)


def _part(squares: np.ndarray, part: str) -> float:
    """Root mean square over bits, each the mean of its finite components, in units of the part's limit; 0 if none."""
    known = np.isfinite(squares[PARTS[part]])
    counts = known.sum(0)
    if not counts.any():
        return 0.0
    means = np.where(known, squares[PARTS[part]], 0).sum(0)[counts > 0] / counts[counts > 0]
    return float(np.sqrt(means.mean())) / LIMITS[part]


def _nearest_by(part: str, squares: dict[str, np.ndarray]) -> str:
    distances = {name: _part(square, part) for name, square in squares.items()}
    nearest = min(distances, key=distances.__getitem__)
    return f"from the {part} test only, the nearest is {nearest} ({distances[nearest]:.2f})"
