"""Move a network along the direction of a variable. Does its answer follow?

The direction of a variable at a stage and a position is the least-squares slope of the residual stream on it, with
other variables held fixed: x ~ slope v + slopes of the rest. Two variables are tried, each against a control::

    carry    invert the carry into bit t: c -> 1 - c. Bit t should change.
             Control: after a move of the same length in a random direction it should not.
    value    move the sum by delta. Bit t should become bit t of a + b + delta, so one direction must both set and
             clear it. Control: where bit t of a + b + delta is the old one, it should not change.

Each is scored by *informedness*: the share of answers that change where they should, less the share of those that
change where they should not. It is 1 for a network that follows, and 0 for one that ignores the move, changes at random
or always. A carry or a sum that no later weight reads gives 0, however well it can be decoded.

A move changes answer positions that are four apart, or all prompt positions at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..bits import ZERO, Array, from_bits
from ..models.decoding import shift_right
from ..models.network import Network
from ..tasks import Add
from .stages import Stages

APART = 4  # positions of the answer that are moved together
TESTS = ("carry", "value", "remainder")


@dataclass(frozen=True)
class Score:
    """How well bit t follows moves at one stage.

    Attributes:
        position: t.
        test: ``carry``; ``value`` and ``remainder``, which predict a + b + delta's bit and the parity of
            round((a + b + delta - p) / 2^t), with p the number that the prefix spells.
        n: answers.
        should, should_not: shares that change where the test predicts a change, and where it predicts none.
        halves: informedness on either half of the pairs.
    """

    stage: str
    position: int
    test: str
    n: int
    should: float
    should_not: float
    halves: tuple[float, float]

    @property
    def informedness(self) -> float:
        """From -1 to 1."""
        return self.should - self.should_not


@dataclass(frozen=True)
class Sample:
    """Pairs with their variables, bit by bit (N, m), and the tensors that a network takes."""

    a: Array
    b: Array
    values: dict[str, Array]
    prompt: Tensor
    completion: Tensor

    @staticmethod
    def draw(task: Add, count: int, rng: np.random.Generator) -> "Sample":
        """Random pairs with replacement."""
        a, b = rng.integers(0, 2**task.bits, (2, count))
        examples = task.examples(a, b)
        bits = examples.completion - ZERO
        before = np.pad(bits[:, :-1], [(0, 0), (1, 0)])
        spelt = np.stack([from_bits(bits[:, :t]) for t in range(task.width)], axis=1)
        values = task.variables(a, b) | {"answer": bits, "token": before, "prefix": spelt}
        return Sample(a, b, values, torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion))


def _regressors(sample: Sample, t: int, own: Array | None = None) -> Tensor:
    """Variables (N, k) that the stream may hold about bit t: the carry, the sum, then those held fixed.

    Variables that are linear in the others are left out. With seven bits: at t = 1, a_0 + b_0 = r_0 + 2 c_1; at t = 6
    the sum is p + 64 (a_6 + b_6 + c_6); bit 7 is its own carry.
    """
    values = sample.values
    top = values["answer"].shape[1] - 1
    columns = [values["carry"][:, t], values["sum"][:, t] / 2.0**top, values["a_bit"][:, t], values["b_bit"][:, t]]
    if t:
        columns += [values[name][:, t - 1] for name in ("a_bit", "b_bit")]
    if t > 1:
        columns.append(values["token"][:, t])
    if t < top:
        columns.append(values["answer"][:, t])
    if 1 < t < top - 1:
        columns.append(values["prefix"][:, t] / 2.0**t)
    columns = columns if own is None else [*columns, *own.T]
    return torch.from_numpy(np.stack([np.ones(len(sample.a)), *columns], axis=1).astype(np.float64))


def _own_bits(task: Add, sample: Sample, place: int) -> Array:
    """Both operand bits (N, 2) at the index of a prompt position; for the operator those of the highest index."""
    index = place % (task.bits + 1) if place != task.bits else task.bits - 1
    index = index if task.prompt_order == "reverse" else task.bits - 1 - index
    return np.stack([sample.values["a_bit"][:, index], sample.values["b_bit"][:, index]], axis=1)


class Slopes:
    """Least-squares slopes of streams on the carry into each bit and on the sum, from one sample of pairs."""

    def __init__(self, task: Add, sample: Sample) -> None:
        self.width = task.width
        unit = 2.0 ** (1 - task.width)
        self.answer, self.prompt = [], []  # solvers: (2, N) for each t; (m + 1, N) for each prompt position
        for t in range(task.width):
            self.answer.append(_solver(_regressors(sample, t))[1:3] * torch.tensor([[1.0], [unit]]))
        sums = np.stack([np.ones(len(sample.a)), sample.values["sum"][:, 0] * unit], axis=1)
        for place in range(task.prompt_length):
            own = _own_bits(task, sample, place)
            carries = [_solver(_regressors(sample, t, own))[1] for t in range(task.width)]
            value = _solver(torch.from_numpy(np.concatenate([sums, own], axis=1)))[1] * unit
            self.prompt.append(torch.stack([*carries, value]))

    def of(self, stage: str, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes on the carry and on one unit of the sum, for each bit t: (m, T, C) each.

        Slopes are zero where a position is not moved for bit t: in the decoder at all positions but t.

        Args:
            x: the sample's stream after the stage (N, T, C).
        """
        x = x.double()
        if stage.startswith("enc."):
            slopes = torch.stack([solver @ x[:, n] for n, solver in enumerate(self.prompt)], dim=1)  # (m + 1, T, C)
            return slopes[:-1], slopes[-1:].expand(self.width, -1, -1)
        carry, value = torch.zeros(2, self.width, *x.shape[1:], dtype=torch.float64)
        for t, solver in enumerate(self.answer):
            carry[t, t], value[t, t] = solver @ x[:, t]
        return carry, value


