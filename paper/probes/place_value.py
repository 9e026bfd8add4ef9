"""How does an answer position add? Weights by place, thresholds, answers against the carry c, and whose carry it is.

Measures of one hypothesis: position t subtracts the prefix from the operand bits below t to get its own carry, c. The
rules that round c are those of `interp.algorithms`.

Examples come from fixed seeds, the same for every network. Fits use one half of the combinations of prefix and operand
bits below t, and are scored on the other half. From t = 8 on the pairs of operands are halved instead.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from arith_erd.digits import ONE, ZERO, Array, decoder_tokens, to_digits
from arith_erd.errors import UserError
from arith_erd.interp.algorithms import ALGORITHMS, ColumnSums
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Replace
from arith_erd.interp.sites import layers, residual_stream
from arith_erd.mechanism.prefixes import PrefixedExamples
from arith_erd.plots import style
from arith_erd.plots.curves import EpochCurves
from arith_erd.plots.panels import Lines
from arith_erd.probes.probe import IN_FILE, Count, NetworkProbe, OneOrMore, format_cells, select_sites

Row = dict[str, Any]
BATCH_SIZE = 1024
MAX_COMBINATIONS = 2**21  # up to here, combinations of low bits and prefix are halved one by one
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

    A row is a measure of one bit t, of ``n`` answers:

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
        self.task.require_enumerable("probe=place_value")
        self.sums = ColumnSums(self.task)
        stream = residual_stream(self.models[0].sites, "dec")
        after_cross = [site for site in stream if site.endswith("_cross")]
        after_attention = after_cross or [site for site in stream if site.endswith("resid_mid")]  # to the prompt
        self.sites = select_sites(self.models, self.site or after_attention)
        if encoder := [name for name in self.sites if name.startswith("enc.")]:
            raise UserError(f"probe.site={encoder[0]}: expected sites of the decoder, where position t predicts bit t")

    def measure(self, model: Hooked) -> Iterator[Row]:
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
        return EpochCurves.from_rows(shown, "value", ["measure"], label="mean over bits")

    def figure(self, rows: pd.DataFrame) -> Figure:
        panels = [*PANELS] if self.sums.is_addition else [AGREEMENT, SWAP]
        figure, axes = style.subplots(10.4, 2 * len(panels), len(panels) // 2, 2, squeeze=False)
        for ax, panel in zip(axes.flat, panels, strict=True):
            draw_panel(ax, rows, panel)
            if ax.get_legend_handles_labels()[0]:
                ax.legend(frameon=False, fontsize=8)
        style.set_figure_title(figure, self.task.name, "what does answer position t do with the bits below it?", rows)
        return figure


def draw_panel(ax: Axes, rows: pd.DataFrame, panel: str) -> None:
    """Draw the measures of one of `PANELS`: means over bits, or for ``ones`` a line for each bit."""
    picture, rows = PANELS[panel], rows[rows["measure"].str.startswith(panel)].astype({"place": float, "c": float})
    if panel == ONES:
        rows = rows.assign(line=[f"t = {t:.0f}" for t in rows["bit"]], seed=0)  # six bands would hide the lines
        ax.axvspan(0, 1, color=style.GREY, alpha=0.08, linewidth=0)  # the range after right prefixes
    else:
        line = rows["measure"].str.removeprefix(panel).map(LINE_NAMES)
        rows = rows.assign(line=line, place=rows["place"] - rows["bit"])[line.notna()]
    if panel == SLOPE:
        values = [ideal_slope(row.place, 0, row.measure == "slope_operands") for row in rows.itertuples()]
        rows = pd.concat([rows, rows.assign(line=rows["line"] + ", by place value", value=values)])
    if panel == SWAP and "layer" not in rows:
        rows = rows.assign(layer=rows["site"].str.removeprefix("dec.").astype(int))
    picture.draw_panel(ax, rows)
    ax.set(xlabel=picture.xlabel, ylabel=picture.ylabel)
    style.set_panel_title(ax, picture.title)


def tensors(inputs: PrefixedExamples) -> tuple[Tensor, Tensor]:
    """The prompt (N, P), and the decoder's input up to position t, (N, t + 1)."""
    decoder_input = decoder_tokens(inputs.prefix, inputs.t)
    prompt = inputs.column_sums.task.examples(inputs.a, inputs.b).prompt
    return torch.from_numpy(prompt), torch.from_numpy(decoder_input)


