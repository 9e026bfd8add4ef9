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

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..config.causal_models import CausalModelSpec, build_causal_model
from ..digits import ONE, ZERO, Array, from_digits
from ..errors import bad_value
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.interventions import Intervention, Replace, Steer
from ..interp.sites import residual_stream
from ..interp.slopes import answer_slope_estimators, regressors, slope_estimator
from ..tasks import Examples, Task
from .card import USER_MODEL, CardRow
from .place_value import PREFIX, ColumnSums, PrefixedExamples, predict_by_rule

PREFIX_BATCH_SIZE = 256
PREFIXES_PER_EXAMPLE = 2  # random prefixes for each example


class PrefixResponse(NamedTuple):
    """The likeliest tokens at a position after its prefix is changed."""

    position: int
    change: str
    tokens: Array  # (N,)
    prefix: Array | None  # bits (N, t); None for ``mean_ablation``


STORED_SUMS = {"value": "value", "value_of_remainder": "remainder"}  # component -> the sum that it assumes is stored
STEERING_COMPONENTS = ("carry", *STORED_SUMS)
STEERING_STRIDE = 4  # positions of the answer that are steered together


def run_with_prefixes(model: Hooked, examples: Examples, seed: int = 0) -> tuple[Array, list[PrefixResponse]]:
    """The likeliest tokens (N, m) after right prefixes, and each position's responses to changes of its prefix."""
    prompt, answer_in = model.inputs(examples)
    width = answer_in.shape[1]
    bit_tokens = torch.tensor([[ZERO], [ONE]], device=prompt.device).expand(2, width)
    _, cache = model.run_with_cache((prompt[:1].expand(2, -1), bit_tokens), ["dec.embed"])
    mean = cache["dec.embed"].mean(dim=0)  # (m, C)

    def run(answer_in: Tensor, *interventions: Intervention) -> Array:
        return np.asarray(
            model.run((prompt, answer_in), interventions, batch_size=PREFIX_BATCH_SIZE).argmax(dim=-1).cpu()
        )

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


def predict_bits(
    column_sums: ColumnSums, examples: Examples, prefix: Array, user_model: CausalModel | None = None
) -> dict[str, Array]:
    """Hypothesis -> bit t (N,) that it predicts after the prefixes (N, t); -1 for a tie.

    ``prompt_only`` ignores the prefix, ``local_carry`` is `PrefixCarry`, ``user_model`` is the user's causal model. The
    others are rules that round a number: they tie where it is half-integral, as after a single inverted r_(t-1). A
    multiplication has ``prompt_only`` and ``remainder`` only.
    """
    t = prefix.shape[1]
    inputs = PrefixedExamples(column_sums, t, examples.a, examples.b, from_digits(prefix))
    names = ("remainder", "graded_carry", "local_remainder") if column_sums.is_addition else ("remainder",)
    expected = {name: np.where(inputs.c % 1 == 0.5, -1, predict_by_rule(name, inputs)) for name in names}
    expected["prompt_only"] = examples.answer >> t & 1
    if column_sums.is_addition:
        expected["local_carry"] = inputs.predict_by(column_sums.prefix_carry)
    if user_model is not None:
        expected[USER_MODEL] = inputs.predict_by(user_model)
    return expected


def build_prefix_model(task: Task, spec: CausalModelSpec, key: str) -> CausalModel | None:
    """Build the causal model of a key, None for None; a `UserError` if it lacks the variable ``prefix``."""
    if spec is None:
        return None
    model = build_causal_model(task, spec, key)
    if not np.array_equal(model.table.get(PREFIX, []), model.examples.answer):
        accepted = f"a causal model with the variable {PREFIX}, the number that the answer's tokens spell"
        raise bad_value(key, spec, accepted)
    return model


# Steering


def steering_estimators(causal_model: CausalModel, values: dict[str, Array], encoder: bool) -> Tensor:
    """Matrices (T, 2, m, N), one for each position of a stack, that fit slopes to activations x (N, C) there.

    The product with x, (2, m, C), is the slopes on the carry into each bit t, and on one unit of the sum. They are zero
    where a position is not steered for bit t: in the decoder at all positions but t. In the encoder all bits share one
    slope on the sum, stored as that of bit 0.
    """
    if not encoder:
        return torch.diag_embed(answer_slope_estimators(causal_model, values).permute(2, 1, 0)).permute(3, 1, 2, 0)
    task, count = causal_model.task, len(values["sum"])
    unit = 2.0 ** (1 - task.width)
    slope_estimators = torch.zeros(task.prompt_length, 2, task.width, count, dtype=torch.float64)
    for place in range(task.prompt_length):
        index = task.prompt_places[place][1]
        if index < 0:  # at the operator, the operand bits next to it on the left
            index = task.prompt_places[place - 1][1]
        own_bits = [values["a_bit"][:, index], values["b_bit"][:, index]]
        for t in range(task.width):
            slope_estimators[place, 0, t] = slope_estimator([*regressors(causal_model, values, t), *own_bits])[1]
        slope_estimators[place, 1, 0] = slope_estimator([np.ones(count), values["sum"] * unit, *own_bits])[1] * unit
    return slope_estimators


