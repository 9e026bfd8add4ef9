"""Responses of a network's answer to wrong prefixes, and to steering along the direction of a variable.

For each position t >= 1 the answer tokens before t are changed, under teacher forcing::

    flip            r_(t-1) inverted: is the network sensitive to it?
    mean_ablation   its embedding replaced by the mean of the embeddings of 0 and 1: does the network need it?
    far             one earlier token inverted, each in turn
    random          all tokens of the prefix drawn at random

The direction of a variable at a site and a position is the least-squares slope of the residual stream on it, with other
variables held fixed. Two variables are steered, each with a control::

    carry    invert the carry into bit t: bit t should change. A random step of the same length should change nothing.
    value    add delta to the sum: bit t should change exactly where bit t of a + b + delta differs from bit t of a + b.

The score is *informedness*: the share of answers that change where they should, minus the share that change where they
should not. It is 1 for a network that follows, and 0 for one that ignores the step or changes at random.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..digits import ONE, ZERO, Array, from_digits
from ..interp.algorithms import ALGORITHMS, PREFIX, ColumnSums, carry_from_prefix
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.interventions import Intervention, Replace, Steer
from ..interp.sites import layers, residual_stream
from ..interp.slopes import answer_slope_estimators, regressors, slope_estimator
from ..models.network import Network
from ..tasks import Add, Examples, Task

USER_MODEL = "user_model"  # name of a user's causal model among the algorithms
ALL_POSITIONS = "all"  # in place of a position: all of them
PREFIX_BATCH_SIZE = 256
PREFIXES_PER_EXAMPLE = 2  # random prefixes for each example


@dataclass(frozen=True)
class PrefixedExamples:
    """N pairs of operands, each with a prefix of t bits as a number: arrays (N,).

    ``c`` is the carry into bit t under the hypothesis that position t computes it by subtraction: it subtracts the
    prefix from the operand bits below t. Some algorithms in `interp.algorithms` round ``c``.
    """

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
    def c(self) -> npt.NDArray[np.float64]:
        """``(lower_sum - prefix) / 2^t`` (N,): the carry into bit t if the prefix is right."""
        return carry_from_prefix(self._sums, self.prefix)[:, self.t]

    @property
    def fraction(self) -> Array:
        """The fraction of c (N,), in units of 2^-t."""
        return (self.lower_sum - self.prefix) % 2**self.t

    def predict_by(self, model: CausalModel) -> Array:
        """Bit t (N,) of the answers that a causal model gives if its variable ``prefix`` is set."""
        return model.answers(model.values(self.operands, {PREFIX: self.prefix}))[:, self.t]


class ProfileRow(NamedTuple):
    """One number of a network's profile."""

    test: str
    component: str = ""
    site: str = ""
    position: str = ALL_POSITIONS
    value: float = math.nan


class PrefixResponse(NamedTuple):
    """The most likely tokens at a position after a change of its prefix."""

    position: int
    change: str
    tokens: Array  # (N,)
    prefix: Array | None  # bits (N, t); None for ``mean_ablation``


STORED_SUMS = {"value": "erd", "value_of_remainder": "remainder"}  # component -> the algorithm that reads this sum
STEERING_COMPONENTS = ("carry", *STORED_SUMS)
STEERING_STRIDE = 4  # positions of the answer that are steered together


def run_with_prefixes(model: Hooked, examples: Examples, seed: int = 0) -> tuple[Array, list[PrefixResponse]]:
    """The most likely tokens (N, m) after right prefixes, and each position's responses to changes of its prefix."""
    prompt, answer_in = model.inputs(examples)
    width = answer_in.shape[1]
    bit_tokens = torch.tensor([[ZERO], [ONE]], device=prompt.device).expand(2, width)
    _, cache = model.run_with_cache((prompt[:1].expand(2, -1), bit_tokens), ["dec.embed"])
    mean = cache["dec.embed"].mean(dim=0)  # (m, C)

    encoder = layers(model.sites, "enc")[-1:] if isinstance(model.network, Network) else []  # reads the prompt alone
    resumed = model.resume_from(encoder[0], (prompt, answer_in), PREFIX_BATCH_SIZE) if encoder else None

    def run(answer_in: Tensor, *interventions: Intervention) -> Array:
        if resumed is not None:
            return np.asarray(resumed(interventions, answer_in).argmax(dim=-1).cpu())
        return np.asarray(model.run((prompt, answer_in), interventions, PREFIX_BATCH_SIZE).argmax(dim=-1).cpu())

    def read(first_position: int, answer_in: Tensor, change: str, change_of_later: str) -> Iterator[PrefixResponse]:
        tokens, bits = run(answer_in), (answer_in[:, 1:] - ZERO).cpu().numpy()
        for t in range(first_position, width):
            yield PrefixResponse(t, change if t == first_position else change_of_later, tokens[:, t], bits[:, :t])

    responses: list[PrefixResponse] = []
    for t in range(1, width):
        flipped = answer_in.clone()
        flipped[:, t] = ZERO + ONE - flipped[:, t]
        ablated = run(answer_in[:, : t + 1], Replace("dec.embed", t, mean[t]))
        responses += read(t, flipped, "flip", "far")
        responses.append(PrefixResponse(t, "mean_ablation", ablated[:, t], None))
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same prefixes on every device
    for _ in range(PREFIXES_PER_EXAMPLE):
        bits = torch.randint(ZERO, ONE + 1, (len(answer_in), width - 1), generator=generator)
        responses += read(1, torch.cat([answer_in[:, :1], bits.to(answer_in)], dim=1), "random", "random")
    return run(answer_in), responses