def network_bits(inputs: PrefixedExamples, model: Hooked, *interventions: Replace) -> Array:
    """Bit t (N,) of the network's answers, the likelier of 0 and 1."""
    logits = model.run(tensors(inputs), interventions, batch_size=BATCH_SIZE)  # (N, t + 1, V)
    return np.asarray((logits[:, -1, ONE] > logits[:, -1, ZERO]).long().cpu())


def scoring_half(inputs: PrefixedExamples, rng: np.random.Generator) -> Array:
    """A mask (N,) of half of the combinations of low bits and prefix; of the operands if those are too many."""
    size = 2**inputs.t
    if size**3 > MAX_COMBINATIONS:
        limit = inputs.column_sums.task.limit
        return rng.random(limit**2)[inputs.a * limit + inputs.b] < 0.5
    key = (inputs.a % size * size + inputs.b % size) * size + inputs.prefix
    return rng.random(size**3)[key] < 0.5


def measure_rng(measure: str, t: int) -> np.random.Generator:
    return np.random.default_rng([*measure.encode(), t])


def add_upper_bits(
    rng: np.random.Generator, column_sums: ColumnSums, t: int, low: Array, prefix: Array, zero_column: bool
) -> PrefixedExamples:
    """Operands with the bits ``low`` (2, N) below t and random bits above; a_t = b_t = 0 if ``zero_column``."""
    first_free = t + 1 if zero_column else t
    high = rng.integers(0, 2 ** max(column_sums.task.bits - first_free, 0), low.shape) << first_free
    a, b = high + low
    return PrefixedExamples(column_sums, t, a, b, prefix)


def sample_inputs(
    rng: np.random.Generator, column_sums: ColumnSums, t: int, count: int, zero_column: bool
) -> PrefixedExamples:
    draws = rng.integers(0, 2**t, (3, count))
    return add_upper_bits(rng, column_sums, t, draws[:2] % column_sums.task.limit, draws[2], zero_column)


def measure_slopes(model: Hooked, column_sums: ColumnSums, count: int) -> Iterator[Row]:
    """Fit the answer's bit t on the bits below t of operands and prefix, by logistic regression, with a_t = b_t = 0.

    Slopes, one per place, are divided by the slope of the operand bits t - 1. Only for addition.
    """
    for t in range(2, column_sums.task.width):
        inputs = sample_inputs(measure_rng("slopes", t), column_sums, t, count, zero_column=True)
        bits = network_bits(inputs, model)
        if len(set(bits)) < 2:  # a constant answer has no slopes
            continue
        features = np.hstack([to_digits(x, t) for x in (inputs.a, inputs.b, inputs.prefix)]) - 0.5
        regression = LogisticRegression(C=100.0, max_iter=2000).fit(features, bits)
        slope_a, slope_b, slope_prefix = regression.coef_.reshape(3, t)
        slope_operands = (slope_a + slope_b) / 2
        for place in range(t):
            for name, slope in (("operands", slope_operands), ("prefix", slope_prefix)):
                yield _row(f"slope_{name}", t, slope[place] / slope_operands[-1], place=place)
        for c in np.unique(bins := np.round(inputs.c * 8) / 8):
            yield _row("ones", t, bits[bins == c].mean(), (bins == c).sum(), c=c)


def ideal_slope(place: int, t: int, operands: bool) -> float:
    """The slope of a bit by its place value, relative to the operand bits t - 1."""
    return (1 if operands else -1) * 2.0 ** (place - t + 1)


