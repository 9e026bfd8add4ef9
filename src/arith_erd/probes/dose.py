"""Move the value in the activations by delta. Does the answer become a + b + delta?"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from ..errors import UserError, require_integer
from ..interp.causal_model import CausalModelSpec, build_causal_model
from ..interp.dose import doses
from ..interp.hooked import Hooked
from ..interp.sites import chosen_sites
from ..plots.style import GREY, INK, canvas, headline, legend_below, set_title, tidy
from .probe import Natural, Positive, Probe, listed

Method = Literal["slope", "leace", "centroids"]
DELTAS = (1, 2, 4, 8, 16, 32, 64)
TITLES = {
    "slope": ("Least-squares slope", "Cov(x, S) / Var(S)"),
    "leace": ("LEACE direction", "linear reading moved by delta"),
    "centroids": ("Class centroids", "mean of one sum to the next"),
}


class Dose(Probe):
    """Move all positions of a site along the value, and read the whole answer.

    In ``3 + 5`` at three bits a move by 1 should give the answer ``1001``, 9. A network that stores one number follows
    every delta. One that stores carries cannot follow, because a linear move triggers no carry.

    The directions are fitted on runs of 4,096 examples: ``slope`` is ``Cov(x, S) / Var(S)``, ``leace`` the same
    direction with a step that moves a linear reading by delta, and ``centroids`` the move between the mean activations
    of both sums. The columns are those of `interp.dose.doses`.

    Args:
        delta: units of the value, or a list of them; None for 1, 2, 4 .. 64, up to the task's largest value.
        sample: examples for each delta.
        causal_model: a hypothesis of yours (`interp.causal_model.build_causal_model`); None for the task's own.

    Raises:
        UserError: for a site or method that is not there, or a task without a value.
    """

    columns = ("seed", "site", "method", "delta", "n", "answer", "no_intervention", "random")

    def __init__(
        self,
        models: Sequence[Hooked],
        site: str | Sequence[str] = "all",
        method: Method | Sequence[Method] = ("slope", "leace", "centroids"),
        delta: int | Sequence[int] | None = None,
        sample: Positive = 128,
        seed: Natural = 0,
        causal_model: CausalModelSpec = None,
    ) -> None:
        self.models, self.sample, self.seed = models, sample, seed
        self.causal_model = build_causal_model(models[0].task, causal_model, "probe.causal_model")
        if not self.causal_model.answer_variable:
            said = f"task {models[0].task.name} has no variable that is the answer as a number"
            raise UserError(f"{said}; expected one that has it, such as add or mul")
        self.sites = chosen_sites(models, site)
        self.methods = listed(method)
        largest = int(self.causal_model.examples.answer.max())
        self.deltas = [number for number in DELTAS if number <= largest] if delta is None else listed(delta)
        for number in self.deltas:
            require_integer("probe.delta", number, 1, largest)

    def rows(self) -> Iterator[dict[str, Any]]:
        arguments = (self.causal_model, self.sites, self.methods, self.deltas, self.sample, self.seed)
        for model in self.models:
            yield from ({"seed": model.seed} | row for row in doses(model, *arguments))

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        means = rows.groupby(["site", "method", "delta"], sort=False)["answer"].mean().unstack("delta")
        return means.map(lambda x: f"{x:.2f}").reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        methods = [name for name in TITLES if name in set(rows["method"])]
        figure = canvas(1.2 + 3.9 * max(len(methods), 2), 5.2)
        for ax, method in zip(figure.subplots(1, len(methods), squeeze=False, sharey=True)[0], methods, strict=True):
            shown = rows[rows["method"] == method]
            means = shown.pivot_table("answer", "delta", "site")
            for stack, dashes, shades in (("enc", "--", "Blues"), ("dec", "-", "Greens")):
                sites = [site for site in self.sites if site.startswith(stack)]
                for i, site in enumerate(sites):
                    look = {"color": colormaps[shades](0.35 + 0.6 * i / len(sites)), "marker": "osv^Dx"[i % 6]}
                    ax.plot(means[site], dashes, label=site, ms=4.5, **look)
            controls = shown.groupby("delta")[["no_intervention", "random"]].mean()
            ax.plot(controls["no_intervention"], ":", color=GREY, linewidth=1.2, label="no intervention")
            ax.plot(controls["random"], "-.", color=INK, linewidth=1.2, label="random moves of the same length")
            tidy(ax, "y")
            ax.set_xscale("log", base=2)
            ax.set(xlabel="delta, units of the value", ylim=(-0.04, 1.04))
            ax.xaxis.set_major_formatter("{x:g}")
            headline(ax, *TITLES[method])
        figure.axes[0].set_ylabel("answers that become value + delta")
        set_title(figure, self.causal_model.task.name, "does the answer follow when the value is moved?", rows)
        legend_below(figure, columns=7)
        return figure
