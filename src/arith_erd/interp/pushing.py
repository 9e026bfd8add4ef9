"""Push a position further along the direction of its carry than any right answer takes it. Does it count?

On the way from a_t = b_t = 0 without a carry, an empty column, along the carry's direction, a position whose total is
read as a number goes through the totals 0, 1, 2 and 3. Its answer turns from 0 to 1 to 0 to 1 and stays: three turns,
also if the direction of one carry is not quite one unit long. One whose carry has yet to be cut to two states turns
once. The stage matters: `graded_carry` turns once before its carry is cut, and three times after.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..bits import ZERO, Array
from ..models.decoding import shift_right
from ..models.network import Network
from ..tasks import Add
from .stages import Stages, State
from .steering import Sample, Slopes

WAY = np.arange(0, 4.25, 0.25)
"""Carries added to an empty column, one after the other."""
MOST = 4


@dataclass(frozen=True)
class Pushed:
    """Bit t of the answer after pushes behind one stage.

    Attributes:
        position: t.
        further: share of answers that change if a carry of 1 moves to 2, and one of 0 to -1. Columns with a total of 3
            or 0 would leave the numbers there are; they count in ``beyond``.
        beyond: the same share of those.
        turns: of the empty columns, the share whose answer turns 0, 1, 2, 3, and 4 or more times along `WAY`.
        at_random: the share whose answer turns at all along a random direction of the same length.
    """

    stage: str
    position: int
    further: float
    beyond: float
    turns: tuple[float, ...]
    at_random: float

    def rows(self) -> Iterator[tuple[str, str, str, float]]:
        """``component, stage, position, value``."""
        values = {"pushed_further": self.further, "pushed_beyond": self.beyond}
        values |= {f"turns_{number}": share for number, share in enumerate(self.turns)}
        values["turns_at_random"] = self.at_random
        for component, value in values.items():
            yield component, self.stage, str(self.position), value


@dataclass(frozen=True)
class _Runs:
    """Runs of N pairs, ready to be continued with position t of the answer moved behind a stage.

    Attributes:
        direction: (C,), of one carry.
    """

    stages: Stages
    stage: str
    state: State
    t: int
    direction: Tensor

    def some(self, chosen: Array) -> "_Runs":
        """Those that a mask (N,) chooses."""
        keep = torch.from_numpy(chosen)
        memory = None if self.state.memory is None else self.state.memory[keep]
        return replace(self, state=State(self.state.x[keep], memory, self.state.answer_in[keep]))

    def turns(self, direction: Tensor) -> Array:
        """How often bit t (N,) turns along `WAY` in a direction (C,)."""
        along = replace(self, direction=direction)
        bits = np.stack([along.bits(np.full(len(self.state.x), step)) for step in WAY])
        return (bits[1:] != bits[:-1]).sum(axis=0)

    def bits(self, carries: np.ndarray) -> Array:
        """Bit t (N,) with the position moved by so many carries (N,)."""
        x = self.state.x.clone()
        x[:, self.t - self.state.answer_in.shape[1]] += (torch.from_numpy(carries)[:, None] * self.direction).to(x)
        tokens = self.stages.answers(self.stage, replace(self.state, x=x))
        return tokens[:, self.t].numpy() - ZERO


@torch.no_grad()
def pushes(
    network: Network, task: Add, at: Mapping[int, str], pairs: int = 512, fitted: int = 512, seed: int = 0
) -> Iterator[Pushed]:
    """Push each bit behind its stage.

    Args:
        network: in evaluation mode.
        task: addition, with answers least significant bit first.
        at: bit t -> a stage of the decoder.
        pairs: number of pairs to push.
        fitted: number of other pairs, on which the directions are fitted (`steering.Slopes`).
        seed: of both samples.
    """
    rng = np.random.default_rng([seed, 2])
    stages = Stages(network)
    fit, moved = Sample.draw(task, fitted, rng), Sample.draw(task, pairs, rng)
    slopes = Slopes(task, fit)
    fit_states, _ = stages.run(fit.prompt, shift_right(fit.completion))
    states, _ = stages.run(moved.prompt, shift_right(moved.completion))
    for t, stage in at.items():
        x = fit_states[stage].x[:, stages.positions(stage, fit_states[stage])]
        runs = _Runs(stages, stage, states[stage], t, slopes.of(stage, x)[0][t, t])
        carry = moved.values["carry"][:, t]
        total = moved.values["a_bit"][:, t] + moved.values["b_bit"][:, t] + carry
        end = np.where(carry == 1, total == 3, total == 0)
        changed = runs.bits(2 * carry - 1) != runs.bits(0 * carry)
        empty = runs.some(total == 0)
        turns = np.minimum(empty.turns(runs.direction), MOST)
        shares = tuple(float((turns == number).mean()) for number in range(MOST + 1))
        other = torch.from_numpy(rng.standard_normal(len(runs.direction)))
        at_random = float((empty.turns(other / other.norm() * runs.direction.norm()) > 0).mean())
        yield Pushed(stage, t, float(changed[~end].mean()), float(changed[end].mean()), shares, at_random)