def causal_models(task: Task, user_model: CausalModel | None = None) -> dict[str, CausalModel]:
    """The algorithms for a task, and ``user_model``. A multiplication has ``erd`` and ``remainder`` only."""
    names = ALGORITHMS if type(task) is Add else ("erd", "remainder")
    models = {name: ALGORITHMS[name].causal_model(task) for name in names}
    return models if user_model is None else models | {USER_MODEL: user_model}


def predict_bits(models: Mapping[str, CausalModel], inputs: PrefixedExamples) -> dict[str, Array]:
    """Algorithm -> bit t (N,) that it predicts; -1 for a tie, where it rounds a half-integral c.

    If only r_(t-1) is inverted, c is always half-integral.
    """
    ties = inputs.c % 1 == 0.5
    return {
        name: np.where(ties & (name in ALGORITHMS and ALGORITHMS[name].rounds), -1, inputs.predict_by(model))
        for name, model in models.items()
    }


# Steering


def steering_estimators(causal_model: CausalModel, values: dict[str, Array], encoder: bool) -> Tensor:
    """Matrices (T, 2, m, N), one for each position of a stack, that fit slopes to its activations x (N, C).

    The product with x, (2, m, C), holds the slopes on the carry into each bit t and on one unit of the sum. Slopes are
    zero if the position is not steered for bit t; the decoder steers only position t. The encoder has one slope on the
    sum, stored at t = 0; for other t it is zero.
    """
    if not encoder:
        return torch.diag_embed(answer_slope_estimators(causal_model, values).permute(2, 1, 0)).permute(3, 1, 2, 0)
    task, count = causal_model.task, len(values["sum"])
    unit = 2.0 ** (1 - task.width)
    slope_estimators = torch.zeros(task.prompt_length, 2, task.width, count, dtype=torch.float64)
    for place in range(task.prompt_length):
        index = task.prompt_places[place][1]
        if index < 0:  # the operator uses the operand bits on its left
            index = task.prompt_places[place - 1][1]
        own_bits = [values["a_bit"][:, index], values["b_bit"][:, index]]
        for t in range(task.width):
            slope_estimators[place, 0, t] = slope_estimator([*regressors(causal_model, values, t), *own_bits])[1]
        slope_estimators[place, 1, 0] = slope_estimator([np.ones(count), values["sum"] * unit, *own_bits])[1] * unit
    return slope_estimators


def largest_shift(bits: int) -> int:
    """The largest number that steering adds to a sum or subtracts from it: 64 at seven bits and more."""
    return int(min(64, 2 ** (bits - 1)))


def sample_shifts(sums: Array, bits: int, rng: np.random.Generator) -> Array:
    """Shifts (N, m) of each sum (N,) for each bit: 1 to `largest_shift`, up or down, within the range of sums."""
    total, shape = sums[:, None], (len(sums), bits + 1)
    delta = rng.integers(1, largest_shift(bits) + 1, shape) * rng.choice([-1, 1], shape)
    outside = (total + delta < 0) | (total + delta > 2 ** (bits + 1) - 2)
    return np.where(outside, -delta, delta)


