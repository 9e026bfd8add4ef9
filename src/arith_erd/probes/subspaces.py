"""Which few directions carry a causal variable?"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import isnan
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..errors import UserError, bad_value, require_integer
from ..interp.activations import chosen_sites
from ..interp.causal import PARTIAL, WHOLE, CausalTask, require_variables
from ..interp.place import Budget
from ..interp.search import Search
from ..interp.subject import Subject
from ..plots.course import Course
from ..plots.subspaces import draw_subspaces
from .probe import Probe

CONTROLS = (
    "iia_random",
    "iia_random_max",
    "iia_flipped",
    "iia_flipped_max",
    "iia_untrained",
    "iia_decoy",
    "train_arbitrary",
    "distance",
    "distance_natural",
)


class Subspaces(Probe):
    """Search the directions whose exchange between runs acts like the exchange of a causal variable, with controls.

    A row is a variable at one position of a site, and a subspace of one rank. ``iia`` is the balanced
    interchange-intervention accuracy on test couples, which share no operand with those that the directions were
    learned from: the mean of the accuracy on answers that the variable's exchange should change and on those that it
    should not. With nothing exchanged it is ``floor``, 0.5 in a network that is always right; ``whole`` exchanges the
    whole embedding. ``chosen`` marks the smallest rank within 0.02 of the best on validation couples. The other columns
    are those of `interp.search.Found` and `Search.controls`.

    ``sum`` at position t predicts bit t of the source's sum. A late layer that holds only this bit passes at rank 1
    without any number. A number is stored only if `probe=dose` and `probe=transfer` succeed too. ``partial_sum``
    predicts the same bit as ``sum``; its search starts from other directions.

    Args:
        subjects: trained replicas of one task.
        site: a name, a list of them, or ``all``.
        position: of the answer, a list of them, or ``all``: every position of the site together; None for the middle.
        variable: a name, a list of them, or None for all.
        rank: of the subspace, or a list of them.
        train, validation, test, steps, random: see `interp.place.Budget`.
        seed: of couples, searches and controls.

    Raises:
        UserError: for a site, position, variable or rank that is not there, or an answer written in plain order.
    """

    columns = (
        *("seed", "site", "position", "variable", "rank", "span", "chosen", "train", "validation", "iia", "floor"),
        *("whole", "strength", "strength_whole"),
        *CONTROLS,
    )

    def __init__(
        self,
        subjects: Sequence[Subject],
        site: str | Sequence[str] = "dec.3",
        position: int | str | Sequence[int | str] | None = None,
        variable: str | Sequence[str] | None = None,
        rank: int | Sequence[int] = (1, 2),
        train: int = 1000,
        validation: int = 500,
        test: int = 500,
        steps: int = 50,
        random: int = 20,
        seed: int = 0,
    ) -> None:
        numbers = {"train": train, "validation": validation, "test": test, "steps": steps, "random": random}
        for key, value in numbers.items():
            require_integer(f"probe.{key}", value, 1)
        require_integer("probe.seed", seed, 0)
        self.subjects = subjects
        self.pairs = CausalTask(subjects[0].task)
        self.sites = chosen_sites([subject.network for subject in subjects], site)
        width = self.pairs.task.width
        self.positions = [_position(p, width) for p in _listed(width // 2 if position is None else position)]
        self.variables = _variables(self.pairs, variable, None in self.positions)
        self.ranks = _listed(rank)
        for number in self.ranks:
            require_integer("probe.rank", number, 1)
        for at, where in product(self.sites, self.positions):
            if where is not None and at.startswith("enc."):
                raise UserError(f"probe.position={where}: expected all at {at}; only the decoder has single positions")
        self.budget = Budget(**numbers)
        self.seed = seed

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            search = Search(subject.network, self.pairs, self.sites, self.budget, self.seed)
            for site, position, variable in product(self.sites, self.positions, self.variables):
                for found in search.at(site, position, variable, self.ranks):
                    where = {"seed": subject.seed, "site": site, "position": "all" if position is None else position}
                    values = {key: value for key, value in vars(found).items() if key in self.columns}
                    yield (
                        where
                        | {"variable": variable}
                        | values
                        | {"chosen": int(found.chosen)}
                        | {name: found.controls.get(name) for name in CONTROLS}
                    )

    def notes(self) -> list[str]:
        """What the rows cannot show."""
        return [
            "the maps are linear, and every hypothesis that passes is listed; a layer that holds bit t already passes "
            "for the sum at rank 1, and so does any subspace where span is no larger than rank"
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The chosen ranks, beside their controls."""
        shown = {
            "iia": "iia",
            "iia_random_max": "random",
            "iia_flipped_max": "flipped",
            "iia_untrained": "untrained",
            "whole": "whole",
        }
        chosen = rows[rows["chosen"] == 1]
        means = chosen.groupby(["site", "position", "variable"], sort=False)[["rank", *shown]].mean()
        text = means[list(shown)].map(lambda x: "" if isnan(x) else f"{x:.2f}").rename(columns=shown)
        text.insert(0, "rank", means["rank"].map("{:.1f}".format))
        return text.reset_index()

    def course(self, rows: pd.DataFrame) -> Course:
        """Accuracy of the chosen rank, a line for each variable and position, a panel for each site."""
        chosen = rows[rows["chosen"] == 1]
        lines = ("variable", "position")
        return Course.of(chosen, self.sheet("", chosen), "iia", lines, "site", "interchange accuracy")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The accuracy of each variable's subspace beside its controls, one panel for each site and position."""
        return draw_subspaces(rows, self.subjects[0].task.name)


def _position(position: int | str, width: int) -> int | None:
    if position == "all":
        return None
    if not isinstance(position, int) or isinstance(position, bool) or not 0 <= position < width:
        raise bad_value("probe.position", position, f"an integer from 0 to {width - 1}, a list of them, or all")
    return position


def _variables(pairs: CausalTask, chosen: str | Sequence[str] | None, whole: bool) -> list[str]:
    """The variables to search; an unknown one is refused with the task's own."""
    known = [name for name in pairs.models if not whole or name in WHOLE]
    if chosen is None:
        known = [name for name in known if name not in PARTIAL]
        if not known:
            raise UserError(f"probe.position=all: task {pairs.task.name} has neither {' nor '.join(WHOLE)}")
        return known
    names: list[str] = _listed(chosen)
    require_variables(pairs.task, names)
    for name in names:
        if name not in known:
            raise bad_value("probe.variable", name, f"{' or '.join(known) or 'none'} with probe.position=all")
    return names


def _listed(chosen: Any) -> list[Any]:
    return [chosen] if isinstance(chosen, str | int) else list(dict.fromkeys(chosen))
