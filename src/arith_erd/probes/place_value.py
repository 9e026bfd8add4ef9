"""How does an answer position add? Weights by place, thresholds, answers against the carry c, and whose carry it is."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.sites import chosen_sites, residual_stream
from ..mechanism.place_value import ColumnSums, agreements, ideal_slope, interchanges, slopes, swaps
from ..plots.curves import EpochCurves
from ..plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    draw_band,
    legend_below,
    panel_grid,
    set_figure_title,
    set_panel_title,
    style_axes,
)
from .probe import NetworkProbe, OneOrMore, Positive, format_cells

RULE_STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "local_remainder": ("parity of round(column + c)", {"color": BLUE, "marker": "o"}),
    "graded_carry": ("column xor [c > threshold]", {"color": ORANGE, "marker": "s", "linestyle": "--"}),
    "remainder": ("round(column + c), any number", {"color": INK, "marker": "^", "linestyle": "-."}),
    "prefix_carry": ("carry read off the last token", {"color": GREY, "marker": "x", "linestyle": ":"}),
}
SWAP_STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "own": ("position t reads the other run", {"color": BLUE, "marker": "D"}),
    "earlier": ("all earlier positions read it", {"color": ORANGE, "marker": "v", "linestyle": "--"}),
}


class PlaceValue(NetworkProbe):
    """Give position t random prefixes, and measure how its answer depends on c = (operands below t - prefix) / 2^t.

    A row is a measure of one bit t, of ``n`` answers (`mechanism.place_value`):

    - ``slope_operands``, ``slope_prefix``: slopes of a logistic regression of bit t, by ``place``, relative to the
      slope of the operand bits t - 1. By place value they are 2^(place - t + 1), negative for the prefix.
    - ``ones``: share of answers 1 for each ``c`` (in eighths), where both operands have bit t = 0.
    - ``threshold_RULE``, ``agreement_RULE``: a rule's threshold, and the share of answers that it predicts on prefixes
      not used to fit the threshold.
    - ``interchange_*``: share of answers that change if position t of a ``site`` comes from a run with the same c
      (``equal``), or with c + 1 when the network answers 0 (``plus_low``) or 1 (``plus_high``).
    - ``swap_own``, ``swap_earlier``: of two runs with the same prefix and opposite bits t, the share of bits t that
      flip if position t itself, or every earlier position of the answer, reads the other run's prompt up to the decoder
      layer ``site``, and its own prompt after that. In a network whose positions pass carries on, ``earlier`` flips
      bits; if each position computes its own carry, only ``own`` does.

    A multiplication has agreements, thresholds and swaps only, with the sums of its columns in place of the operands'
    bits.

    Args:
        draws: random prefixes for each bit.
        pairs: pairs of runs for each bit and site.
        site: one or several sites of the decoder; None for the residual stream after each attention to the prompt.
    """

    columns = ("seed", "measure", "bit", "place", "c", "site", "value", "n")

    def __init__(
        self,
        models: Sequence[Hooked],
        draws: Positive = 4096,
        pairs: Positive = 256,
        site: OneOrMore[str] | None = None,
    ) -> None:
        super().__init__(models)
        self.draws, self.pairs = draws, pairs
        self.sums = ColumnSums(self.task)
        self.sites = attention_sites(models[0]) if site is None else chosen_sites(models, site)
        if encoder := [name for name in self.sites if name.startswith("enc.")]:
            raise UserError(f"probe.site={encoder[0]}: expected sites of the decoder, where position t predicts bit t")

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        yield from agreements(model, self.sums, self.draws)
        if self.sums.adds:
            yield from slopes(model, self.sums, self.draws)
            yield from interchanges(model, self.sums, self.sites, self.pairs)
        yield from swaps(model, self.sums, self.pairs)

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        shown = rows[rows["place"].isna() & rows["c"].isna()]
        names = shown["measure"].where(shown["site"].isna(), shown["measure"] + " " + shown["site"].fillna(""))
        table = shown.assign(measure=names).pivot_table("value", "measure", "bit", sort=False)
        return format_cells(table.sort_index(axis=1))

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        """Means over bits of the measures without a place or a c."""
        shown = rows[rows["place"].isna() & rows["c"].isna()]
        return EpochCurves.of(shown, "value", ["measure"], label="mean over bits")

    def figure(self, rows: pd.DataFrame) -> Figure:
        panels = [draw_agreements, draw_swaps]
        panels = [draw_slopes, draw_answers, *panels] if self.sums.adds else panels
        figure, axes = panel_grid(10.4, 2.3 * len(panels), len(panels), 2)
        for ax, draw in zip(axes, panels, strict=True):
            draw(ax, rows)
        set_figure_title(figure, self.task.name, "what does answer position t do with the bits below it?", rows)
        legend_below(figure, columns=5)
        return figure


def attention_sites(model: Hooked) -> list[str]:
    """The residual stream of the decoder after each attention to the prompt."""
    stream = [site for site in residual_stream(model.sites) if site.startswith("dec.")]
    after_cross = [site for site in stream if site.endswith("_cross")]
    return after_cross or [site for site in stream if site.endswith("resid_mid")]


def draw_slopes(ax: Axes, rows: pd.DataFrame) -> None:
    """Slopes by place below t: a thin line for each seed and bit, a thick one for their mean, dots for place value."""
    style_axes(ax)
    for name, color, sign in (("operands", BLUE, 1), ("prefix", ORANGE, -1)):
        measured = rows[rows["measure"] == f"slope_{name}"]
        below = measured.assign(below=measured["bit"] - measured["place"])
        for _, line in below.groupby(["seed", "bit"]):
            ax.plot(line["below"], line["value"], color=color, alpha=0.25, linewidth=0.8)
        mean, marker = below.groupby("below")["value"].mean(), "o" if sign > 0 else "s"
        ax.plot(mean.index, mean, color=color, marker=marker, markersize=4.5, label=f"{name.removesuffix('s')} bits")
        at = np.arange(1, 2 if below.empty else int(below["below"].max()) + 1)
        expected = [ideal_slope(-int(d), 0, sign > 0) for d in at]
        ax.plot(at, expected, ":", color=INK, linewidth=1.2, label="place value" if sign > 0 else None)
    ax.invert_xaxis()
    ax.set(xlabel="places below t", ylabel="slope, relative to operand bit t - 1")
    set_panel_title(ax, "Weight of each lower bit", "thin: each bit t")


def draw_answers(ax: Axes, rows: pd.DataFrame) -> None:
    """For each bit the share of answers 1 against c, where a_t = b_t = 0."""
    style_axes(ax, "y")
    ones = rows[rows["measure"] == "ones"]
    bits = sorted(ones["bit"].unique())
    for i, bit in enumerate(bits):
        mean = ones[ones["bit"] == bit].groupby("c")["value"].mean()
        shade = 0.35 + 0.65 * i / max(len(bits) - 1, 1)
        ax.plot(mean.index, mean, "-", color=GREEN, alpha=shade, linewidth=1.4, label=f"t = {bit:.0f}")
    ax.axvspan(-0.02, 1.02, color=GREY, alpha=0.08, linewidth=0)
    ax.set(xlabel="c: operands below t minus the prefix, over 2^t", ylabel="answers 1", ylim=(-0.03, 1.03))
    set_panel_title(ax, "Answer against c", "grey: range after right prefixes")


def draw_agreements(ax: Axes, rows: pd.DataFrame) -> None:
    """The agreement with each rule, by bit."""
    style_axes(ax, "y")
    for name, (label, style) in RULE_STYLES.items():
        mean = rows[rows["measure"] == f"agreement_{name}"].groupby("bit")["value"].mean()
        if len(mean):
            ax.plot(mean.index, mean, label=label, markersize=4.5, **style)
    ax.set(xlabel="bit t of the answer", ylabel="answers as the rule gives them", ylim=(None, 1.002))
    set_panel_title(ax, "Agreement with a rule", "threshold fitted on others")


def draw_swaps(ax: Axes, rows: pd.DataFrame) -> None:
    """Flipped bits by layer: the mean over seeds, and their range as a band."""
    style_axes(ax, "y")
    swapped = rows[rows["measure"].str.startswith("swap_")]
    layer = swapped["site"].astype(str).str.removeprefix("dec.").astype(int)
    for name, (text, style) in SWAP_STYLES.items():
        of_reader = swapped.assign(layer=layer)[swapped["measure"] == f"swap_{name}"]
        draw_band(ax, of_reader.pivot_table("value", "layer", "seed"), "mean", label=text, markersize=4.5, **style)
    ax.set(xlabel="decoder layer l", ylabel="bits t that flip", ylim=(-0.03, 1.03), xticks=sorted(layer.unique()))
    set_panel_title(ax, "Layers 1 to l read another run", "mean over bits")
