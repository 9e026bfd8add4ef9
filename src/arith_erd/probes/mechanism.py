"""Which algorithm does a network run? One card per network; the verdict is calibrated on networks written by hand."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.sites import check_sites
from ..mechanism.card import NEAR, UNCALIBRATED, Card, NetworkCard, make_card
from ..mechanism.prefixes import require_binary
from ..mechanism.signature import expected_signatures, measure
from ..mechanism.verdict import decide, is_calibrated
from ..plots.course import Course
from ..plots.mechanism import course_of, draw_mechanism
from ..tasks import Add, Mul
from .probe import Natural, Probe

Enough = Annotated[int, Field(ge=64)]


class Mechanism(Probe):
    """Compare a network with each known algorithm, bit by bit, and name the nearest one.

    The algorithms are those of `models.references`: ``erd`` (the sum as one number), ``remainder`` (the sum less what
    the prefix spells), ``prefix_carry`` and ``lookahead_carry`` (carries from the prefix, or from the operands).
    ``mixed`` is one of them for the low bits and another for the high ones. ``none`` means none of these, ``undecided``
    that the tests cannot decide. Two more are reported, ``graded_carry`` and ``local_remainder``: they were written
    after trained networks had been seen, so the verdict cannot name them.

    The probe asks three questions about every bit (`mechanism.signature`): does it follow a wrong prefix? An inverted
    carry? A shifted sum?

    A row is one number. ``test`` says where it comes from: ``verdict`` (the component is its name, the value the
    distance to the nearest algorithm), ``distance`` (to each), ``accuracy``, ``signature`` (what the verdict depends
    on) and ``steering`` (by site, -1 to 1; `mechanism.directions`).

    Args:
        pairs: number of examples that get wrong prefixes.
        moved: number of examples that are steered; as many others give the directions.

    Raises:
        UserError: for another task or order, a network without the sites, or too few examples.
    """

    columns = ("seed", "test", "component", "site", "position", "value")
    across = ("position",)

    def __init__(
        self,
        subjects: Sequence[Hooked],
        pairs: Enough = 1024,
        moved: Enough = 512,
        seed: Natural = 0,
    ) -> None:
        task = subjects[0].task
        if not isinstance(task, Add | Mul):
            raise UserError(f"probe=mechanism: received task={task.name}; expected a run of add or mul")
        require_binary(task)
        for subject in subjects:
            check_sites(subject.sites, ["dec.embed", "dec.1"], "sites= of Hooked")
        self.subjects = subjects
        self.pairs, self.moved, self.seed = pairs, moved, seed
        self.expected = expected_signatures(task) if isinstance(task, Add) else {}
        self.cards: list[NetworkCard] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.cards = []
        for subject in self.subjects:
            found = measure(subject, self.pairs, self.moved, self.seed)
            verdict = decide(found, self.expected)
            calibrated = is_calibrated(subject.network, subject.task)
            self.cards.append(make_card(subject, found, verdict, calibrated))
            for values in (*verdict.rows(), *found.rows()):
                yield self.row(subject.seed, *values)

    @property
    def card(self) -> Card:
        task = self.subjects[0].task
        return Card.of(task.name, task.bits, self.cards, self.expected)

    def files(self) -> dict[str, str]:
        return {"card.json": self.card.to_json(), "notes.txt": "\n".join([*self.card.notes(), ""])}

    def summary(self) -> list[str]:
        return self.card.summary()

    def notes(self) -> list[str]:
        return [] if self.card.calibrated else [UNCALIBRATED]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return self.card.table()

    def course(self, rows: pd.DataFrame) -> Course:
        return course_of(rows)

    def figure(self, rows: pd.DataFrame) -> Figure:
        card = self.card
        verdicts = {one.seed: one.verdict for one in self.cards}
        return draw_mechanism(rows, verdicts, card.expected_rows(), NEAR, card.title, card.post_hoc())