def _solver(regressors: Tensor) -> Tensor:
    """Regressors (N, k) -> solver (k, N): slopes of a stream are solver @ stream; collinear regressors share one."""
    return torch.linalg.pinv(regressors, rcond=1e-9)


def draw_shifts(task: Add, sample: Sample, rng: np.random.Generator, largest: int = 64) -> Array:
    """Shifts (N, m) of the sum for each pair and bit: 1 to ``largest``, up or down, within the range of sums."""
    total = sample.values["sum"]
    size = np.minimum(largest, 2 ** (task.bits - 1))
    delta = rng.integers(1, size + 1, total.shape) * rng.choice([-1, 1], total.shape)
    outside = (total + delta < 0) | (total + delta > 2 ** (task.bits + 1) - 2)
    return np.where(outside, -delta, delta)


def moved_bits(sample: Sample, delta: Array, test: str) -> Array:
    """Bit t of a machine whose sum moves by delta[:, t] (N, m); -1 where a remainder is nearly half-integral."""
    t = np.arange(delta.shape[1])
    total = sample.values["sum"] + delta
    if test == "value":
        return (total >> t) & 1
    rest = (total - sample.values["prefix"]) / 2.0**t
    unclear = np.abs(rest - np.floor(rest) - 0.5) < 0.1
    return np.where(unclear, -1, np.floor(rest + 0.5).astype(np.int64) & 1)


@torch.no_grad()
def steer(network: Network, task: Add, pairs: int = 512, fitted: int = 512, seed: int = 0) -> Iterator[Score]:
    """Scores of all stages, positions and tests.

    Args:
        network: in evaluation mode.
        task: addition, with answers least significant bit first.
        pairs: number of pairs to move, each at a quarter of the positions.
        fitted: number of other pairs, on which the directions are fitted.
        seed: of both samples, the shifts and the random directions.
    """
    rng = np.random.default_rng(seed)
    stages = Stages(network)
    fit, moved = Sample.draw(task, fitted, rng), Sample.draw(task, pairs, rng)
    slopes = Slopes(task, fit)
    fit_states, _ = stages.run(fit.prompt, shift_right(fit.completion))
    states, logits = stages.run(moved.prompt, shift_right(moved.completion))
    before = logits.argmax(-1).numpy()
    group = np.arange(pairs)[:, None] % APART == np.arange(task.width) % APART  # (N, m): bits whose carry is moved
    deltas = [draw_shifts(task, moved, rng) for _ in range(2)]
    for stage in stages.names:
        where = stages.positions(stage, states[stage])
        x = states[stage].x
        carry, value = slopes.of(stage, fit_states[stage].x[:, where])
        tokens = []
        for change in _moves(stage, carry, value, moved, deltas, group, rng):
            y = x.clone()
            y[:, where] += change.to(x.dtype)
            state = replace(states[stage], x=y)
            tokens.append(stages.answers(stage, state).numpy() != before)
        inverted, random, *dosed = tokens
        everywhere = np.ones_like(group) if stage.startswith("enc.") else group
        for t in range(task.width):
            if t:
                rows = group[:, t]
                yield _score(stage, t, "carry", inverted[rows, t], random[rows, t])
            rows = everywhere[:, t]
            for test in ("value", "remainder"):
                changed, expected = [], []
                for delta, seen in zip(deltas, dosed, strict=True):
                    shift = delta if not stage.startswith("enc.") else np.repeat(delta[:, :1], task.width, axis=1)
                    bits = moved_bits(moved, shift, test)[:, t]
                    use = rows & (bits >= 0)
                    changed.append(seen[use, t])
                    expected.append(bits[use] != moved.values["answer"][use, t])
                flips, wanted = np.concatenate(changed), np.concatenate(expected)
                yield _score(stage, t, test, flips[wanted], flips[~wanted])


def _moves(stage: str, carry: Tensor, value: Tensor, sample: Sample, deltas: list[Array], group: Array,
           rng: np.random.Generator) -> Iterator[Tensor]:  # fmt: skip
    """Changes of the stream (N, T, C): inverted carries, random directions of the same length, two moves of the sum."""
    chosen = torch.from_numpy(group).double()  # (N, m)
    inverted = torch.einsum("nm,mtc->ntc", torch.from_numpy(1.0 - 2 * sample.values["carry"]) * chosen, carry)
    yield inverted
    noise = torch.from_numpy(rng.standard_normal(inverted.shape))
    yield noise / noise.norm(dim=-1, keepdim=True) * inverted.norm(dim=-1, keepdim=True)
    for delta in deltas:
        if stage.startswith("enc."):
            yield torch.einsum("n,tc->ntc", torch.from_numpy(delta[:, 0]).double(), value[0])
        else:
            yield torch.einsum("nm,mtc->ntc", torch.from_numpy(delta) * chosen, value)


def _score(stage: str, t: int, test: str, should: Array, should_not: Array) -> Score:
    halves = tuple(_share(should[i::2]) - _share(should_not[i::2]) for i in range(2))
    n = len(should) + len(should_not)
    return Score(stage, t, test, n, _share(should), _share(should_not), (halves[0], halves[1]))


def _share(changed: Array) -> float:
    return float(changed.mean()) if len(changed) else 0.0
