"""Which algorithm does a network run? One card per network; the verdict is calibrated on networks written by hand."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.sites import residual_stream
from ..mechanism.card import Card, NetworkCard, make_card
from ..mechanism.evidence import gather
from ..mechanism.patching import ALL
from ..mechanism.prefixes import require_binary, require_embedding
from ..mechanism.signature import STEERING, Measured, expected_signatures, measure, post_hoc_signatures
from ..mechanism.verdict import Verdict, decide, distances_to, is_calibrated
from ..plots.course import Course
from ..plots.mechanism import course_of, draw_mechanism
from ..tasks import Add, Mul
from .probe import Natural, Probe

Enough = Annotated[int, Field(ge=64)]
Row = tuple[str, str, str, str, str, str, float]  # test, component, control, dose, site, position, value


class Mechanism(Probe):
    """Compare a network with each known algorithm, bit by bit, and name the nearest one.

    The algorithms are those of `models.references`: ``erd`` (the sum as one number), ``remainder`` (the sum less what
    the prefix spells), ``prefix_carry`` and ``lookahead_carry`` (carries from the prefix, or from the operands).
    ``mixed`` is one of them for the low bits and another for the high ones. ``none`` means none of these, ``undecided``
    that the tests cannot decide. Two more are reported, ``graded_carry`` and ``local_remainder``: they were written
    after trained networks had been seen, so the verdict cannot name them.

    The probe asks three questions about every bit (`mechanism.signature`): does it follow a wrong prefix? An inverted
    carry? A shifted sum? The card also shows what has no part in the verdict (`mechanism.evidence`).

    A row is one number. ``test`` says where it comes from: ``verdict`` (its name is the component, its value the
    distance to the nearest algorithm), ``distance``, ``accuracy``, ``signature`` (the components that the verdict
    depends on), ``steering`` (the same by site, -1 to 1), ``beyond_range`` and ``flips`` (`mechanism.directions`),
    ``interchange``, ``resample_ablation`` and ``position_wise_resampling`` (`mechanism.patching`), ``dose_response``,
    ``subspace``, ``subspace_rank`` and ``subspace_distance``.

    Args:
        pairs: number of examples that get wrong prefixes.
        moved: number of examples that are steered, and patched; as many others give the directions.
        steps: of each search for a subspace; 0 leaves them out.

    Raises:
        UserError: for another task or order, a network without the sites, or too few examples.
    """

    columns = ("seed", "test", "component", "control", "dose", "site", "position", "value")
    across = ("position",)

    def __init__(
        self,
        subjects: Sequence[Hooked],
        pairs: Enough = 1024,
        moved: Enough = 512,
        steps: Natural = 50,
        seed: Natural = 0,
    ) -> None:
        task = subjects[0].task
        if not isinstance(task, Add | Mul):
            raise UserError(f"probe=mechanism: received task={task.name}; expected a run of add or mul")
        require_binary(task)
        for subject in subjects:
            require_embedding(subject, "mechanism")
        self.subjects = subjects
        self.pairs, self.moved, self.steps, self.seed = pairs, moved, steps, seed
        self.expected = expected_signatures(task) if isinstance(task, Add) else {}
        self.post_hoc = post_hoc_signatures(task) if isinstance(task, Add) else {}
        self.cards: list[NetworkCard] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.cards = []
        for subject in self.subjects:
            found = measure(subject, self.pairs, self.moved, self.seed)
            verdict = decide(found, self.expected) if self.expected else None
            others = distances_to(found, self.post_hoc)
            evidence = gather(subject, self.moved, self.steps, self.seed)
            calibrated = is_calibrated(subject.network, subject.task)
            self.cards.append(make_card(subject, found, verdict, others, evidence, calibrated))
            for row in (*_of_verdict(found, verdict, others), *evidence.rows(), *_of_steering(found)):
                yield self.row(subject.seed, *row)

    @property
    def card(self) -> Card:
        task = self.subjects[0].task
        return Card.of(task.name, task.bits, self.cards, self.expected | self.post_hoc)

    def files(self) -> dict[str, str]:
        return {"card.json": self.card.to_json()}

    def notes(self) -> list[str]:
        return self.card.notes()

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return self.card.table(residual_stream(self.subjects[0].sites))

    def course(self, rows: pd.DataFrame) -> Course:
        return course_of(rows)

    def figure(self, rows: pd.DataFrame) -> Figure:
        card = self.card
        return draw_mechanism(rows, {one.seed: one.verdict for one in self.cards}, card.expected_rows(), card.title)


def _of_verdict(found: Measured, verdict: Verdict | None, others: dict[str, float]) -> Iterator[Row]:
    if verdict is not None:
        yield "verdict", verdict.name, "", "", "", ALL, min(verdict.distances.values())
        for name, distance in others.items():
            yield "distance", name, "", "", "", ALL, distance
    yield "accuracy", "", "", "", "", ALL, found.accuracy
    for component, of_bits in found.components.items():
        for t, value in enumerate(of_bits):
            if math.isfinite(value):
                yield "signature", component, "", "", "", str(t), float(value)


def _of_steering(found: Measured) -> Iterator[Row]:
    names = {test: component for component, test in STEERING.items()}
    for score in found.scores:
        informedness = score.should - score.should_not
        yield "steering", names[score.test], "", "", score.site, str(score.position), informedness
    for one in found.beyond:
        shares = {("beyond_range", "carry", ""): one.carry, ("beyond_range", "total", ""): one.total}
        shares |= {("flips", str(number), ""): share for number, share in enumerate(one.flips)}
        for key, share in (shares | {("flips", "any", "random"): one.random}).items():
            yield *key, "", one.site, str(one.position), share
