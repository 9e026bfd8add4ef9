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

from ..models import Network, Transformer
from ..models.references import written_for
from ..models.weights import shapes_of
from ..tasks import Task
from .card import MAX_DISTANCE, MIN_ACCURACY, MIN_EFFECT, CardRow
from .signature import COMPONENTS, POST_HOC, POST_HOC_PREFIXES, PREFIXES, MeasuredSignature, Signature
from .steering import STEERING

LIMITS = {"prefix": 0.1, "steering": 0.25}
"""Largest root mean square differences that count as near; smaller for prefixes, whose only error is sampling."""
TIE_MARGIN = 0.2
"""A runner-up within this of the best distance counts as equally near: the tests do not distinguish them."""
NO_EFFECT = "prefixes fit an algorithm, but steering has no effect; the network may read other directions"
COMPARED = (*PREFIXES, *POST_HOC_PREFIXES, *STEERING)
PARTS = {"prefix": slice(-len(STEERING)), "steering": slice(-len(STEERING), None)}


@dataclass(frozen=True)
class Verdict:
    """An algorithm's name, ``mixed``, ``none`` or ``undecided``, and the distances behind it.

    ``distance`` is to the ``nearest`` algorithm or mixture; ``post_hoc``, those to `POST_HOC` algorithms, are NaN if
    their agreements after random prefixes were not measured.
    """

    name: str
    distance: float
    nearest: str
    distances: dict[str, float]
    post_hoc: dict[str, float]
    reasons: list[str]

    def rows(self) -> list[CardRow]:
        rows = [CardRow("verdict", self.name, value=min(self.distances.values()))] if self.distances else []
        every = self.distances | self.post_hoc
        return [*rows, *(CardRow("distance", name, value=distance) for name, distance in every.items())]


def decide(measured: MeasuredSignature, expected: dict[str, Signature]) -> Verdict:
    """The verdict on a signature; without algorithms to compare it with, ``undecided``."""
    if not expected:
        return Verdict("undecided", np.nan, "", {}, {}, [])
    found, unknown = measured.components, np.full_like(measured.components[COMPONENTS[0]], np.nan)
    squares = {  # (components, m) each, NaN where either side is NaN or has no such component
        name: np.stack([(found.get(key, unknown) - signature.get(key, unknown)) ** 2 for key in COMPARED])
        for name, signature in expected.items()
    }
    known = all(np.isfinite(found.get(name, np.nan)).any() for name in POST_HOC)
    post_hoc = {name: _distance(square) if known else np.nan for name, square in squares.items() if name in POST_HOC}
    squares = {name: square for name, square in squares.items() if name not in POST_HOC}
    mixtures = {
        f"{low} below bit {border}, {high} from there": np.hstack([squares[low][:, :border], squares[high][:, border:]])
        for low, high in permutations(squares, 2)
        for border in range(2, 7)
    }
    single = {name: _distance(square) for name, square in squares.items()}
    mixed = {name: _distance(square) for name, square in mixtures.items()}
    best, mixture = min(single, key=single.__getitem__), min(mixed, key=mixed.__getitem__)
    name, nearest = (best, best) if single[best] <= MAX_DISTANCE else ("mixed", mixture)
    distances = single | {"mixed": mixed[mixture]}
    distance, reasons = distances[name], []
    rivals = [other for other in single if other != best and single[other] - single[best] < TIE_MARGIN]
    if measured.accuracy < MIN_ACCURACY:
        name = "none"
        reasons.append(f"answers {measured.accuracy:.1%} of the examples right, fewer than {MIN_ACCURACY:.0%}")
    elif distance > MAX_DISTANCE:
        of_prefixes = min(_part(square, "prefix") for square in [*squares.values(), *mixtures.values()])
        effect = max(np.nanmax(found[component], initial=-1) for component in STEERING)
        name = "none" if of_prefixes > MAX_DISTANCE or effect >= MIN_EFFECT else "undecided"
        nearest = min(distances, key=distances.__getitem__)
        for part in PARTS if name == "none" else ():
            least, by_part = min((_part(square, part), other) for other, square in squares.items())
            reasons.append(f"from the {part} test only, the nearest is {by_part} ({least:.2f})")
        reasons += [NO_EFFECT] if name == "undecided" else []
        if fit := ", ".join(f"{other} ({x:.2f})" for other, x in post_hoc.items() if x <= MAX_DISTANCE):
            reasons.append(f"closest post-hoc algorithm, written after trained networks had been seen: {fit}")
    elif name == best and rivals:
        name = "undecided"
        reasons.append(f"{', '.join(rivals)} is as near as {best}; the tests do not distinguish them")
    return Verdict(name, distance, nearest, distances, post_hoc, reasons)


def is_calibrated(network: Network, task: Task) -> bool:
    """Whether the verdict was checked on references for this task, and of exactly this architecture."""
    if type(network) is not Transformer or not written_for(task):
        return False
    paper = shapes_of(lambda: Transformer(task.prompt_length, task.width))
    return paper == {name: x.shape for name, x in network.state_dict().items()}


def _distance(squares: np.ndarray) -> float:
    return max(_part(squares, part) for part in PARTS)


def _part(squares: np.ndarray, part: str) -> float:
    """Root mean square over bits, each the mean of its finite components, in units of the part's limit; 0 if none."""
    of_part = squares[PARTS[part]]
    known = of_part[:, np.isfinite(of_part).any(axis=0)]
    return float(np.sqrt(np.nanmean(known, axis=0).mean())) / LIMITS[part] if known.size else 0.0
