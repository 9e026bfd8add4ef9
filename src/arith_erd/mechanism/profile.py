"""The report on a network's algorithm: the verdict, and which variables each bit follows."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..interp.hooked import Hooked
from ..seeds import format_ranges
from .prefixes import USER_MODEL
from .signature import MeasuredSignature
from .verdict import FITS_LATER, MAX_DISTANCE, MIN_EFFECT, Classification, is_calibrated

MIN_PREFIX_EFFECT = 0.01
"""A bit follows its prefix if random prefixes change at least this share of its answers."""
STEERING_STEPS = {"carry": "an inverted carry", "value": "a shifted sum"}
NO_VERDICT = "the known algorithms are for addition, so only responses to prefixes were measured"
NEAREST_COLUMN = f"nearest (fits up to {MAX_DISTANCE:g})"
UNCALIBRATED = "this verdict was never checked on a known network of this architecture and task"


@dataclass(frozen=True)
class BitResponse:
    """The responses of bit t = ``position`` of the answer; None if not measured.

    ``follows`` says of each of `STEERING_STEPS` whether the bit follows it. ``follows_prefix`` is the share of answers
    that change after a random prefix, ``needs_prefix`` the share that change if r_(t-1) is ablated. ``as_user_model``
    is the share of answers after random prefixes that the user's causal model predicts.
    """

    position: int
    follows_prefix: float | None
    needs_prefix: float | None
    follows: dict[str, bool | None]
    as_user_model: float | None = None


@dataclass(frozen=True)
class NetworkProfile:
    """One network: its verdict with all distances, and how its bits respond. ``profile.json`` has one for each seed."""

    seed: int
    network: str
    verdict: str
    nearest: str | None
    distance: float | None
    distances: dict[str, float]
    post_hoc: dict[str, float | None]
    accuracy: float
    calibrated: bool
    reasons: tuple[str, ...]
    bits: tuple[BitResponse, ...]
    fits_later: tuple[str, ...] = ()

    def summary(self) -> list[str]:
        random, ablated = (_describe_changes(self.bits, key) for key in ("follows_prefix", "needs_prefix"))
        prefix = f"Prefix: random tokens before a bit change {random}; ablating the last one changes {ablated}."
        shares = [bit.as_user_model for bit in self.bits if bit.as_user_model is not None]
        later = [f"It {reason}." for reason in self.reasons if reason.startswith(FITS_LATER)]
        lines = [f"Verdict: {self._verdict()}.", *later, prefix, self.steering]
        if shares:
            lines.append(f"Your causal model: it expects {_format_range(shares)} of the answers after random prefixes.")
        return lines

    @property
    def steering(self) -> str:
        """Which bits follow which step, as a sentence."""
        return f"Steering: {'; '.join(_describe_followers(self.bits, name) for name in STEERING_STEPS)}."

    @property
    def other_reasons(self) -> list[str]:
        """The reasons that the summary does not give."""
        return [reason for reason in self.reasons if not reason.startswith(FITS_LATER)]

    def _verdict(self) -> str:
        if self.distance is None:
            return f"{self.verdict}, since {NO_VERDICT}"
        right = f"{self.accuracy:.1%} of its answers are right"
        fits = "it fits" if self.distance <= MAX_DISTANCE else "it does not fit"
        distance = f"at a distance of {self.distance:.2f}; {fits}, since the limit is {MAX_DISTANCE:g}"
        return f"{self.verdict}; {right}. The nearest algorithm is {self.nearest}, {distance}"

    def row(self) -> dict[str, str]:
        nearest = "none is known" if self.distance is None else f"{self.nearest}, {self.distance:.3g}"
        right = f"{self.accuracy:.1%}"
        return {"seed": str(self.seed), "verdict": self.verdict, "right": right, NEAREST_COLUMN: nearest}


def make_profile(model: Hooked, signature: MeasuredSignature, classification: Classification) -> NetworkProfile:
    components = signature.components
    bits = [
        BitResponse(
            position=t,
            follows_prefix=round_or_none(1 - components["erd_of_all"][t]),
            needs_prefix=round_or_none(components["mean_ablation"][t]),
            follows={x: None if np.isnan(y := components[x][t]) else bool(y >= MIN_EFFECT) for x in STEERING_STEPS},
            as_user_model=round_or_none(components[USER_MODEL][t]),
        )
        for t in range(1, model.task.width)
    ]
    return NetworkProfile(
        seed=model.seed,
        network=model.name,
        verdict=classification.verdict,
        nearest=classification.nearest or None,
        distance=round_or_none(classification.distance),
        distances={name: round(x, 4) for name, x in classification.distances.items()},
        post_hoc={name: round_or_none(x) for name, x in classification.post_hoc.items()},
        accuracy=round(signature.accuracy, 5),
        calibrated=is_calibrated(model.network, model.task),
        reasons=tuple(classification.reasons),
        bits=tuple(bits),
        fits_later=classification.fits_later,
    )


def round_or_none(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def _describe_changes(bits: Sequence[BitResponse], key: str) -> str:
    """The bits for which a share of at least `MIN_PREFIX_EFFECT` answers changes, and the range of these shares."""
    measured = {bit.position: share for bit in bits if (share := getattr(bit, key)) is not None}
    changed = {t: share for t, share in measured.items() if share >= MIN_PREFIX_EFFECT}
    if not changed:
        return "no bit" if measured else "not measured"
    return f"{_format_bits(list(changed))} in {_format_range(changed.values())} of the answers"


def _describe_followers(bits: Sequence[BitResponse], name: str) -> str:
    """``bits 1-3 follow an inverted carry (bits 6-7 not measured)``."""
    followers, unknown = ([bit.position for bit in bits if bit.follows[name] is x] for x in (True, None))
    if len(unknown) == len(bits):
        return f"{STEERING_STEPS[name]} was not measured"
    verb = "follow" if len(followers) > 1 else "follows"
    note = f" ({_format_bits(unknown)} not measured)" if unknown else ""
    return f"{_format_bits(followers)} {verb} {STEERING_STEPS[name]}{note}"


def _format_range(shares: Collection[float]) -> str:
    return " to ".join(dict.fromkeys(f"{100 * end(shares):.0f}" for end in (min, max))) + "%"


def _format_bits(positions: Sequence[int]) -> str:
    return f"bit{'s' if len(positions) > 1 else ''} {format_ranges(tuple(positions))}" if positions else "no bit"
