"""Which algorithm does a network run? One card per network; the verdict is calibrated on networks written by hand."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..errors import UserError, require_integer
from ..interp.card import make_card
from ..interp.causal import require_binary
from ..interp.evidence import gather
from ..interp.exchange import ALL
from ..interp.signature import STEERING, expected_signatures, local_signatures, measure
from ..interp.subject import Subject
from ..interp.verdict import decide, distances_to
from ..models import NanoGPT, Transformer
from ..plots.cards import expected_rows
from ..plots.course import Course
from ..plots.mechanism import course_of, draw_mechanism
from ..tasks import Add, Mul
from .probe import Probe

UNCALIBRATED = "uncalibrated: there is no reference network of this architecture and task to test the verdict on"


class Mechanism(Probe):
    """Compare a network with each known algorithm, bit by bit, and name the nearest one.

    The algorithms are those of `models.references`: ``erd`` (the sum as one number), ``remainder`` (the sum less what
    the prefix spells), ``prefix_carry`` and ``lookahead_carry`` (carries from the answer so far, or from the operands).
    ``mixed`` is one of them for the low bits and another for the high ones. ``none`` means none of these, ``undecided``
    that the tests cannot decide.

    The probe asks three questions about every bit (`interp.signature`): does it follow a wrong prefix? An inverted
    carry? A moved sum? ``3 + 5`` with its sum moved by 1 is 9 in an ``erd`` network; a network that only stores the sum
    still answers 8.

    Two more algorithms stand beside the candidates. They were written after trained networks had been looked at, so the
    verdict does not name them; a card says how near they are. ``graded_carry`` reads the carry off a number, what the
    lower bits add up to less what the prefix spells. ``local_remainder`` reads the bit off that number with bit t of
    the operands added. `interp.pushing` moves a carry beyond 0 and 1.

    Beside the verdict, and without a part in it, a card shows what `interp.evidence` gathers: where each position of
    the answer holds the carry and the xor, whether positions of the prompt hold anything about each other, whether
    whole answers follow a moved sum, and which variables a subspace of rank 1 or 2 carries, with all controls.

    The first row of a seed has the verdict, with the distance to the nearest algorithm; ``right`` is the share of right
    answers. Rows with an empty ``stage``
    are the signature, on which the verdict depends. The others belong to a stage: the informedness of a move (-1 to 1)
    for ``carry``, ``value`` and ``value_of_remainder``, shares for ``exchange_*``, ``dose_*``, ``subspace_*``,
    ``pushed_*`` and ``turns_*``.

    Args:
        subjects: networks that add or multiply, with answers in reverse order.
        pairs: number of pairs that get wrong prefixes.
        moved: number of pairs moved along directions, and exchanged; as many others give the directions.
        steps: of each search for a subspace; 0 leaves them out.
        seed: of all samples.

    Raises:
        UserError: for another task, order or architecture, or too few pairs.
    """

    columns = ("seed", "component", "stage", "position", "value")
    across = ("position",)

    def __init__(
        self, subjects: Sequence[Subject], pairs: int = 1024, moved: int = 512, steps: int = 50, seed: int = 0
    ) -> None:
        require_integer("probe.pairs", pairs, 64)
        require_integer("probe.moved", moved, 64)
        require_integer("probe.steps", steps, 0)
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
        self.pairs, self.moved, self.steps, self.seed = pairs, moved, steps, seed
        self.expected = expected_signatures(task) if isinstance(task, Add) else {}
        self.others = local_signatures(task) if isinstance(task, Add) else {}
        self.cards: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.cards = []
        for subject in self.subjects:
            found = measure(subject.network, subject.task, self.pairs, self.moved, self.seed)
            verdict = decide(found, self.expected) if self.expected else None
            others = distances_to(found, self.others)
            evidence = gather(subject.network, subject.task, self.moved, self.steps, self.seed)
            self.cards.append(entry := make_card(subject, found, verdict, others, evidence))
            values: list[tuple[str, str, str, float]] = []
            if verdict is not None:
                values.append((f"verdict: {entry['verdict']}", "", ALL, min(verdict.distances.values())))
                values += [(f"distance_{name}", "", ALL, distance) for name, distance in others.items()]
            values.append(("right", "", ALL, found.accuracy))
            for component, of_bits in found.components.items():
                values += [(component, "", str(t), float(x)) for t, x in enumerate(of_bits) if math.isfinite(x)]
            names = {test: component for component, test in STEERING.items()}
            moves = [(names[s.test], s.stage, str(s.position), s.informedness) for s in found.scores]
            pushed = [row for one in found.pushed for row in one.rows()]
            for row in [*values, *evidence.rows(), *moves, *pushed]:
                yield dict(zip(self.columns, (subject.seed, *row), strict=True))

    def files(self) -> dict[str, str]:
        """``card.json``: the verdict if all seeds have the same, else ``undecided``; a card for each seed.

        ``expected`` is what each algorithm would do, for the figure.
        """
        verdicts = {entry["verdict"] for entry in self.cards}
        whole = {
            "task": self.subjects[0].task.name,
            "bits": self.subjects[0].task.bits,
            "verdict": verdicts.pop() if len(verdicts) == 1 else "undecided",
            "calibrated": all(entry["calibrated"] for entry in self.cards),
            "expected": self._told(),
            "seeds": self.cards,
        }
        return {"card.json": json.dumps(whole, indent=1) + "\n"}

    def _told(self) -> dict[str, dict[str, list[float | None]]]:
        """What each algorithm would do, algorithm -> component -> by bit; null where it says nothing."""
        return {
            algorithm: {
                name: [round(float(x), 4) if math.isfinite(x) else None for x in values]
                for name, values in signature.items()
            }
            for algorithm, signature in (self.expected | self.others).items()
        }

    def notes(self) -> list[str]:
        """The reasons for the verdicts and what else was found, in sentences."""
        notes = [
            f"seed {entry['seed']}: {reason}" for entry in self.cards for reason in entry["reasons"] + entry["evidence"]
        ]
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
        """What becomes causal, of each seed: `plots.mechanism.course_of`."""
        return course_of(rows)

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The five questions by bit, for networks and algorithms; the effect of moves and of exchanges."""
        verdicts = {entry["seed"]: entry["verdict"] for entry in self.cards}
        return draw_mechanism(rows, verdicts, expected_rows(self._told()), _title(self.subjects[0], self.cards))


def _title(subject: Subject, cards: list[dict[str, Any]]) -> str:
    verdicts = sorted({entry["verdict"] for entry in cards})
    uncalibrated = "" if all(entry["calibrated"] for entry in cards) else " (uncalibrated)"
    return f"{subject.name}: {' / '.join(verdicts)}{uncalibrated}"
