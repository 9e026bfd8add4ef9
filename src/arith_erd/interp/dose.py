"""Directions along which a site holds a variable, and steering along them: does the answer become a + b + delta?

A *path* (S, d) says where the activations of each value lie, up to a constant. ``path[s + delta] - path[s]`` is what to
add to activations of the value s so that they stand for s + delta.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..bits import Array, from_digits, reorder
from ..models.decoding import shift_right
from .causal_model import CausalModel
from .erasure import SPREAD, Whitened, leace, whiten
from .hooked import Hooked
from .interchange import finite_cache
from .interventions import Steer

RANDOM = 5  # directions of the same length, as controls
FITTED = 4096  # examples that paths are fitted on


def doses(
    model: Hooked,
    causal_model: CausalModel,
    sites: Sequence[str],
    methods: Sequence[str],
    deltas: Sequence[int],
    sample: int,
    seed: int = 0,
    fitted: int = FITTED,
    random: int = RANDOM,
) -> Iterator[dict[str, Any]]:
    """Move all positions of a site by delta units of the value, and read the whole answer.

    The runs get the tokens of a + b + delta as their prefix: greedy decoding gives that number if and only if each of
    its tokens is the likeliest after those before it.

    Args:
        methods: ``slope``, ``leace`` (`leace_step`) or ``centroids``.
        sample: examples whose moved value is the value of some example; for centroids, of a fitted one.
        fitted: examples that paths are fitted on.
        random: moves of the same length in random directions, as controls.

    Yields:
        ``site, method, delta, n``; ``answer``: the share of answers that are a + b + delta; ``no_intervention``: the
        same of runs that are not moved; ``random``: after random moves.
    """
    task, every = causal_model.task, causal_model.examples
    chosen = np.random.default_rng(seed).choice(task.size, size=min(fitted, task.size), replace=False)
    # A centroid is known only of a value that some fitted example has; in a small task the largest may have none.
    known = np.unique(every.answer[chosen] if "centroids" in methods else every.answer)
    example_of = np.full(every.answer.max() + 1, -1)
    example_of[every.answer] = np.arange(task.size)  # any one with that answer
    prompts, completions = (torch.as_tensor(x, device=model.device) for x in (every.prompt, every.completion))
    for site, cached in finite_cache(model, causal_model.examples[chosen], sites).items():
        values = torch.as_tensor(every.answer[chosen], device=cached.device)
        paths = _paths(cached.flatten(1), values, len(example_of))
        for delta in deltas:
            possible = np.flatnonzero(np.isin(every.answer, known) & np.isin(every.answer + delta, known))
            if not len(possible):
                continue
            size = min(sample, len(possible))
            base = np.random.default_rng(seed + delta).choice(possible, size=size, replace=False)
            sums = every.answer[base]
            target = completions[example_of[sums + delta]]
            resumed = model.resume_from(site, (prompts[base], shift_right(target)))
            unmoved = _right(resumed(), target)
            for method in methods:
                step = paths[method][sums + delta] - paths[method][sums]
                steps = [step, *(_same_length(step, seed + i) for i in range(random))]
                moves = [Steer(site, None, one.view(-1, *cached.shape[1:])) for one in steps]
                moved, *controls = (_right(resumed([move]), target) for move in moves)
                measured = {"answer": moved, "no_intervention": unmoved, "random": float(np.mean(controls))}
                yield {"site": site, "method": method, "delta": delta, "n": size} | measured


def _paths(x: Tensor, values: Tensor, count: int) -> dict[str, Tensor]:
    """The paths (S, d) of values below ``count``, by method, fitted on activations x (N, d) of values (N,)."""
    white, units = whiten(x, SPREAD), torch.arange(count, dtype=torch.float64, device=x.device)[:, None]
    return {
        "slope": units * slope(white, values),
        "leace": units * leace_step(white, values),
        "centroids": centroids(x, values, count),
    }


def slope(x: Whitened, values: Tensor) -> Tensor:
    """Least squares: the change (d,) of the activation per unit of the value, ``Cov(x, s) / Var(s)``."""
    deviation = values.double() - values.double().mean()
    return x.axes @ (x.scale * (x.white.T @ deviation)) / deviation.square().sum()


def leace_step(x: Whitened, values: Tensor) -> Tensor:
    """LEACE: along the direction (d,) that it erases, until a least-squares reading of the value has moved by a unit.

    The direction is that of `slope`. The step is longer by 1 / R^2, of a linear probe of the value.
    """
    eraser = leace(x, values[:, None])
    read = x.white @ (x.scale * (x.axes.T @ eraser.right[:, 0]))  # (N,)
    deviation = values.double() - values.double().mean()
    unit = (read * deviation).mean() / read.square().mean()  # of the value in what is read
    return eraser.left[:, 0] / (unit * (eraser.left[:, 0] @ eraser.right[:, 0]))


def centroids(x: Tensor, values: Tensor, count: int) -> Tensor:
    """The mean activations (S, d) of each value below ``count``, NaN without an example; nothing linear."""
    sums = torch.zeros(count, x.shape[1], dtype=torch.float64, device=x.device)
    return sums.index_add_(0, values, x.double()) / torch.bincount(values, minlength=count)[:, None]


def solver(regressors: Sequence[npt.NDArray[Any]]) -> Tensor:
    """Regressors, k of (N,) -> solver (k, N): a stream's slopes are solver @ stream; collinear regressors share one."""
    return torch.linalg.pinv(torch.from_numpy(np.stack(regressors, axis=1).astype(np.float64)), rcond=1e-9)


def regressors(model: CausalModel, values: Mapping[str, Array], t: int) -> list[npt.NDArray[Any]]:
    """Variables that the stream may hold about digit t, (N,) each: 1, the carry, the answer, then those held fixed.

    Variables that are linear in the others are left out: at t = 1, a_0 + b_0 = r_0 + 2 c_1; the highest digit of a sum
    is its own carry. Only some tasks have a carry. The answer counts in units of its highest digit.
    """
    base, top, digits = model.task.base, model.task.width - 1, model.answers({**values})
    lower_first = model.task.completion_order == "reverse"
    columns: list[npt.NDArray[Any]] = [np.ones(len(digits))]
    columns += [values["carry"][:, t]] if "carry" in values else []
    columns += [from_digits(digits, base) / base**top]
    columns += [values[root][:, place] for place in (t, t - 1) for root in model.roots if place >= 0]
    columns += [digits[:, t - 1]] if lower_first and t > 1 else []
    columns += [digits[:, t]] if t < top else []
    columns += [from_digits(digits[:, :t], base) / base**t] if lower_first and 1 < t < top - 1 else []
    return columns


def answer_solvers(model: CausalModel, values: Mapping[str, Array]) -> Tensor:
    """Solvers (m, k, N) of each answer position: what one carry into its digit adds, and one unit of the answer.

    Without the first, k = 1, for a task without a carry.
    """
    task, wanted = model.task, ["carry", "answer"] if "carry" in values else ["answer"]
    digits = reorder(np.arange(task.width), task.completion_order)
    solvers = torch.stack([solver(regressors(model, values, t))[1 : 1 + len(wanted)] for t in digits])
    solvers[:, -1] /= task.base ** (task.width - 1)  # regressors count it in units of its highest digit
    return solvers


def _same_length(step: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(step.shape[1], generator=generator, dtype=torch.float64).to(step)
    return step.norm(dim=1, keepdim=True) * random / random.norm()


def _right(logits: Tensor, target: Tensor) -> float:
    """The share of whole answers that are the target's tokens (n, m)."""
    return float((logits.argmax(-1) == target).all(dim=1).double().mean())