def measure_agreements(model: Hooked, column_sums: ColumnSums, count: int) -> Iterator[Row]:
    """Fit each rule's threshold on one half of the examples, and score its agreement with the network on the other.

    Thresholds lie between the values that c can take, so no prefix is dropped. ``form`` takes the examples on which
    ``local_remainder`` and ``graded_carry`` differ: the share of answers that agree with ``local_remainder``.
    """
    task, names = column_sums.task, ("local_remainder", "graded_carry", "remainder")
    extremes = 2.0**-task.width, 1 - 2.0**-task.width  # round every fraction up, or none
    rules = {
        name: [ALGORITHMS[name].causal_model(task, threshold) for threshold in extremes]
        for name in names[: None if column_sums.is_addition else 1]
    }
    for t in range(2, task.width):
        rng = measure_rng("threshold", t)
        inputs = sample_inputs(rng, column_sums, t, count, zero_column=False)
        scored, bits, rounded = scoring_half(inputs, rng), network_bits(inputs, model), dict[str, Array]()
        if len(set(scored)) < 2:  # few examples: none to fit thresholds on, or none to score
            continue
        for name, models in rules.items():
            up, down = map(inputs.predict_by, models)
            candidates = (np.arange(2**t) + 0.5) / 2**t
            predicted = np.where(inputs.c % 1 > candidates[:, None], up, down)  # (2^t, N)
            accuracy = (predicted == bits)[:, ~scored].mean(axis=1)
            middle = np.median(candidates[np.isclose(accuracy, max(accuracy))])
            best = np.abs(candidates - middle).argmin()
            rounded[name] = predicted[best]
            yield _row(f"threshold_{name}", t, candidates[best])
            yield _row(f"agreement_{name}", t, (rounded[name] == bits)[scored].mean(), scored.sum())
        if not column_sums.is_addition:
            continue
        agree = inputs.predict_by(ALGORITHMS["prefix_carry"].causal_model(task)) == bits
        yield _row("agreement_prefix_carry", t, agree[scored].mean(), scored.sum())
        differ = scored & (rounded["local_remainder"] != rounded["graded_carry"])
        if differ.any():
            yield _row("form", t, (rounded["local_remainder"] == bits)[differ].mean(), differ.sum())


def sample_with_shifted_c(rng: np.random.Generator, base: PrefixedExamples, extra: int) -> PrefixedExamples:
    """Draw operands and prefixes of an addition, with a_t = b_t = 0, whose c is that of ``base`` plus ``extra``."""
    t = base.t
    difference = base.lower_sum - base.prefix + extra * 2**t
    low, prefix = np.zeros((2, len(difference)), dtype=np.int64), np.full_like(difference, -1)
    while (missing := np.flatnonzero((prefix < 0) | (prefix >= 2**t))).size:
        low[:, missing] = rng.integers(0, 2**t, (2, missing.size))
        prefix[missing] = low[:, missing].sum(axis=0) - difference[missing]
    return add_upper_bits(rng, base.column_sums, t, low, prefix, zero_column=True)


def measure_interchanges(model: Hooked, column_sums: ColumnSums, sites: list[str], count: int) -> Iterator[Row]:
    """How often bit t of an addition changes if position t of a site comes from a run with the same c, or with c + 1.

    Prefixes are random, a_t = b_t = 0, and 0 <= c < 1 in the base run. ``plus_low`` takes the base runs that answer 0:
    c + 1 should make it 1. ``plus_high`` takes those that answer 1: if the network holds c as a number, c + 1 makes it
    0; if it holds a carry of two states, the answer stays 1.
    """
    for t in range(2, column_sums.task.bits):
        rng = measure_rng("interchange", t)
        candidates = sample_inputs(rng, column_sums, t, 4096, zero_column=True)
        c = candidates.c
        rows = np.flatnonzero((c >= 0) & (c < 1 - 2.0**-t))[:count]
        base = replace(candidates, **{name: getattr(candidates, name)[rows] for name in ("a", "b", "prefix")})
        before = network_bits(base, model)
        sources = [sample_with_shifted_c(rng, base, extra) for extra in (0, 1)]
        caches = [model.run_with_cache(tensors(source), sites)[1] for source in sources]
        for site in sites:
            patches = [Replace(site, t, cache[site]) for cache in caches]
            changed_equal, changed_more = (network_bits(base, model, patch) != before for patch in patches)
            yield _row("interchange_equal", t, changed_equal.mean(), len(changed_equal), site=site)
            for name, mask in (("low", before == 0), ("high", before == 1)):
                if mask.any():
                    yield _row(f"interchange_plus_{name}", t, changed_more[mask].mean(), mask.sum(), site=site)


