"""Responses of a network's answer to steering along the direction of a variable.

The direction of a variable at a site and a position is the least-squares slope of the residual stream on it, with other
variables held fixed. Two variables are steered, each with a control::

    carry    invert the carry into bit t: bit t should change. A random step of the same length should change nothing.
    value    add delta to the sum: bit t should change exactly where bit t of a + b + delta differs from bit t of a + b.

The score is *informedness*: the share of answers that change where they should, minus the share that change where they
should not. It is 1 for a network that follows, and 0 for one that ignores the step or changes at random.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..digits import ZERO, Array
from ..interp.algorithms import ALGORITHMS, CLOSE_CALL
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.interventions import Steer
from ..interp.sites import residual_stream
from ..interp.slopes import answer_slope_estimators, regressors, slope_estimator
from ..tasks import Task

STORED_SUMS = {"value": "erd", "value_of_remainder": "remainder"}  # component -> the algorithm that reads this sum
STEERING_COMPONENTS = ("carry", *STORED_SUMS)
STEERING_STRIDE = 4  # positions of the answer that are steered together


class SteeringScore(NamedTuple):
    """The informedness of bit t after steps of one component at a site: over all steps, and over each half of them."""

    component: str
    site: str
    t: int
    informedness: float
    halves: tuple[float, float]

    @classmethod
    def from_changes(cls, component: str, site: str, t: int, should: Array, should_not: Array) -> "SteeringScore":
        """The score of answers (n,) that should change and of others (k,) that should not; True if they changed."""
        first, second = (_informedness(should[i::2], should_not[i::2]) for i in range(2))
        return cls(component, site, t, _informedness(should, should_not), (first, second))


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
    """Component of `STORED_SUMS` -> causal models of its algorithm, with both thresholds of `CLOSE_CALL`."""
    return {key: [ALGORITHMS[name].causal_model(task, x) for x in CLOSE_CALL] for key, name in STORED_SUMS.items()}


class _Stack(NamedTuple):
    """How the sum is shifted at the sites of the encoder, or at those of the decoder."""

    slope_estimators: Tensor  # of `steering_estimators`, (T, 2, m, N)
    steered: Array  # (N, m): whether an example is steered for bit t
    shifts: list[Array]  # two shifts of each sum, (N, m)
    shifted: dict[str, Array]  # component -> bits (2 N, m) after these shifts; -1 if undecided


def measure_steering(model: Hooked, num_steered: int, seed: int) -> Iterator[SteeringScore]:
    """The score of each component, site and bit of a network that adds.

    ``num_steered`` examples are steered along directions fitted on as many others. A step changes a quarter of the
    answer positions (every fourth), or all prompt positions at once.
    """
    rng = np.random.default_rng(seed)
    task, width = model.task, model.task.width
    fit, examples = (task.examples(*rng.integers(0, task.limit, (2, num_steered))) for _ in range(2))
    deltas = [sample_shifts(examples.answer, task.bits, rng) for _ in range(2)]
    causal_model = CausalModel(task)
    values = causal_model.values(fit)
    carries = causal_model.values(examples)["carry"]
    answer = examples.completion - ZERO
    sites = residual_stream(model.sites)
    _, cache = model.run_with_cache(fit, sites)
    before = model.run(examples).argmax(dim=-1)
    inverted_bits = (np.arange(num_steered)[:, None] - np.arange(width)) % STEERING_STRIDE == 0  # (N, m), of carries

    def make_stack(encoder: bool) -> _Stack:
        shifts = [np.repeat(x[:, :1], width, axis=1) if encoder else x for x in deltas]
        shifted = {
            component: np.concatenate([shifted_bits(models, examples.operands, x) for x in shifts])
            for component, models in summing_models(task).items()
        }
        steered = np.ones_like(inverted_bits) if encoder else inverted_bits
        return _Stack(steering_estimators(causal_model, values, encoder), steered, shifts, shifted)

    stacks = {encoder: make_stack(encoder) for encoder in {site.startswith("enc.") for site in sites}}
    for site, resumed in model.resume_from_each(sites, examples).items():
        stack = stacks[site.startswith("enc.")]
        carry, value = torch.einsum("tkmn,ntc->kmtc", stack.slope_estimators, cache[site].cpu().double())  # (m, T, C)
        inverted = _steps((1 - 2 * carries) * inverted_bits, carry)  # (N, T, C)
        noise = torch.from_numpy(rng.standard_normal(inverted.shape))
        noise *= inverted.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
        steps = [inverted, noise, *(_steps(delta * stack.steered, value) for delta in stack.shifts)]
        changed = [(resumed([Steer(site, None, step)]).argmax(dim=-1) != before).cpu().numpy() for step in steps]
        for t in range(1, width):
            should, should_not = (x[inverted_bits[:, t], t] for x in changed[:2])
            yield SteeringScore.from_changes("carry", site, t, should, should_not)
        flips = np.concatenate(changed[2:])  # (2 N, m)
        for component, bits in stack.shifted.items():
            decided = (bits >= 0) & np.tile(stack.steered, (2, 1))
            should_change = bits != np.tile(answer, (2, 1))
            for t in range(width):
                should, should_not = (flips[decided[:, t] & x[:, t], t] for x in (should_change, ~should_change))
                yield SteeringScore.from_changes(component, site, t, should, should_not)


def _steps(weights: Array, direction: Tensor) -> Tensor:
    """Sum over the bits of weights (N, m) times directions (m, T, C) -> (N, T, C)."""
    return torch.einsum("nm,mtc->ntc", torch.from_numpy(weights).double(), direction)


def _informedness(should: Array, should_not: Array) -> float:
    return _mean_or_zero(should) - _mean_or_zero(should_not)


def _mean_or_zero(changed: Array) -> float:
    return float(changed.mean()) if len(changed) else 0.0
