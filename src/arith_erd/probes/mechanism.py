"""Which algorithm does a network run? One card per network; the verdict is calibrated on networks written by hand."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..errors import UserError, require_integer
from ..interp.causal import require_binary
from ..interp.signature import COMPONENTS, STEERING, Measured, Signature, expected_signatures, measure
from ..interp.subject import Subject
from ..interp.verdict import Verdict, decide
from ..models import NanoGPT, Transformer
from ..plots.course import Course
from ..plots.mechanism import draw_mechanism
from ..tasks import Add, Mul, Task
from .probe import Probe

UNCALIBRATED = "uncalibrated: there is no reference network of this architecture and task to test the verdict on"
NO_VERDICT = "no verdict: the known algorithms are for addition, so only the prefixes were measured"


class Mechanism(Probe):
    """Compare a network with each known algorithm, bit by bit, and name the nearest one.

    The algorithms are those of `models.references`: ``erd`` (the sum as one number), ``remainder`` (the sum less what
    the prefix spells), ``prefix_carry`` and ``lookahead_carry`` (carries from the answer so far, or from the operands).
    ``mixed`` is one of them for the low bits and another for the high ones. ``none`` means none of these, ``undecided``
    that the tests cannot decide.

    The probe asks three questions about every bit (`interp.signature`): does it follow a wrong prefix? An inverted
    carry? A moved sum? ``3 + 5`` with its sum moved by 1 is 9 in an ``erd`` network; a network that only stores the sum
    still answers 8.

    Rows with an empty ``stage`` are the signature, on which the verdict depends. The others are the informedness, -1 to
    1, of one move after one stage.

    Args:
        subjects: networks that add or multiply, with answers in reverse order.
        pairs: number of pairs that get wrong prefixes.
        moved: number of pairs moved along directions; as many others give the directions.
        seed: of all samples.

    Raises:
        UserError: for another task, order or architecture, or too few pairs.
    """

    columns = ("seed", "component", "stage", "position", "value")

    def __init__(self, subjects: Sequence[Subject], pairs: int = 1024, moved: int = 512, seed: int = 0) -> None:
        require_integer("probe.pairs", pairs, 64)
        require_integer("probe.moved", moved, 64)
        require_integer("probe.seed", seed, 0)
        task = subjects[0].task
        if not isinstance(task, Add | Mul):
            raise UserError(f"probe=mechanism: received task={task.name}; expected a run of add or mul")
        require_binary(task)
        for subject in subjects:
            if not isinstance(subject.network, Transformer | NanoGPT):
                received = f"received a network {type(subject.network).__name__}"
                raise UserError(f"probe=mechanism: {received}; expected model transformer or nanogpt")
        self.subjects = subjects
        self.pairs, self.moved, self.seed = pairs, moved, seed
        self.expected = expected_signatures(task) if isinstance(task, Add) else {}
        self.cards: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.cards = []
        for subject in self.subjects:
            found = measure(subject.network, subject.task, self.pairs, self.moved, self.seed)
            verdict = decide(found, self.expected) if self.expected else None
            self.cards.append(card(subject, found, verdict))
            for component, values in found.components.items():
                for t, value in enumerate(values):
                    if math.isfinite(value):
                        yield dict(zip(self.columns, (subject.seed, component, "", t, float(value)), strict=True))
            names = {test: component for component, test in STEERING.items()}
            for score in found.scores:
                row = (subject.seed, names[score.test], score.stage, score.position, score.informedness)
                yield dict(zip(self.columns, row, strict=True))

    def files(self) -> dict[str, str]:
        """``card.json``: the verdict if all seeds have the same, else ``undecided``; and a card for each seed."""
        verdicts = {entry["verdict"] for entry in self.cards}
        whole = {
            "task": self.subjects[0].task.name,
            "bits": self.subjects[0].task.bits,
            "verdict": verdicts.pop() if len(verdicts) == 1 else "undecided",
            "calibrated": all(entry["calibrated"] for entry in self.cards),
            "seeds": self.cards,
        }
        return {"card.json": json.dumps(whole, indent=1) + "\n"}

    def notes(self) -> list[str]:
        """The reasons for the verdicts, in sentences."""
        notes = [f"seed {entry['seed']}: {reason}" for entry in self.cards for reason in entry["reasons"]]
        calibrated = all(entry["calibrated"] for entry in self.cards)
        return notes if calibrated else [*notes, UNCALIBRATED]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """One row per seed: its verdict, its distance to each algorithm, and the nearest algorithm for each bit."""
        return pd.DataFrame(
            {
                "seed": entry["seed"],
                "verdict": entry["verdict"],
                "right": f"{entry['accuracy']:.3f}",
                **{f"to {name}": f"{value:.2f}" for name, value in entry["distances"].items()},
                "nearest, bit by bit": " ".join(f"{bit['position']}:{bit['nearest']}" for bit in entry["bits"]),
            }
            for entry in self.cards
        )

    def course(self, rows: pd.DataFrame) -> Course:
        """The signature behind the verdict, mean over bits: one line per component."""
        signature = rows[rows["stage"] == ""]
        return Course.of(signature, self.sheet("", signature), "value", "component", label="signature, mean over bits")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The three questions by bit, for networks and algorithms; and the effect of moves at each stage."""
        verdicts = {entry["seed"]: entry["verdict"] for entry in self.cards}
        return draw_mechanism(rows, verdicts, _as_rows(self.expected), _title(self.subjects[0], self.cards))


