"""Measures of one hypothesis: position t subtracts the prefix from the operand bits below t to get its own carry.

The number c, which is the carry after a right prefix, and the rules that round it are those of `interp.algorithms`.

Examples come from fixed seeds, the same for every network. Fits use one half of the combinations of prefix and operand
bits below t, and are scored on the other half. From t = 8 on the pairs of operands are halved instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from ..digits import ONE, START, ZERO, Array, from_digits, to_digits
from ..interp.algorithms import ALGORITHMS, PREFIX, ColumnSums
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import layers

PLACE_VALUE_BATCH_SIZE = 1024
MAX_COMBINATIONS = 2**21  # up to here, combinations of low bits and prefix are halved one by one
Row = dict[str, Any]


@dataclass(frozen=True)
class PrefixedExamples:
    """N pairs of operands, each with a prefix of t bits as a number: arrays (N,)."""

    column_sums: ColumnSums
    t: int
    a: Array
    b: Array
    prefix: Array

    @property
    def operands(self) -> Array:
        return np.stack([self.a, self.b], axis=1)

    @cached_property
    def _sums(self) -> Array:
        return self.column_sums(self.operands)

    @property
    def lower_sum(self) -> Array:
        """The sum (N,) of the columns below t, each at its place value."""
        return from_digits(self._sums[:, : self.t])

    @property
    def column_sum(self) -> Array:
        """The sum (N,) of column t without a carry."""
        return self._sums[:, self.t]

    @property
    def c(self) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """``(lower_sum - prefix) / 2^t`` (N,): the carry into bit t if the prefix is right."""
        return (self.lower_sum - self.prefix) / 2.0**self.t

    @property
    def fraction(self) -> Array:
        """The fraction of c (N,), in units of 2^-t."""
        return (self.lower_sum - self.prefix) % 2**self.t

    def tensors(self) -> tuple[Tensor, Tensor]:
        """The prompt (N, P), and the decoder's input up to position t, (N, t + 1)."""
        start = np.full((len(self.prefix), 1), START)
        decoder_input = np.hstack([start, to_digits(self.prefix, self.t) + ZERO])
        return torch.from_numpy(self.column_sums.task.examples(self.a, self.b).prompt), torch.from_numpy(decoder_input)

    def network_bits(self, model: Hooked, *interventions: Replace) -> Array:
        """Bit t (N,) of the network's answers, the likelier of 0 and 1."""
        logits = model.run(self.tensors(), interventions, batch_size=PLACE_VALUE_BATCH_SIZE)  # (N, t + 1, V)
        return np.asarray((logits[:, -1, ONE] > logits[:, -1, ZERO]).long().cpu())

    def predict_by(self, model: CausalModel) -> Array:
        """Bit t (N,) of the answers that a causal model gives if its variable ``prefix`` is set."""
        return model.answers(model.values(self.operands, {PREFIX: self.prefix}))[:, self.t]

    def select(self, rows: Array) -> "PrefixedExamples":
        return PrefixedExamples(self.column_sums, self.t, self.a[rows], self.b[rows], self.prefix[rows])

    def scoring_half(self, rng: np.random.Generator) -> Array:
        """A mask (N,) of half of the combinations of low bits and prefix; of the operands if those are too many."""
        size = 2**self.t
        if size**3 > MAX_COMBINATIONS:
            limit = self.column_sums.task.limit
            return rng.random(limit**2)[self.a * limit + self.b] < 0.5
        key = (self.a % size * size + self.b % size) * size + self.prefix
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
        bits = inputs.network_bits(model)
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
        scored, bits, rounded = inputs.scoring_half(rng), inputs.network_bits(model), dict[str, Array]()
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
        base = candidates.select(np.flatnonzero((c >= 0) & (c < 1 - 2.0**-t))[:count])
        before = base.network_bits(model)
        sources = [sample_with_shifted_c(rng, base, extra) for extra in (0, 1)]
        caches = [model.run_with_cache(source.tensors(), sites)[1] for source in sources]
        for site in sites:
            patches = [Replace(site, t, cache[site]) for cache in caches]
            changed_equal, changed_more = (base.network_bits(model, patch) != before for patch in patches)
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
        return _same_prefix_products(column_sums, t, count, rng)
    prefix = rng.integers(0, 2**t - 1, count)
    without, carrying = rng.integers(0, prefix + 1), rng.integers(prefix + 1, 2**t)
    upper = add_upper_bits(rng, column_sums, t, np.zeros((2, count), dtype=np.int64), prefix, zero_column=False)
    pairs = [(upper.a + low, upper.b + total - low) for low, total in ((without, prefix), (carrying, prefix + 2**t))]
    swapped = rng.random(count) < 0.5
    (a, b), (other_a, other_b) = (np.where(swapped, v, u) for u, v in (pairs, pairs[::-1]))
    return PrefixedExamples(column_sums, t, a, b, prefix), PrefixedExamples(column_sums, t, other_a, other_b, prefix)


def _same_prefix_products(
    column_sums: ColumnSums, t: int, count: int, rng: np.random.Generator
) -> tuple[PrefixedExamples, PrefixedExamples]:
    operands = column_sums.causal_model.examples.operands
    a, b = operands.T
    answers = column_sums.causal_model.table["answer"]
    low, bit = from_digits(answers[:, :t]), answers[:, t]
    group = low * (column_sums.max_total[t] + 1) + column_sums(operands)[:, t]
    pairs = []
    for base in rng.permutation(len(a))[:count]:
        partners = np.flatnonzero((group == group[base]) & (bit != bit[base]))
        if len(partners):
            pairs.append((base, rng.choice(partners)))
    bases, sources = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    first, second = (PrefixedExamples(column_sums, t, a[rows], b[rows], low[rows]) for rows in (bases, sources))
    return first, second


def measure_swaps(model: Hooked, column_sums: ColumnSums, count: int) -> Iterator[Row]:
    """How often bit t flips if position t (``own``), or every earlier one, reads the source's prompt up to a layer."""
    stream = layers(model.sites, "dec")
    for t in range(1, column_sums.task.width):
        base, source = same_prefix_pairs(column_sums, t, count)
        if not len(base.a):
            continue
        caches = [model.run_with_cache(inputs.tensors(), stream)[1] for inputs in (base, source)]
        base_patches, source_patches = (
            [[Replace(site, j, cache[site][:, j]) for j in range(t)] for site in stream] for cache in caches
        )
        before = base.network_bits(model)
        _, own_cache = model.run_with_cache(source.tensors(), stream, [*chain(*base_patches)])
        for depth, site in enumerate(stream, 1):
            alone = base.network_bits(model, Replace(site, t, own_cache[site][:, t]))
            earlier = base.network_bits(model, *chain(*source_patches[:depth]))
            for positions, bits in (("own", alone), ("earlier", earlier)):
                yield _row(f"swap_{positions}", t, (bits != before).mean(), len(before), site=site)


def _row(measure: str, t: int, value: float, n: Any = None, place: Any = None, c: Any = None, site: Any = None) -> Row:
    n = None if n is None else int(n)
    return {"measure": measure, "bit": t, "place": place, "c": c, "site": site, "value": float(value), "n": n}
