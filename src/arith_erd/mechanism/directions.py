"""Steer a network along the direction of a variable. Does its answer follow?

The direction of a variable at a site and a position is the least-squares slope of the residual stream on it, with other
variables held fixed. Two are tried, each against a control::

    carry    invert the carry into bit t: c -> 1 - c. Bit t should change.
             Control: after a step of the same length in a random direction it should not.
    value    add delta to the sum. Bit t should become bit t of a + b + delta.
             Control: where bit t of a + b + delta is the old one, it should not change.

Each is scored by *informedness*: the share of answers that change where they should, less the share of those that
change where they should not: 1 for a network that follows, 0 for one that ignores the step, or changes at random.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..bits import ZERO, Array, from_bits
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.interventions import Steer
from ..interp.resumed import Resumed
from ..interp.sites import residual_stream
from .prefixes import Sample

APART = 4  # positions of the answer that are steered together
CARRIES = np.arange(0, 4.25, 0.25)
"""Carries that `steer_beyond` adds to a column with a total of 0, one after the other."""
MOST_FLIPS = 4


@dataclass(frozen=True)
class Score:
    """How well bit t, t = ``position``, follows steering at one site, of ``n`` answers.

    ``test`` is ``carry``; ``value`` or ``remainder``, which predict a + b + delta's bit and the parity of
    round((a + b + delta - p) / 2^t), with p the number that the prefix spells. ``should`` and ``should_not`` are the
    shares that change where the test predicts a change, and where not; ``halves``, informedness on either half.
    """

    site: str
    position: int
    test: str
    n: int
    should: float
    should_not: float
    halves: tuple[float, float]


@dataclass(frozen=True)
class BeyondRange:
    """Bit t of the answer, t = ``position``, steered at one site.

    ``carry`` is the share of answers that change if a carry of 1 becomes 2, and one of 0 becomes -1, where the column's
    total stays between 0 and 3; ``total`` the same share where it leaves that range. ``flips``: of the columns with a
    total of 0, the share whose answer flips 0, 1, 2, 3, and 4 or more times along `CARRIES`; a total that is read as a
    number flips three times, a carry of two states once. ``random``: the share that flips along a random direction.
    """

    site: str
    position: int
    carry: float
    total: float
    flips: tuple[float, ...]
    random: float


def _regressors(sample: Sample, t: int, own: Array | None = None) -> Tensor:
    """Variables (N, k) that the stream may hold about bit t: 1, the carry, the sum, then those held fixed.

    Variables that are linear in the others are left out: at t = 1, a_0 + b_0 = r_0 + 2 c_1; bit 7 is its own carry.
    """
    values, answer = sample.values, sample.values["answer"]
    top = answer.shape[1] - 1
    columns = [values["carry"][:, t], values["sum"] / 2.0**top, values["a_bit"][:, t], values["b_bit"][:, t]]
    if t:
        columns += [values[name][:, t - 1] for name in ("a_bit", "b_bit")]
    if t > 1:
        columns.append(answer[:, t - 1])
    if t < top:
        columns.append(answer[:, t])
    if 1 < t < top - 1:
        columns.append(from_bits(answer[:, :t]) / 2.0**t)
    columns = columns if own is None else [*columns, *own.T]
    return torch.from_numpy(np.stack([np.ones(len(sample)), *columns], axis=1).astype(np.float64))


def _own_bits(sample: Sample, place: int) -> Array:
    """Both operand bits (N, 2) at the index of a prompt position; for the operator those of the highest index."""
    task = sample.task
    index = place % (task.bits + 1) if place != task.bits else task.bits - 1
    index = index if task.prompt_order == "reverse" else task.bits - 1 - index
    return np.stack([sample.values["a_bit"][:, index], sample.values["b_bit"][:, index]], axis=1)


class Slopes:
    """Least-squares slopes of the residual stream on the carry into each bit and on the sum, from one sample."""

    def __init__(self, sample: Sample) -> None:
        self.sample, self.width = sample, sample.task.width
        self.unit = 2.0 ** (1 - self.width)

    @cached_property
    def answer(self) -> list[Tensor]:
        """Solvers of the carry and of the sum (2, N) for each position t of the answer."""
        units = torch.tensor([[1.0], [self.unit]])
        return [_solver(_regressors(self.sample, t))[1:3] * units for t in range(self.width)]

    @cached_property
    def prompt(self) -> list[Tensor]:
        """Solvers of the m carries and of the sum (m + 1, N) for each position of the prompt."""
        sums = np.stack([np.ones(len(self.sample)), self.sample.values["sum"] * self.unit], axis=1)
        solvers = []
        for place in range(self.sample.task.prompt_length):
            own = _own_bits(self.sample, place)
            carries = [_solver(_regressors(self.sample, t, own))[1] for t in range(self.width)]
            value = _solver(torch.from_numpy(np.concatenate([sums, own], axis=1)))[1] * self.unit
            solvers.append(torch.stack([*carries, value]))
        return solvers

    def of(self, site: str, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes on the carry and on one unit of the sum, for each bit t: (m, T, C) each; of activations x (N, T, C).

        They are zero where a position is not steered for bit t: in the decoder at all positions but t.
        """
        x = x.cpu().double()
        if site.startswith("enc."):
            slopes = torch.stack([solver @ x[:, n] for n, solver in enumerate(self.prompt)], dim=1)  # (m + 1, T, C)
            return slopes[:-1], slopes[-1:].expand(self.width, -1, -1)
        carry, value = torch.zeros(2, self.width, *x.shape[1:], dtype=torch.float64)
        for t, solver in enumerate(self.answer):
            carry[t, t], value[t, t] = solver @ x[:, t]
        return carry, value


