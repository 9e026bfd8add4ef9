"""A card of ``probe=mechanism`` from its files: checked and bounded, then shown as a table and a figure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..errors import UNREADABLE, excerpt
from ..seeds import format_seeds
from .mechanism import draw_mechanism
from .style import plain_text

MAX_SEEDS, MAX_STAGES, MAX_BITS, MAX_ALGORITHMS, MAX_NOTES = 20, 60, 32, 8, 40  # of one card
ROWS = {"seed": int, "component": str, "stage": str, "position": str, "value": float}
KEY = ["seed", "component", "stage", "position"]
MOVED = ("carry", "value")
FOLLOWED = 0.01
"""Share of answers that random prefixes have to change before a bit counts as one that follows its prefix."""


@dataclass(frozen=True)
class Card:
    """What ``card.json`` and ``rows.csv`` say. Any of it may be a stranger's: texts are short, numbers are numbers.

    Attributes:
        title: the network and its verdict.
        table: a row for each seed: the verdict, what is transmitted and needed, where the carry appears.
        notes: sentences: what is left out, and the reasons and evidence of each seed.
        verdicts: by seed.
        expected: ``algorithm, component, position, value``; empty where no algorithm is known.
        rows: of the probe, for the figure.
    """

    title: str
    table: pd.DataFrame
    notes: list[str]
    verdicts: dict[int, str]
    expected: pd.DataFrame
    rows: pd.DataFrame

    @classmethod
    def read(cls, text: str, rows: pd.DataFrame) -> "Card":
        """The card of rows that lie beside it.

        Raises:
            ValueError: if either is not that of a card.
        """
        try:
            found = json.loads(text)
            seeds, first = found["seeds"][:MAX_SEEDS], found["seeds"][0]
            verdicts = {int(seed["seed"]): _name(seed["verdict"]) for seed in seeds}
            drawn, notes = _bounded(rows, list(verdicts))
            if left := len(found["seeds"]) - len(verdicts):
                notes.append(f"{left} more seeds are not shown")
            stages = [stage for stage in dict.fromkeys(drawn["stage"]) if stage]
            notes += [f"seed {int(s['seed'])}: {_name(sentence)}" for s in seeds for sentence in _sentences(s)]
            uncalibrated = "" if found["calibrated"] is True else ", uncalibrated"
            return cls(
                f"{_name(first['network'])}: {_name(found['verdict'])}{uncalibrated}",
                pd.DataFrame([_line(seed, stages) for seed in seeds]),
                notes[:MAX_NOTES],
                verdicts,
                expected_rows(found.get("expected", {})),
                drawn,
            )
        except UNREADABLE as error:
            raise ValueError(f"card.json: not a card ({type(error).__name__}: {excerpt(str(error))})") from error

    def draw(self) -> Figure:
        """The figure that the probe drew, but for what is left out."""
        with plain_text():
            return draw_mechanism(self.rows, self.verdicts, self.expected, self.title)


def expected_rows(expected: Mapping[str, Mapping[str, Sequence[float | None]]]) -> pd.DataFrame:
    """Signatures by algorithm and component as rows ``algorithm, component, position, value``."""
    rows = [
        (_name(algorithm), str(component), t, float("nan") if value is None else float(value))
        for algorithm, signature in [*expected.items()][:MAX_ALGORITHMS]
        for component, values in signature.items()
        for t, value in enumerate(values[:MAX_BITS])
    ]
    return pd.DataFrame(rows, columns=["algorithm", "component", "position", "value"])


def _bounded(rows: pd.DataFrame, seeds: Sequence[int]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of these seeds that a figure can show, each once; and what it does not show."""
    rows = rows[[*ROWS]].astype({"stage": object}).fillna({"stage": ""}).astype(ROWS)
    rows = rows[rows["seed"].isin(seeds)].drop_duplicates(KEY, ignore_index=True)
    bit = pd.to_numeric(rows["position"], errors="coerce")
    rows = rows[bit.isna() | bit.isin(range(MAX_BITS))].assign(value=rows["value"].clip(-1, MAX_BITS))
    stages = [*dict.fromkeys(rows["stage"])]
    notes = [f"{len(stages) - MAX_STAGES} more stages are not shown"] if len(stages) > MAX_STAGES else []
    return rows[rows["stage"].isin(stages[:MAX_STAGES])], notes


def _line(seed: Mapping[str, Any], stages: Sequence[str]) -> dict[str, str]:
    """The row of a seed. Nothing in it is empty."""
    bits = seed["bits"][:MAX_BITS]
    followed = {name: [int(bit["position"]) for bit in bits if name in bit["transmits"]] for name in MOVED}
    nearest = "none is known"
    if seed["distance"] is not None:
        nearest = f"{_name(seed['nearest'])}, {min(map(float, seed['distances'].values())):.3g}"
    return {
        "seed": str(int(seed["seed"])),
        "verdict": _name(seed["verdict"]),
        "right": f"{_share(seed['accuracy']):.1%}",
        "nearest, distance": nearest,
        "moves that answers follow": "; ".join(f"{name}: {_bits(at)}" for name, at in followed.items()),
        "a random prefix changes": _changed(bits, "follows_prefix"),
        "a prefix that says nothing changes": _changed(bits, "needs_prefix"),
        "the carry appears": _appears([bit["appears"]["carry"] for bit in bits], stages),
    }


def _changed(bits: Sequence[Mapping[str, Any]], key: str) -> str:
    """The bits with a share of at least `FOLLOWED` answers that change, and from which to which share."""
    measured = {int(bit["position"]): _share(bit[key]) for bit in bits if bit[key] is not None}
    changed = {t: share for t, share in measured.items() if share >= FOLLOWED}
    if not changed:
        return "no bit" if measured else "not measured"
    low, high = (f"{100 * share:.0f}" for share in (min(changed.values()), max(changed.values())))
    return f"{_bits(list(changed))}: {low if low == high else f'{low} to {high}'}% of the answers"


def _appears(first: Sequence[str | None], stages: Sequence[str]) -> str:
    """The first and the last of the stages behind which a bit's position begins to hold a variable."""
    places = sorted(stages.index(stage) for stage in first if stage in stages)
    if not places:
        return "nowhere"
    ends = dict.fromkeys((stages[places[0]], stages[places[-1]]))
    late = len(first) - len(places)
    return " to ".join(map(_name, ends)) + (f", in {late} bit{'s' if late > 1 else ''} nowhere" if late else "")


def _bits(positions: Sequence[int]) -> str:
    if not positions:
        return "no bit"
    return f"bit{'s' if len(positions) > 1 else ''} {format_seeds(tuple(positions))}"


def _share(value: Any) -> float:
    if not 0 <= (share := float(value)) <= 1:
        raise ValueError(f"{excerpt(str(value))} is no fraction from 0 to 1")
    return share


def _sentences(seed: Mapping[str, Any]) -> list[str]:
    return [sentence for key in ("reasons", "evidence") for sentence in seed[key] if isinstance(sentence, str)]


def _name(text: object) -> str:
    """Short and printable."""
    return excerpt(str(text))