def card(subject: Subject, found: Measured, verdict: Verdict | None) -> dict[str, Any]:
    """The measurements of one network, as plain values."""
    bits = []
    for t in range(1, subject.task.width):
        numbers = {name: _number(found.components[name][t]) for name in COMPONENTS}
        stages = {name: chosen[t] or None for name, chosen in found.best.items()}
        nearest, distance = (None, math.nan) if verdict is None else verdict.by_bit[t - 1]
        bits.append(
            {
                "position": t,
                "nearest": nearest,
                "distance": _number(distance),
                "needs_prefix": _needs(found.components, t),
                "transmits": [
                    name
                    for name, component in (("carry", "carry"), ("value", "value"))
                    if (numbers[component] or 0) >= 0.5
                ],
                "first_stage": {name: _first(found, test, t) for name, test in STEERING.items()},
                "best_stage": stages,
                "measured": numbers,
            }
        )
    return {
        "seed": subject.seed,
        "network": subject.name,
        "verdict": "undecided" if verdict is None else verdict.name,
        "nearest": None if verdict is None else verdict.nearest,
        "distance": None if verdict is None else round(verdict.distance, 4),
        "distances": {} if verdict is None else {name: round(value, 4) for name, value in verdict.distances.items()},
        "by_part": {}
        if verdict is None
        else {part: {name: round(value, 4) for name, value in of.items()} for part, of in verdict.by_part.items()},
        "accuracy": round(found.accuracy, 5),
        "calibrated": _calibrated(subject.network, subject.task),
        "reasons": [NO_VERDICT] if verdict is None else verdict.reasons,
        "bits": bits,
    }


def _calibrated(network: object, task: Task) -> bool:
    """Whether references of this architecture and task exist."""
    return isinstance(network, Transformer) and isinstance(task, Add) and task.bits == 7


def _number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def _needs(components: Signature, t: int) -> float | None:
    """Share of answers that a random prefix changes: 1 less the agreement with ``prompt_only``."""
    return _number(1 - components["prompt_only"][t])


def _first(found: Measured, test: str, t: int) -> str | None:
    """The first stage at which bit t follows a move."""
    return next(
        (s.stage for s in found.scores if (s.test, s.position) == (test, t) and s.informedness >= 0.5),
        None,
    )


def _as_rows(expected: dict[str, Signature]) -> pd.DataFrame:
    rows = [
        (algorithm, component, t, value)
        for algorithm, signature in expected.items()
        for component, values in signature.items()
        for t, value in enumerate(np.asarray(values))
    ]
    return pd.DataFrame(rows, columns=["algorithm", "component", "position", "value"])


def _title(subject: Subject, cards: list[dict[str, Any]]) -> str:
    verdicts = sorted({entry["verdict"] for entry in cards})
    uncalibrated = "" if all(entry["calibrated"] for entry in cards) else " (uncalibrated)"
    return f"{subject.name}: {' / '.join(verdicts)}{uncalibrated}"