def same_prefix_pairs(column_sums: ColumnSums, t: int, count: int) -> tuple[PrefixedExamples, PrefixedExamples]:
    """Draw base and source runs with the same right prefix, the same sum of column t, and opposite bits t.

    Low sums p and p + 2^t have the same t answer bits p and opposite carries into bit t: in ``3 + 1`` and ``0 + 0`` the
    two lowest bits of the answer are 0, but only ``3 + 1`` carries into bit 2. So the prefix gives position t the same
    information in both runs. In an addition all operand bits from t on are equal too. A multiplication may have fewer
    pairs than ``count``.
    """
    rng = measure_rng("swap", t)
    if not column_sums.is_addition:
        examples, rows = column_sums.task.examples(), []
        low, bit = examples.answer % 2**t, examples.answer >> t & 1
        group = low * (column_sums.max_total[t] + 1) + column_sums(examples.operands)[:, t]
        for base in rng.permutation(len(examples))[:count]:
            partners = np.flatnonzero((group == group[base]) & (bit != bit[base]))
            if len(partners):
                rows.append((base, rng.choice(partners)))
        drawn = (examples[chosen] for chosen in np.array(rows, dtype=np.int64).reshape(-1, 2).T)
        first, second = (PrefixedExamples(column_sums, t, x.a, x.b, x.answer % 2**t) for x in drawn)
        return first, second
    prefix = rng.integers(0, 2**t - 1, count)
    without, carrying = rng.integers(0, prefix + 1), rng.integers(prefix + 1, 2**t)
    upper = add_upper_bits(rng, column_sums, t, np.zeros((2, count), dtype=np.int64), prefix, zero_column=False)
    pairs = [(upper.a + low, upper.b + total - low) for low, total in ((without, prefix), (carrying, prefix + 2**t))]
    swapped = rng.random(count) < 0.5
    (a, b), (other_a, other_b) = (np.where(swapped, v, u) for u, v in (pairs, pairs[::-1]))
    return PrefixedExamples(column_sums, t, a, b, prefix), PrefixedExamples(column_sums, t, other_a, other_b, prefix)


def measure_swaps(model: Hooked, column_sums: ColumnSums, count: int) -> Iterator[Row]:
    """How often bit t flips if position t (``own``), or every earlier one, reads the source's prompt up to a layer."""
    stream = layers(model.sites, "dec")
    for t in range(1, column_sums.task.width):
        base, source = same_prefix_pairs(column_sums, t, count)
        if not len(base.a):
            continue
        base_cache, source_cache = (model.run_with_cache(tensors(inputs), stream)[1] for inputs in (base, source))
        base_patches = [Replace(site, j, base_cache[site]) for site in stream for j in range(t)]
        source_patches = [Replace(site, j, source_cache[site]) for site in stream for j in range(t)]
        before = network_bits(base, model)
        _, own_cache = model.run_with_cache(tensors(source), stream, base_patches)
        for depth, site in enumerate(stream, 1):
            alone = network_bits(base, model, Replace(site, t, own_cache[site]))
            earlier = network_bits(base, model, *source_patches[: depth * t])
            for positions, bits in (("own", alone), ("earlier", earlier)):
                yield _row(f"swap_{positions}", t, (bits != before).mean(), len(before), site=site)


def _row(measure: str, t: int, value: float, n: Any = None, place: Any = None, c: Any = None, site: Any = None) -> Row:
    n = None if n is None else int(n)
    return {"measure": measure, "bit": t, "place": place, "c": c, "site": site, "value": float(value), "n": n}
