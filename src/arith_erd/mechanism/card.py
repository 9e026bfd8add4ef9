"""The card of one or several networks: the verdict in plain English, and which variables each bit follows.

``card.json`` holds a `Card`, with one `NetworkCard` for each seed. Reading one loads no network and no torch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..errors import excerpt
from ..seeds import format_seeds

if TYPE_CHECKING:
    from ..interp.hooked import Hooked
    from .evidence import Evidence
    from .signature import Measured
    from .verdict import Verdict

NEAR = 1.0
"""Largest distance to an algorithm that counts as near."""
RIGHT = 0.95
"""Smallest share of right answers for a verdict other than ``none``."""
FOLLOWED = 0.01
"""Share of answers that wrong prefixes have to change before a bit counts as one that follows its prefix."""
STEERED = {"carry": "an inverted carry", "value": "a shifted sum"}
NO_VERDICT = "the known algorithms are for addition, so only prefixes and prompt positions were measured"
UNCALIBRATED = "this verdict was never checked on a known network of this architecture and task"
LIMIT = f"the limit is {NEAR:g}"
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

Text = Annotated[str, BeforeValidator(lambda text: excerpt(str(text)))]  # short and printable, whoever wrote it
Share = Annotated[float, Field(ge=0, le=1)]
Expected = Mapping[str, Mapping[str, Sequence[float | None]]]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Bit(_Frozen):
    """Bit t of the answer, t = ``position``; None where it was not measured.

    ``follows_prefix`` and ``needs_prefix`` are the shares that change with a random prefix, and if r_(t-1) is ablated;
    ``appears`` the first site at which a patched position, from a run where only this variable differs, changes the
    bit.
    """

    position: Annotated[int, Field(ge=0)]
    nearest: Text | None = None
    follows_prefix: Share | None
    needs_prefix: Share | None
    follows: tuple[Text, ...] = Field(validation_alias=AliasChoices("follows", "transmits"))
    appears: dict[Text, Text | None]


class NetworkCard(_Frozen):
    """One network: its verdict with all distances, and what was measured beside it."""

    seed: int
    network: Text
    verdict: Text
    nearest: Text | None
    distance: float | None
    distances: dict[Text, float]
    post_hoc: dict[Text, float | None] = Field({}, validation_alias=AliasChoices("post_hoc", "others"))
    accuracy: Share
    calibrated: bool = False
    reasons: tuple[Text, ...]
    evidence: tuple[Text, ...]
    bits: tuple[Bit, ...]

    def sentences(self) -> list[str]:
        """The card in plain English; the first three lines are verdict, prefixes and steering."""
        return [self._verdict(), self._prefixes(), self._steering(), *self.reasons, *self.evidence]

    def _verdict(self) -> str:
        if self.distance is None:
            return f"Verdict: none, since {NO_VERDICT}."
        least = min(self.distances.values())
        if self.verdict == "none":
            if least <= NEAR:
                return f"Verdict: none, since the network answers only {self.accuracy:.1%} of the examples right."
            count = dict(enumerate(COUNTS)).get(len(self.distances), str(len(self.distances)))
            return f"Verdict: none of the {count} algorithms fits: the nearest is at {least:.2f}, {LIMIT}."
        if self.verdict == "undecided":
            return f"Verdict: undecided; the nearest algorithm, {self.nearest}, is at {least:.2f}, {LIMIT}."
        name = self.nearest if self.verdict == "mixed" else self.verdict
        return f"Verdict: the network computes as {name}: the distance is {self.distance:.2f}, {LIMIT}."

    def _prefixes(self) -> str:
        random, ablated = (_changed(self.bits, key) for key in ("follows_prefix", "needs_prefix"))
        return f"Prefix: random tokens before a bit change {random}; ablating the last one changes {ablated}."

    def _steering(self) -> str:
        parts = [f"{STEERED[name]} is followed by {at}" for name, at in self._followed().items()]
        return f"Steering: {'; '.join(parts)}."

    def _followed(self) -> dict[str, str]:
        return {name: _numbered([bit.position for bit in self.bits if name in bit.follows]) for name in STEERED}

    def row(self, sites: Sequence[str]) -> dict[str, str]:
        """The network's line of a table, with no empty cell; ``sites`` in the order in which they run."""
        nearest = "none is known" if self.distance is None else f"{self.nearest}, {min(self.distances.values()):.3g}"
        return {
            "seed": str(self.seed),
            "verdict": self.verdict,
            "right": f"{self.accuracy:.1%}",
            "nearest, distance": nearest,
            "steering that answers follow": "; ".join(f"{name}: {at}" for name, at in self._followed().items()),
            "a random prefix changes": _changed(self.bits, "follows_prefix"),
            "an ablated last token changes": _changed(self.bits, "needs_prefix"),
            "the carry appears": _appears([bit.appears.get("carry") for bit in self.bits], sites),
        }


