"""How does an answer position add? Weights by place, thresholds, answers against the carry c, and whose carry it is."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import UserError
from ..interp.algorithms import ALGORITHMS, ColumnSums
from ..interp.hooked import Hooked
from ..interp.sites import residual_stream
from ..mechanism.place_value import (
    ideal_slope,
    measure_agreements,
    measure_interchanges,
    measure_slopes,
    measure_swaps,
)
from ..plots import style
from ..plots.curves import EpochCurves
from ..plots.panels import Lines
from .probe import IN_FILE, Count, NetworkProbe, OneOrMore, format_cells, select_sites

LINE_NAMES = {
    **{name: name for name in ALGORITHMS},
    "operands": "operand bits",
    "prefix": "prefix bits",
    "own": "position t reads the other run",
    "earlier": "all earlier positions read it",
}
PLACE_VALUES = {f"{name}, by place value": name for name in ("operand bits", "prefix bits")}
SLOPE, ONES, AGREEMENT, SWAP = "slope_", "ones", "agreement_", "swap_"
PANELS = {  # measures that begin so
    SLOPE: Lines(
        *("value", "place", "line"),
        title="Weight of each lower bit",
        xlabel="place, relative to t",
        ylabel="slope, relative to operand bit t - 1",
        reference_lines=PLACE_VALUES,
    ),
    ONES: Lines(
        *("value", "c", "line"),
        title="Answer against c; grey: after right prefixes",
        xlabel="c = (operands below t - prefix) / 2^t",
        ylabel="answers 1",
        percent=True,
    ),
    AGREEMENT: Lines(
        *("value", "bit", "line"),
        title="Agreement with a rule",
        xlabel="bit t of the answer",
        ylabel="answers as the rule gives them",
    ),
    SWAP: Lines(
        *("value", "layer", "line"),
        title="Layers 1 to l read another run",
        xlabel="decoder layer l",
        ylabel="bits t that flip",
        percent=True,
    ),
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
    """

    columns = ("seed", "measure", "bit", "place", "c", "site", "value", "n")

    num_examples: Count = IN_FILE
    num_pairs: Count = IN_FILE
    site: OneOrMore[str] | None = IN_FILE

    def __post_init__(self) -> None:
        self.sums = ColumnSums(self.task)
        stream = residual_stream(self.models[0].sites, "dec")
        after_cross = [site for site in stream if site.endswith("_cross")]
        after_attention = after_cross or [site for site in stream if site.endswith("resid_mid")]  # to the prompt
        self.sites = select_sites(self.models, self.site or after_attention)
        if encoder := [name for name in self.sites if name.startswith("enc.")]:
            raise UserError(f"probe.site={encoder[0]}: expected sites of the decoder, where position t predicts bit t")

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        yield from measure_agreements(model, self.sums, self.num_examples)
        if self.sums.is_addition:
            yield from measure_slopes(model, self.sums, self.num_examples)
            yield from measure_interchanges(model, self.sums, self.sites, self.num_pairs)
        yield from measure_swaps(model, self.sums, self.num_pairs)

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
        panels = [*PANELS] if self.sums.is_addition else [AGREEMENT, SWAP]
        figure, axes = style.subplots(10.4, 2 * len(panels), len(panels) // 2, 2, squeeze=False)
        for ax, panel in zip(axes.flat, panels, strict=True):
            draw_panel(ax, rows, panel)
            ax.legend(frameon=False, fontsize=8)
        style.set_figure_title(figure, self.task.name, "what does answer position t do with the bits below it?", rows)
        return figure


def draw_panel(ax: Axes, rows: pd.DataFrame, panel: str) -> None:
    """Draw the measures of one of `PANELS`: means over bits, or for ``ones`` a line for each bit."""
    picture, rows = PANELS[panel], rows[rows["measure"].str.startswith(panel)]
    if panel == ONES:
        rows = rows.assign(line="t = " + rows["bit"].map("{:.0f}".format), seed=0)  # six bands would hide the lines
        ax.axvspan(0, 1, color=style.GREY, alpha=0.08, linewidth=0)  # the range after right prefixes
    else:
        line = rows["measure"].str.removeprefix(panel).map(LINE_NAMES)
        rows = rows.assign(line=line, place=rows["place"] - rows["bit"])[line.notna()]
    if panel == SLOPE:
        values = [ideal_slope(row.place, 0, row.measure == "slope_operands") for row in rows.itertuples()]
        rows = pd.concat([rows, rows.assign(line=rows["line"] + ", by place value", value=values)])
    if panel == SWAP:
        rows = rows.assign(layer=rows["site"].str.removeprefix("dec.").astype(int))
    picture.draw_panel(ax, rows)
    ax.set(xlabel=picture.xlabel, ylabel=picture.ylabel)
    style.set_panel_title(ax, picture.title)