def sample_shifts(sums: Array, bits: int, rng: np.random.Generator) -> Array:
    """Shifts (N, m) of each sum (N,) for each bit: 1 to 64, up or down, within the range of sums."""
    total, shape = sums[:, None], (len(sums), bits + 1)
    delta = rng.integers(1, min(64, 2 ** (bits - 1)) + 1, shape) * rng.choice([-1, 1], shape)
    outside = (total + delta < 0) | (total + delta > 2 ** (bits + 1) - 2)
    return np.where(outside, -delta, delta)


def shifted_bits(sums: Array, delta: Array, stored: str) -> Array:
    """Bit t (N, m) after the stored sum (N,) is increased by delta[:, t], (N, m).

    If ``stored`` is ``value``, it is bit t of a + b + delta. If it is ``remainder``, it is the parity of
    round((a + b + delta - p) / 2^t), with p the number that the prefix spells; -1 where that is nearly half-integral.
    """
    t = np.arange(delta.shape[1])
    total = sums[:, None] + delta
    if stored == "value":
        return (total >> t) & 1
    remainder = (total - sums[:, None] % 2**t) / 2.0**t
    unclear = np.abs(remainder - np.floor(remainder) - 0.5) < 0.1
    return np.where(unclear, -1, np.floor(remainder + 0.5).astype(np.int64) & 1)


def measure_steering(model: Hooked, count: int, seed: int) -> Iterator[tuple[CardRow, tuple[float, float]]]:
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
    for site in sites:
        resumed, encoder = model.resume_from(site, examples), site.startswith("enc.")
        x = cache[site].cpu().double()
        carry, value = torch.einsum("tkmn,ntc->kmtc", slope_estimators[encoder], x)  # (m, T, C)
        inverted = _steps((1 - 2 * carries) * inverted_bits, carry)  # (N, T, C)
        noise = torch.from_numpy(rng.standard_normal(inverted.shape))
        noise *= inverted.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
        shifts = [np.repeat(delta[:, :1], width, axis=1) for delta in deltas] if encoder else deltas
        steered = np.ones_like(inverted_bits) if encoder else inverted_bits
        steps = [inverted, noise, *(_steps(delta * steered, value) for delta in shifts)]
        changed = [(resumed([Steer(site, None, step)]).argmax(dim=-1) != before).cpu().numpy() for step in steps]
        for t in range(1, width):
            row, inverted_here = CardRow("steering", "carry", site, str(t)), inverted_bits[:, t]
            yield _informedness(row, *(x[inverted_here, t] for x in changed[:2]))
        flips = np.concatenate(changed[2:])  # (2 N, m)
        for component, stored in STORED_SUMS.items():
            shifted = np.concatenate([shifted_bits(examples.answer, delta, stored) for delta in shifts])
            decided, should_change = (shifted >= 0) & np.tile(steered, (2, 1)), shifted != np.tile(answer, (2, 1))
            for t in range(width):
                of_bit = (flips[decided[:, t] & which, t] for which in (should_change[:, t], ~should_change[:, t]))
                yield _informedness(CardRow("steering", component, site, str(t)), *of_bit)


def _steps(weights: Array, direction: Tensor) -> Tensor:
    """Sum over the bits of weights (N, m) times directions (m, T, C) -> (N, T, C)."""
    return torch.einsum("nm,mtc->ntc", torch.from_numpy(weights).double(), direction)


def _informedness(row: CardRow, should: Array, should_not: Array) -> tuple[CardRow, tuple[float, float]]:
    first, second = (mean_or_zero(should[i::2]) - mean_or_zero(should_not[i::2]) for i in range(2))
    return row._replace(value=mean_or_zero(should) - mean_or_zero(should_not)), (first, second)


def mean_or_zero(changed: Array) -> float:
    return float(changed.mean()) if len(changed) else 0.0