def _solver(regressors: Tensor) -> Tensor:
    """Regressors (N, k) -> solver (k, N): slopes of a stream are solver @ stream; collinear regressors share one."""
    return torch.linalg.pinv(regressors, rcond=1e-9)


def draw_shifts(sample: Sample, rng: np.random.Generator) -> Array:
    """Shifts (N, m) of the sum for each example and bit: 1 to 64, up or down, within the range of sums."""
    total, bits, shape = sample.values["sum"][:, None], sample.task.bits, sample.values["answer"].shape
    delta = rng.integers(1, min(64, 2 ** (bits - 1)) + 1, shape) * rng.choice([-1, 1], shape)
    outside = (total + delta < 0) | (total + delta > 2 ** (bits + 1) - 2)
    return np.where(outside, -delta, delta)


def shifted_bits(sample: Sample, delta: Array, test: str) -> Array:
    """Bit t of a machine whose sum grows by delta[:, t] (N, m); -1 where a remainder is nearly half-integral."""
    t = np.arange(delta.shape[1])
    total = sample.values["sum"][:, None] + delta
    if test == "value":
        return (total >> t) & 1
    prefix = np.stack([from_bits(sample.values["answer"][:, :i]) for i in t], axis=1)
    rest = (total - prefix) / 2.0**t
    unclear = np.abs(rest - np.floor(rest) - 0.5) < 0.1
    return np.where(unclear, -1, np.floor(rest + 0.5).astype(np.int64) & 1)


@torch.no_grad()
def steer(model: Hooked, count: int = 512, fitted: int = 512, seed: int = 0) -> Iterator[Score]:
    """Scores of all sites of the residual stream, positions and tests, of a network that adds.

    A step changes answer positions that are four apart, or all prompt positions at once. ``count`` examples are
    steered, each at a quarter of the positions, along directions fitted on ``fitted`` others.
    """
    rng, task, adder = np.random.default_rng(seed), model.task, CausalModel(model.task)
    fit, sample = Sample.draw(adder, fitted, rng), Sample.draw(adder, count, rng)
    slopes, sites = Slopes(fit), residual_stream(model.sites)
    _, cache = model.run_with_cache(fit.examples, sites)
    before = model.run(sample.examples).argmax(dim=-1)
    group = np.arange(count)[:, None] % APART == np.arange(task.width) % APART  # (N, m): bits whose carry is inverted
    deltas = [draw_shifts(sample, rng) for _ in range(2)]
    for site in sites:
        resumed, encoder = model.resume_from(site, sample.examples), site.startswith("enc.")
        steps = _steps(site, *slopes.of(site, cache[site]), sample, deltas, group, rng)
        flips = [(resumed([Steer(site, None, step)]).argmax(dim=-1) != before).cpu().numpy() for step in steps]
        inverted, random, *shifted = flips
        for t in range(task.width):
            rows = group[:, t]
            if t:
                yield _score(site, t, "carry", inverted[rows, t], random[rows, t])
            for test in ("value", "remainder"):
                changed, expected = [], []
                for delta, flip in zip(deltas, shifted, strict=True):
                    shift = np.repeat(delta[:, :1], task.width, axis=1) if encoder else delta
                    bits = shifted_bits(sample, shift, test)[:, t]
                    use = (rows | encoder) & (bits >= 0)
                    changed.append(flip[use, t])
                    expected.append(bits[use] != sample.values["answer"][use, t])
                found, wanted = np.concatenate(changed), np.concatenate(expected)
                yield _score(site, t, test, found[wanted], found[~wanted])