def shifted_bits(models: Sequence[CausalModel], operands: Array, delta: Array) -> Array:
    """Bit t (N, m) of the answer after the sum that a model stores is increased by delta[:, t], (N, m).

    -1 where the models disagree. Models with different thresholds disagree where rounding is a close call.
    """
    stored = models[0].values(operands)["sum"]
    bits = [
        np.stack([m.answers(m.values(operands, {"sum": stored + x}))[:, t] for t, x in enumerate(delta.T)], axis=1)
        for m in models
    ]
    return np.where(np.all([bits[0] == other for other in bits], axis=0), bits[0], -1)


def summing_models(task: Task) -> dict[str, list[CausalModel]]:
    """Component of `STORED_SUMS` -> causal models of its algorithm, with thresholds on both sides of 1/2."""
    return {key: [ALGORITHMS[name].causal_model(task, x) for x in (0.4, 0.6)] for key, name in STORED_SUMS.items()}


def measure_steering(model: Hooked, count: int, seed: int) -> Iterator[tuple[ProfileRow, tuple[float, float]]]:
    """Informedness for each component, site and bit of a network that adds: over all steps, and over each half.

    ``count`` examples are steered along directions fitted on as many others. A step changes a quarter of the answer
    positions (every fourth), or all prompt positions at once.
    """
    rng, task, causal_model = np.random.default_rng(seed), model.task, CausalModel(model.task)
    fit, examples = (task.examples(*rng.integers(0, task.limit, (2, count))) for _ in range(2))
    sites, values, width = residual_stream(model.sites), causal_model.values(fit), task.width
    carries, answer = causal_model.values(examples)["carry"], examples.completion - ZERO
    stacks = {site.startswith("enc.") for site in sites}
    slope_estimators = {encoder: steering_estimators(causal_model, values, encoder) for encoder in stacks}
    _, cache = model.run_with_cache(fit, sites)
    before = model.run(examples).argmax(dim=-1)
    rows, bit_indices = np.arange(count)[:, None], np.arange(width)
    inverted_bits = rows % STEERING_STRIDE == bit_indices % STEERING_STRIDE  # (N, m): bits whose carry is inverted
    deltas = [sample_shifts(examples.answer, task.bits, rng) for _ in range(2)]
    shifts = {encoder: [np.repeat(x[:, :1], width, axis=1) if encoder else x for x in deltas] for encoder in stacks}
    shifted = {
        (component, encoder): np.concatenate([shifted_bits(pair, examples.operands, x) for x in by_stack])
        for (component, pair), (encoder, by_stack) in product(summing_models(task).items(), shifts.items())
    }
    for site, resumed in model.resume_from_each(sites, examples).items():
        encoder = site.startswith("enc.")
        x = cache[site].cpu().double()
        carry, value = torch.einsum("tkmn,ntc->kmtc", slope_estimators[encoder], x)  # (m, T, C)
        inverted = _steps((1 - 2 * carries) * inverted_bits, carry)  # (N, T, C)
        noise = torch.from_numpy(rng.standard_normal(inverted.shape))
        noise *= inverted.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
        steered = np.ones_like(inverted_bits) if encoder else inverted_bits
        steps = [inverted, noise, *(_steps(delta * steered, value) for delta in shifts[encoder])]
        changed = [(resumed([Steer(site, None, step)]).argmax(dim=-1) != before).cpu().numpy() for step in steps]
        for t in range(1, width):
            row, inverted_here = ProfileRow("steering", "carry", site, str(t)), inverted_bits[:, t]
            yield _informedness(row, *(x[inverted_here, t] for x in changed[:2]))
        flips = np.concatenate(changed[2:])  # (2 N, m)
        for component in STORED_SUMS:
            bits = shifted[component, encoder]
            decided, should_change = (bits >= 0) & np.tile(steered, (2, 1)), bits != np.tile(answer, (2, 1))
            for t in range(width):
                of_bit = (flips[decided[:, t] & which, t] for which in (should_change[:, t], ~should_change[:, t]))
                yield _informedness(ProfileRow("steering", component, site, str(t)), *of_bit)


def _steps(weights: Array, direction: Tensor) -> Tensor:
    """Sum over the bits of weights (N, m) times directions (m, T, C) -> (N, T, C)."""
    return torch.einsum("nm,mtc->ntc", torch.from_numpy(weights).double(), direction)


def _informedness(row: ProfileRow, should: Array, should_not: Array) -> tuple[ProfileRow, tuple[float, float]]:
    first, second = (mean_or_zero(should[i::2]) - mean_or_zero(should_not[i::2]) for i in range(2))
    return row._replace(value=mean_or_zero(should) - mean_or_zero(should_not)), (first, second)


def mean_or_zero(changed: Array) -> float:
    return float(changed.mean()) if len(changed) else 0.0
