"""Which algorithm's signature is a network's nearest to, and is that near enough?

The distance between two signatures is the root mean square difference of their components, over all bits. Alongside the
four algorithms stand all pairs of them that share the bits: one for those below a border, another from there on. They
count as ``mixed``, and only where no single algorithm is near.

A network that answers wrong runs none of them. One whose signature is far from all runs none of them either, unless its
prefixes fit an algorithm and no move had an effect anywhere: then the directions may have been the wrong ones, and the
verdict is ``undecided``, as it is where two algorithms are equally near.
"""

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from .signature import COMPONENTS, STEERING, Measured, Signature

NEAR = 0.25
"""Largest distance of a network from its algorithm: references lie below 0.1, each beyond 0.35 from the next."""
APART = 0.05
"""A runner-up that is nearer to the best than this is as good: the tests do not tell them apart."""
RIGHT = 0.95
"""Smallest share of right answers of a network that adds."""
EFFECT = 0.5
"""Informedness from which on a move counts as followed."""
BORDERS = range(2, 7)
VERDICTS = ("erd", "prefix_carry", "lookahead_carry", "remainder", "mixed", "none", "undecided")


@dataclass(frozen=True)
class Verdict:
    """A name, and what it rests on.

    Attributes:
        name: one of `VERDICTS`.
        distance: to the nearest algorithm or mixture.
        nearest: that one; for a mixture ``erd below bit 4, prefix_carry from there``.
        distances: to each single algorithm, and to the nearest mixture.
        by_bit: for t = 1 .. m - 1, the nearest algorithm and its distance.
        reasons: sentences.
    """

    name: str
    distance: float
    nearest: str
    distances: dict[str, float]
    by_bit: list[tuple[str, float]]
    reasons: list[str]


def differences(measured: Signature, expected: Signature) -> np.ndarray:
    """Squared differences (components, m), NaN where either is not known."""
    return np.stack([(measured[name] - expected[name]) ** 2 for name in COMPONENTS])


def decide(measured: Measured, expected: dict[str, Signature]) -> Verdict:
    """The verdict on a signature, given those of the algorithms."""
    squares = {name: differences(measured.components, signature) for name, signature in expected.items()}
    single = {name: _distance(square) for name, square in squares.items()}
    mixed = {
        f"{low} below bit {border}, {high} from there": _distance(
            np.concatenate([squares[low][:, :border], squares[high][:, border:]], axis=1)
        )
        for low, high in permutations(squares, 2)
        for border in BORDERS
        if border < squares[low].shape[1] - 1
    }
    best, mixture = min(single, key=single.__getitem__), min(mixed, key=mixed.__getitem__)
    distances = single | {"mixed": mixed[mixture]}
    by_bit = []
    for t in range(1, next(iter(squares.values())).shape[1]):
        of_bit = {name: _distance(square[:, t : t + 1]) for name, square in squares.items()}
        nearest = min(of_bit, key=of_bit.__getitem__)
        by_bit.append((nearest, of_bit[nearest]))
    name, nearest = ("mixed", mixture) if single[best] > NEAR else (best, best)
    distance = distances[name]
    reasons = []
    if measured.accuracy < RIGHT:
        name = "none"
        reasons.append(f"answers {measured.accuracy:.1%} of the pairs right, fewer than {RIGHT:.0%}: no adder")
    elif distance > NEAR:
        fits = _prefix_distance(squares) <= NEAR
        name = "undecided" if fits and not _any_effect(measured) else "none"
        reasons.append(f"nearest to {nearest}, at distance {distance:.2f}; references lie within {NEAR}")
        reasons += _departures(measured, expected, by_bit) if name == "none" else [NO_EFFECT]
    elif name == best and (rivals := [other for other in single if other != best and single[other] - distance < APART]):
        name = "undecided"
        reasons.append(f"as near to {', '.join(rivals)} as to {best}: the tests do not tell them apart")
    return Verdict(name, distance, nearest, distances, by_bit, reasons)


NO_EFFECT = (
    "its prefixes fit, but no move along the direction of a carry or of the sum had an effect: the least-squares "
    "directions need not be those that it reads"
)


def _distance(squares: np.ndarray) -> float:
    """Root mean square over bits, each bit being the mean of what is known of it; infinite of nothing."""
    known = np.isfinite(squares)
    counts = known.sum(0)
    if not counts.any():
        return float("inf")
    means = np.where(known, squares, 0).sum(0)[counts > 0] / counts[counts > 0]
    return float(np.sqrt(means.mean()))


def _prefix_distance(squares: dict[str, np.ndarray]) -> float:
    """The smallest distance to an algorithm, or to one below a border and one from there, by prefixes alone."""
    rows = {name: square[: -len(STEERING)] for name, square in squares.items()}  # steering comes last in `COMPONENTS`
    pairs = [
        np.concatenate([rows[low][:, :border], rows[high][:, border:]], axis=1)
        for low, high in permutations(rows, 2)
        for border in BORDERS
    ]
    return min(map(_distance, [*rows.values(), *pairs]))


def _any_effect(measured: Measured) -> bool:
    return any(np.nanmax(measured.components[name], initial=-1) >= EFFECT for name in STEERING)


def _departures(measured: Measured, expected: dict[str, Signature], by_bit: list[tuple[str, float]]) -> list[str]:
    """Where the network is farthest from the algorithm nearest to it, at most one sentence a bit."""
    sentences = []
    for t, (nearest, distance) in enumerate(by_bit, 1):
        if distance <= NEAR:
            continue
        gaps = {
            name: abs(measured.components[name][t] - values[t])
            for name, values in expected[nearest].items()
            if np.isfinite(measured.components[name][t] - values[t])
        }
        worst = max(gaps, key=gaps.__getitem__)
        was, wanted = measured.components[worst][t], expected[nearest][worst][t]
        sentences.append(f"bit {t}: nearest to {nearest}, but {worst} is {was:.2f} instead of {wanted:.2f}")
    return sentences
