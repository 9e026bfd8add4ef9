"""Steer activations along a value: does the answer become a + b + delta, and does the value work at other positions?

A *move* is fitted on activations x (N, d) of examples with the values s (N,): ``move(s, delta) -> (n, d)`` is the
change to add to activations of values s so that they stand for s + delta.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..bits import Array
from ..models.decoding import shift_right
from .causal_model import CausalModel
from .das import SPREAD
from .erasure import Whitened, leace, whiten
from .hooked import Hooked
from .interventions import Interchange, Steer, Subspace
from .search import Search, SearchConfig
from .trials import Activations, balanced

Move = Callable[[Array, int], Tensor]
METHODS = ("slope", "leace", "centroids", "das")
RANDOM = 5  # directions of the same length, as controls
FITTED = 4096  # examples that moves are fitted on


def doses(
    model: Hooked,
    causal_model: CausalModel,
    sites: Sequence[str],
    methods: Sequence[str],
    deltas: Sequence[int],
    sample: int,
    seed: int = 0,
    config: SearchConfig | None = None,
    prefixes: Sequence[str] = ("target", "own"),
    fitted: int = FITTED,
    random: int = RANDOM,
) -> Iterator[dict[str, Any]]:
    """Move all positions of a site by delta units of the value, and read the whole answer.

    Greedy decoding gives a + b + delta if and only if each of its tokens is the likeliest after those before it. So
    with ``prefix=target`` the runs get the tokens of a + b + delta, and with ``prefix=own`` those of a + b.

    Args:
        methods: of `METHODS`.
        sample: examples, drawn from those whose moved value is the value of some example; for centroids and ``das``, of
            a fitted one.
        fitted: examples that moves are fitted on.
        random: moves of the same length in random directions, as controls.

    Yields:
        ``site, method, prefix, delta, n``; ``answer``: the share of whole answers that are a + b + delta, and
        ``tokens``, of their tokens; ``no_intervention``, ``no_intervention_tokens``: the same of runs that are not
        moved; ``random``: whole answers after random moves.
    """
    task, answers = causal_model.task, causal_model.examples.answer
    chosen = np.random.default_rng(seed).choice(task.size, size=min(fitted, task.size), replace=False)
    activations = Activations(model, causal_model, sites, chosen)
    values = torch.as_tensor(answers[chosen], device=model.device)
    search = Search(model, causal_model, sites, config, seed) if "das" in methods else None
    # A centroid is known only of a value that some fitted example has; in a small task the largest may have none.
    known = np.unique(answers[chosen] if {"centroids", "das"} & set(methods) else answers)
    example_of = np.full(answers.max() + 1, -1)
    example_of[answers] = np.arange(task.size)  # any one with that answer
    prompts, completions = (
        torch.as_tensor(x, device=model.device)
        for x in (causal_model.examples.prompt, causal_model.examples.completion)
    )
    for site in sites:
        shape = activations.x[site].shape[1:]
        x = activations.flat(site, chosen)
        white, between = whiten(x, SPREAD), centroids(x, values)
        moves = {"slope": slope(white, values), "leace": reading(white, values), "centroids": between}
        if search:
            moves["das"] = _within(search.best(site, None, causal_model.value, (1, 2)), between)
        for delta in deltas:
            possible = np.flatnonzero(np.isin(answers, known) & np.isin(answers + delta, known))
            if not len(possible):
                continue
            size = min(sample, len(possible))
            base = np.random.default_rng(seed + delta).choice(possible, size=size, replace=False)
            target = completions[example_of[answers[base] + delta]]
            for prefix in prefixes:
                answer_in = shift_right(target if prefix == "target" else completions[base])
                resumed = model.resume_from(site, (prompts[base], answer_in))
                own = resumed().argmax(-1) == target
                for method in methods:
                    step = moves[method](answers[base], delta)
                    steps = [step, *(_same_length(step, seed + i) for i in range(random))]
                    right, *controls = (
                        resumed([Steer(site, None, x.view(-1, *shape))]).argmax(-1) == target for x in steps
                    )
                    where = {"site": site, "method": method, "prefix": prefix, "delta": delta, "n": size}
                    yield where | {
                        "answer": _whole(right),
                        "tokens": float(right.double().mean()),
                        "no_intervention": _whole(own),
                        "no_intervention_tokens": float(own.double().mean()),
                        "random": float(np.mean([_whole(control) for control in controls])),
                    }


def transfers(
    model: Hooked,
    causal_model: CausalModel,
    sites: Sequence[str],
    methods: Sequence[str],
    sample: int,
    seed: int = 0,
    config: SearchConfig | None = None,
) -> Iterator[dict[str, Any]]:
    """Copy activations along position t's value directions to position t', within a run or from another.

    A network that keeps one number at all positions then answers with bit t' of the copied value.

    Args:
        methods: ``slope``: the direction of least squares at t; ``das``: the subspace of rank 1 or 2 found at t;
            ``whole``: the whole activation.
        sample: number of pairs; they share no operand with those that the subspaces are learned from.

    Yields:
        ``site, method, source`` (t), ``position`` (t'), ``pair`` (``same`` run or ``other``), ``n``; ``iia``: from
        another run the balanced accuracy (`trials.balanced`) at token t' of its answer, from the same run the share of
        answers that stay right; ``no_intervention``: the same without one.
    """
    search = Search(model, causal_model, sites, config, seed)
    activations, (*_, pool) = search.activations, search.pools
    rng = np.random.default_rng(seed)
    base, other = (pool[rng.integers(len(pool), size=sample)] for _ in range(2))
    answer = activations.right(causal_model.table["answer"])
    for site in sites:
        resumed = model.resume_from(site, activations.examples(base))
        for method in methods:
            for t in range(causal_model.task.width):
                subspace = _transferred(search, site, t, method)
                for place in range(causal_model.task.width):
                    for pair, source in (("same", base), ("other", other)):
                        given = activations.at(site, source, t)
                        tokens = resumed([Interchange(site, place, subspace, given)])[:, place].argmax(-1)
                        said, unchanged = answer[source, place], answer[base, place]
                        where = {"site": site, "method": method, "source": t, "position": place, "pair": pair}
                        yield where | {
                            "n": sample,
                            "iia": balanced(tokens, said, unchanged),
                            "no_intervention": balanced(activations.answered(base)[:, place], said, unchanged),
                        }


def _transferred(search: Search, site: str, t: int, method: str) -> Subspace | None:
    if method == "whole":
        return None
    if method == "das":
        return search.best(site, t, search.causal_model.value, (1, 2))
    x = whiten(search.activations.flat(site, search.pools[0], t), SPREAD)
    values = torch.as_tensor(search.causal_model.examples.answer[search.pools[0]], device=x.axes.device)
    step = slope(x, values)(np.zeros(1, dtype=np.int64), 1)  # (1, d)
    return Subspace((step / step.norm()).T)


def slope(x: Whitened, values: Tensor) -> Move:
    """Least squares: the change of the activation per unit of the value, ``Cov(x, s) / Var(s)``."""
    s = values.to(torch.float64)
    deviation = s - s.mean()
    covariance = x.axes @ (x.scale * (x.white.T @ deviation)) / len(s)  # (d,)
    step = covariance / deviation.square().mean()
    return lambda of, delta: (delta * step).expand(len(of), -1)


def reading(x: Whitened, values: Tensor) -> Move:
    """LEACE: move along the direction that it erases until a least-squares reading of the value has moved by delta.

    The direction is that of `slope`. The step is longer by 1 / R^2, of a linear probe of the value.
    """
    eraser = leace(x, values[:, None])
    s = values.to(torch.float64)
    read = x.white @ (x.scale * (x.axes.T @ eraser.right[:, 0]))  # (N,)
    unit = (read * (s - s.mean())).mean() / read.square().mean()  # of the value in what is read
    step = eraser.left[:, 0] / (unit * (eraser.left[:, 0] @ eraser.right[:, 0]))
    return lambda of, delta: (delta * step).expand(len(of), -1)


def centroids(x: Tensor, values: Tensor) -> Move:
    """Move from the mean activation of one value to that of another, from x (N, d) and values (N,); nothing linear."""
    values = values.to(x.device)
    count = torch.bincount(values)
    sums = torch.zeros(len(count), x.shape[1], dtype=torch.float64, device=x.device)
    means = sums.index_add_(0, values, x.to(torch.float64)) / count[:, None]  # (S, d), NaN without an example

    def move(of: Array, delta: int) -> Tensor:
        at = torch.as_tensor(of, device=means.device)
        return means[at + delta] - means[at]

    return move


def _within(subspace: Subspace, move: Move) -> Move:
    way = (directions := subspace.directions.double()) @ directions.T
    return lambda of, delta: move(of, delta) @ way


def _same_length(step: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(step.shape[1], generator=generator, dtype=torch.float64).to(step)
    return step.norm(dim=1, keepdim=True) * random / random.norm()


def _whole(right: Tensor) -> float:
    return float(right.all(dim=1).double().mean())