class Card(_Frozen):
    """Several seeds of one network.

    ``verdict`` is theirs if all have the same, else ``undecided``; ``expected`` is what each algorithm would do:
    algorithm -> component -> by bit, None where it predicts nothing.
    """

    task: Text
    bits: int
    verdict: Text
    calibrated: bool
    expected: dict[Text, dict[Text, tuple[float | None, ...]]] = {}
    seeds: Annotated[tuple[NetworkCard, ...], Field(min_length=1)]

    @classmethod
    def of(
        cls, task: str, bits: int, seeds: Iterable[NetworkCard], expected: Mapping[str, Mapping[str, np.ndarray]]
    ) -> "Card":
        seeds = tuple(seeds)
        verdicts = {one.verdict for one in seeds}
        told = {
            name: {component: tuple(number(x) for x in values) for component, values in signature.items()}
            for name, signature in expected.items()
        }
        verdict = verdicts.pop() if len(verdicts) == 1 else "undecided"
        calibrated = all(one.calibrated for one in seeds)
        return cls(task=task, bits=bits, verdict=verdict, calibrated=calibrated, expected=told, seeds=seeds)

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """The inverse of `to_json`; a ValueError if the text is not that of a card."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise ValueError(f"card.json: not a card ({excerpt(where)}: {excerpt(first['msg'])})") from error

    def to_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    @property
    def title(self) -> str:
        uncalibrated = "" if self.calibrated else ", never checked on a known network"
        return f"{self.seeds[0].network}: {self.verdict}{uncalibrated}"

    def table(self, sites: Sequence[str]) -> pd.DataFrame:
        return pd.DataFrame([one.row(sites) for one in self.seeds])

    def notes(self) -> list[str]:
        notes = [f"seed {one.seed}: {sentence}" for one in self.seeds for sentence in one.sentences()]
        return notes if self.calibrated else [*notes, UNCALIBRATED]

    def expected_rows(self) -> pd.DataFrame:
        """What each algorithm would do, as rows ``algorithm, component, position, value``."""
        rows = [
            (algorithm, component, t, math.nan if value is None else value)
            for algorithm, signature in self.expected.items()
            for component, values in signature.items()
            for t, value in enumerate(values)
        ]
        return pd.DataFrame(rows, columns=["algorithm", "component", "position", "value"])


def make_card(
    model: "Hooked",
    found: "Measured",
    verdict: "Verdict | None",
    post_hoc: Mapping[str, float],
    evidence: "Evidence",
    calibrated: bool,
) -> NetworkCard:
    """The card of one network; ``post_hoc`` are its distances to algorithms that are no candidates."""
    components, near = found.components, dict(enumerate(verdict.by_bit, 1)) if verdict else {}
    bits = [
        Bit(
            position=t,
            nearest=near[t][0] if near else None,
            follows_prefix=number(1 - components["prompt_only_of_all"][t]),
            needs_prefix=number(components["mean_ablation"][t]),
            follows=tuple(name for name in STEERED if found.follows(name, t)),
            appears={name: evidence.appears(name, str(t)) for name in ("carry", "xor")},
        )
        for t in range(1, model.task.width)
    ]
    fit = [f"{name} ({x:.2f})" for name, x in post_hoc.items() if verdict and x <= NEAR < verdict.distance]
    reasons = list(verdict.reasons) if verdict else []
    if fit and found.accuracy >= RIGHT:
        reasons.append(f"closest post-hoc algorithm, written after trained networks had been seen: {', '.join(fit)}")
    return NetworkCard(
        seed=model.seed,
        network=model.name,
        verdict=verdict.name if verdict else "undecided",
        nearest=verdict.nearest if verdict else None,
        distance=number(verdict.distance) if verdict else None,
        distances={name: round(x, 4) for name, x in verdict.distances.items()} if verdict else {},
        post_hoc={name: number(x) for name, x in post_hoc.items()},
        accuracy=round(found.accuracy, 5),
        calibrated=calibrated,
        reasons=tuple(reasons),
        evidence=(*found.sentences(), *evidence.sentences()),
        bits=tuple(bits),
    )


def number(value: float) -> float | None:
    """Four digits after the point; None for what is not known."""
    return round(float(value), 4) if math.isfinite(value) else None


def _changed(bits: Sequence[Bit], key: str) -> str:
    """The bits with a share of at least `FOLLOWED` answers that change, and from which to which share."""
    measured = {bit.position: share for bit in bits if (share := getattr(bit, key)) is not None}
    changed = {t: share for t, share in measured.items() if share >= FOLLOWED}
    if not changed:
        return "no bit" if measured else "not measured"
    low, high = (f"{100 * share:.0f}" for share in (min(changed.values()), max(changed.values())))
    return f"{_numbered(list(changed))} in {low if low == high else f'{low} to {high}'}% of the answers"


def _appears(first: Sequence[str | None], sites: Sequence[str]) -> str:
    places = sorted(sites.index(site) for site in first if site in sites)
    if not places:
        return "nowhere"
    ends = dict.fromkeys((sites[places[0]], sites[places[-1]]))
    late = len(first) - len(places)
    return " to ".join(ends) + (f", in {late} bit{'s' if late > 1 else ''} nowhere" if late else "")


def _numbered(positions: Sequence[int]) -> str:
    if not positions:
        return "no bit"
    return f"bit{'s' if len(positions) > 1 else ''} {format_seeds(tuple(positions))}"
