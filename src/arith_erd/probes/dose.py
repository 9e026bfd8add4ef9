"""Move the value in the embeddings by delta. Does the answer become a + b + delta?"""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..errors import UserError, bad_value, require_integer
from ..interp.activations import chosen_sites
from ..interp.causal import CausalTask
from ..interp.dose import METHODS, doses
from ..interp.subject import Subject
from ..plots.course import Course
from ..plots.dose import draw_doses
from .probe import Probe

DELTAS = (1, 2, 4, 8, 16, 32, 64)


class Dose(Probe):
    """Move all positions of a site along the value, and read the whole answer.

    In ``3 + 5`` at three bits a move by 1 should give the answer ``1001``, 9. The directions are fitted on runs of
    4,096 pairs: ``slope`` is ``Cov(x, S) / Var(S)``, ``leace`` the same direction with a step that moves a linear
    reading by delta, ``centroids`` the move between the mean embeddings of both sums, and ``das`` the part of that move
    in a learned subspace of rank 1 or 2. The columns are those of `interp.dose.doses`.

    A network that stores one number follows every delta. A network that stores carries cannot follow, because a linear
    move triggers no carry.

    Args:
        subjects: trained replicas of one task that has a value.
        site: layers: a name, a list of them, or ``all``.
        method: one of the four, or a list of them.
        delta: units of the value, or a list of them; None for 1, 2, 4 .. 64, up to the task's largest value.
        sample: pairs for each delta.
        seed: of the sample, the fits and the controls.

    Raises:
        UserError: for a site or method that is not there, a task without a value, or an answer in plain order.
    """

    columns = (
        *("seed", "site", "method", "prefix", "delta", "n"),
        *("answer", "tokens", "floor", "floor_tokens", "random"),
    )

    def __init__(
        self,
        subjects: Sequence[Subject],
        site: str | Sequence[str] = "all",
        method: str | Sequence[str] = ("slope", "leace", "centroids"),
        delta: int | Sequence[int] | None = None,
        sample: int = 128,
        seed: int = 0,
    ) -> None:
        require_integer("probe.sample", sample, 1)
        require_integer("probe.seed", seed, 0)
        self.subjects = subjects
        self.pairs = valued(subjects[0])
        self.sites = chosen_sites([subject.network for subject in subjects], site)
        self.methods = chosen_methods(method, METHODS)
        largest = int(self.pairs.examples.answer.max())
        if delta is None:
            delta = [number for number in DELTAS if number <= largest]
        self.deltas = [delta] if isinstance(delta, int) else list(dict.fromkeys(delta))
        for number in self.deltas:
            require_integer("probe.delta", number, 1, largest)
        self.sample = sample
        self.seed = seed

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            arguments = (self.sites, self.methods, self.deltas, self.sample, self.seed)
            for row in doses(subject.network, self.pairs, *arguments):
                yield {"seed": subject.seed} | row

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Share of whole answers that follow with the new answer's prefix, one column per delta: means over seeds."""
        shown = rows[rows["prefix"] == "target"]
        means = shown.groupby(["site", "method", "delta"], sort=False)["answer"].mean().unstack("delta")
        return means.map(lambda x: f"{x:.2f}").reset_index()

    def course(self, rows: pd.DataFrame) -> Course:
        """Whole answers that follow, right prefix given, mean over doses: a line for each site, a panel each method."""
        shown = rows[rows["prefix"] == "target"]
        return Course.of(shown, self.sheet("", shown), "answer", "site", "method", "answers that follow the dose")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Share of whole answers that follow: one panel per method, one line per site."""
        return draw_doses(rows, self.subjects[0].task.name)


def valued(subject: Subject) -> CausalTask:
    """The pairs of a task that has a value to move.

    Raises:
        UserError: if it has none.
    """
    pairs = CausalTask(subject.task)
    if not pairs.value:
        raise UserError(f"task {subject.task.name} has no single value to move; expected add or mul")
    return pairs


def chosen_methods(method: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """One method or a list of them, as a list.

    Raises:
        UserError: for one that is not among the known.
    """
    methods = [method] if isinstance(method, str) else list(dict.fromkeys(method))
    for name in methods:
        if name not in known:
            raise bad_value("probe.method", name, f"some of {', '.join(known)}")
    return methods
