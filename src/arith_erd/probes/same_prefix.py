"""Does an answer position use carries from other positions? Swap the prompt that it reads for another run's."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.sites import layers
from ..mechanism.place_value import ColumnSums, swaps
from ..plots.style import BLUE, ORANGE, band, headline, legend_below, set_title, subplots, tidy
from .probe import Positive, Probe, in_text

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "own": ("position t reads the other run", {"color": BLUE, "marker": "o"}),
    "earlier": ("all earlier positions read it", {"color": ORANGE, "marker": "s", "linestyle": "--"}),
}


class SamePrefix(Probe):
    """For two runs with the same prefix and opposite bits t: which positions must read the other prompt to flip bit t?

    ``flipped`` is the share of ``n`` bits t that flip if position t itself (``own``), or every ``earlier`` position of
    the answer, reads the other run's prompt in decoder layers 1 to ``layer``, and its own prompt after that. In a
    network whose positions pass carries on, ``earlier`` flips bits; if each position computes its own carry, only
    ``own`` does. `mechanism.place_value.swap_inputs` draws the runs.

    Raises:
        UserError: if the task is not addition or multiplication in base 2, lowest bit first, or there is no decoder.
    """

    columns = ("seed", "bit", "positions", "layer", "flipped", "n")

    def __init__(self, models: Sequence[Hooked], pairs: Positive = 256) -> None:
        self.models, self.task, self.pairs = models, models[0].task, pairs
        self.sums = ColumnSums(self.task)
        if not any(site.startswith("dec.") for site in layers(models[0].sites)):
            raise UserError(f"probe=same_prefix: {models[0].name} has no decoder layers; expected a network with them")

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            yield from ({"seed": model.seed} | row for row in swaps(model, self.sums, self.pairs))

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return in_text(rows.pivot_table("flipped", ["positions", "layer"], "bit", sort=False), ".3f")

    def figure(self, rows: pd.DataFrame) -> Figure:
        figure, (by_layer, by_bit) = subplots(9.6, 4.4, 1, 2, sharey=True)
        draw_swaps(by_layer, rows)
        draw_swaps(by_bit, rows[rows["layer"] == rows["layer"].max()], "bit", "bit t of the answer")
        headline(by_layer, "Layers 1 to l read the other run", "mean over bits")
        headline(by_bit, "All layers")
        set_title(figure, self.task.name, "does position t use what earlier positions computed?", rows)
        legend_below(figure)
        return figure


def draw_swaps(ax: Axes, rows: pd.DataFrame, by: str = "layer", label: str = "decoder layer l") -> None:
    """Flipped bits by layer or bit: the mean over seeds, and their range as a band."""
    tidy(ax, "y")
    for name, (text, style) in READERS.items():
        by_seed = rows[rows["positions"] == name].pivot_table("flipped", by, "seed")
        band(ax, by_seed, "mean", label=text, markersize=4.5, **style)
    ax.set(xlabel=label, ylabel="bits t that flip", ylim=(-0.03, 1.03), xticks=sorted(rows[by].unique()))