def _steps(site: str, carry: Tensor, value: Tensor, sample: Sample, deltas: list[Array], group: Array,
           rng: np.random.Generator) -> Iterator[Tensor]:  # fmt: skip
    """Steps (N, T, C): inverted carries, random directions of the same length, two shifts of the sum."""
    chosen = torch.from_numpy(group).double()  # (N, m)
    inverted = torch.einsum("nm,mtc->ntc", torch.from_numpy(1.0 - 2 * sample.values["carry"]) * chosen, carry)
    yield inverted
    noise = torch.from_numpy(rng.standard_normal(inverted.shape))
    yield noise / noise.norm(dim=-1, keepdim=True) * inverted.norm(dim=-1, keepdim=True)
    for delta in deltas:
        if site.startswith("enc."):
            yield torch.einsum("n,tc->ntc", torch.from_numpy(delta[:, 0]).double(), value[0])
        else:
            yield torch.einsum("nm,mtc->ntc", torch.from_numpy(delta) * chosen, value)


def _score(site: str, t: int, test: str, should: Array, should_not: Array) -> Score:
    halves = tuple(_share(should[i::2]) - _share(should_not[i::2]) for i in range(2))
    n = len(should) + len(should_not)
    return Score(site, t, test, n, _share(should), _share(should_not), (halves[0], halves[1]))


def _share(changed: np.ndarray) -> float:
    return float(changed.mean()) if len(changed) else 0.0


@torch.no_grad()
def steer_beyond(
    model: Hooked, at: Mapping[int, str], count: int = 512, fitted: int = 512, seed: int = 0
) -> Iterator[BeyondRange]:
    """Steer each bit t of ``at`` at its site of the decoder, beyond the carries of right answers."""
    rng, adder = np.random.default_rng([seed, 2]), CausalModel(model.task)
    fit, sample = Sample.draw(adder, fitted, rng), Sample.draw(adder, count, rng)
    slopes = Slopes(fit)
    _, cache = model.run_with_cache(fit.examples, list(dict.fromkeys(at.values())))
    for t, site in at.items():
        direction = slopes.of(site, cache[site])[0][t, t]  # (C,), of one carry
        carry = sample.values["carry"][:, t]
        total = sample.values["a_bit"][:, t] + sample.values["b_bit"][:, t] + carry
        leaves = np.where(carry == 1, total == 3, total == 0)
        resumed = model.resume_from(site, sample.examples)
        changed = _bits(resumed, t, 2 * carry - 1, direction) != _bits(resumed, t, 0 * carry, direction)
        empty = Sample.of(adder, sample.examples.operands[total == 0])
        resumed = model.resume_from(site, empty.examples)
        flips = np.minimum(_flips(resumed, t, len(empty), direction), MOST_FLIPS)
        other = torch.from_numpy(rng.standard_normal(len(direction)))
        random = _flips(resumed, t, len(empty), other / other.norm() * direction.norm())
        shares = tuple(_share(flips == number) for number in range(MOST_FLIPS + 1))
        yield BeyondRange(site, t, _share(changed[~leaves]), _share(changed[leaves]), shares, _share(random > 0))


def _bits(resumed: Resumed, t: int, carries: np.ndarray, direction: Tensor) -> Array:
    """Bit t (N,) after so many carries (N,) at position t."""
    step = torch.from_numpy(carries)[:, None] * direction
    found: Array = resumed([Steer(resumed.site, t, step)])[:, t].argmax(dim=-1).cpu().numpy() - ZERO
    return found


def _flips(resumed: Resumed, t: int, count: int, direction: Tensor) -> Array:
    bits = np.stack([_bits(resumed, t, np.full(count, number), direction) for number in CARRIES])
    found: Array = (bits[1:] != bits[:-1]).sum(axis=0)
    return found
