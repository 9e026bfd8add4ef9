"""Move embeddings by delta along the value. Does the answer become a + b + delta?"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..bits import Array
from ..models.decoding import shift_right
from ..models.network import Network
from .activations import Continuation, embeddings
from .causal import CausalTask
from .das import SPREAD
from .erasure import whiten
from .interchange import BATCH, ForcedRuns
from .place import Budget
from .search import Search
from .value import Centroids, Move, reading, slope, within

METHODS = ("slope", "leace", "centroids", "das")
RANDOM = 5  # directions of the same length, as controls
FITTED = 4096  # pairs that directions are fitted on


def doses(
    network: Network,
    pairs: CausalTask,
    sites: Sequence[str],
    methods: Sequence[str],
    deltas: Sequence[int],
    sample: int,
    seed: int = 0,
    budget: Budget | None = None,
    prefixes: Sequence[str] = ("target", "own"),
    fitted: int = FITTED,
    random: int = RANDOM,
) -> Iterator[dict[str, Any]]:
    """Move all positions of a site by delta units of the value, and read the whole answer.

    Greedy decoding gives a + b + delta if and only if each of its tokens is the likeliest after those before it. So
    with ``prefix=target`` the runs get the tokens of a + b + delta, and ``floor`` is their answer unmoved. With
    ``prefix=own`` they get the tokens of a + b, so only the move can change the answer.

    Args:
        network: in evaluation mode.
        pairs: of a task with a value.
        sites: of the network.
        methods: of `METHODS`.
        deltas: units of the value.
        sample: pairs, drawn from those whose moved value is the value of some pair; for centroids and ``das``, of a
            fitted one.
        seed: of the sample, the fits and the controls.
        budget: of the searches for ``das``.
        prefixes: ``target``, ``own``, or both.
        fitted: pairs that directions are fitted on.
        random: directions of the same length, as controls.

    Yields:
        ``site, method, prefix, delta, n``; ``answer``: the share of whole answers that are a + b + delta, and
        ``tokens``, of their tokens; ``floor`` and ``floor_tokens``: unmoved; ``random``: whole answers after random
        moves of the same length.
    """
    device = next(network.parameters()).device
    rng = np.random.default_rng(seed)
    every = np.arange(len(pairs.a))
    chosen = rng.choice(every, size=min(fitted, len(every)), replace=False)
    runs = ForcedRuns.of(network, pairs, sites, chosen)
    values = torch.as_tensor(pairs.examples.answer[chosen], device=device)
    search = Search(network, pairs, sites, budget, seed) if "das" in methods else None
    answers = pairs.examples.answer
    # A centroid is known only of a value that some fitted pair has; in a small task that may not be the largest one.
    known = np.unique(answers[chosen] if {"centroids", "das"} & set(methods) else answers)
    for site in sites:
        x = runs.at(site, chosen)
        moves = _moves(x, values, methods, search, site, pairs.value)
        for delta in deltas:
            possible = every[np.isin(answers, known) & np.isin(answers + delta, known)]
            if not len(possible):
                continue
            trial = Trial(network, pairs, site, _sample(possible, sample, seed + delta), delta)
            for prefix in prefixes:
                unmoved = trial.answers(prefix, None)
                for method, move in moves.items():
                    step = move(trial.values, delta)
                    moved = trial.answers(prefix, step)
                    controls = [trial.answers(prefix, _same_length(step, seed + i)) for i in range(random)]
                    yield {
                        "site": site,
                        "method": method,
                        "prefix": prefix,
                        "delta": delta,
                        "n": len(trial.values),
                        "answer": _whole(moved, trial.target),
                        "tokens": float((moved == trial.target).double().mean()),
                        "floor": _whole(unmoved, trial.target),
                        "floor_tokens": float((unmoved == trial.target).double().mean()),
                        "random": float(np.mean([_whole(tokens, trial.target) for tokens in controls])),
                    }


class Trial:
    """Runs whose answer should become another number than their own."""

    def __init__(self, network: Network, pairs: CausalTask, site: str, base: Array, delta: int) -> None:
        device = next(network.parameters()).device
        task, answers = pairs.task, pairs.examples.answer
        self.values = answers[base]
        of_value = np.full(answers.max() + 1, -1)
        of_value[answers] = np.arange(len(answers))  # any pair with that answer, for its tokens
        completions = torch.as_tensor(pairs.examples.completion, device=device)
        self.target = completions[torch.as_tensor(of_value[self.values + delta])]
        self.prompt = torch.as_tensor(pairs.examples.prompt[base], device=device)
        assert self.target.shape[1] == task.width
        self._runs: dict[str, tuple[Continuation, Tensor]] = {}
        for prefix, completion in (("target", self.target), ("own", completions[torch.as_tensor(base)])):
            answer_in = shift_right(completion)
            x = embeddings(network, self.prompt, answer_in, [site], BATCH)[site]
            self._runs[prefix] = Continuation(network, site, self.prompt, answer_in, BATCH), x

    def answers(self, prefix: str, step: Tensor | None) -> Tensor:
        """Tokens (n, m) after a step (n, d), or unmoved."""
        rest, x = self._runs[prefix]
        return rest(x if step is None else x + step.to(x)).argmax(dim=-1)


def _sample(possible: Array, sample: int, seed: int) -> Array:
    """Draw the pairs, the same for every site."""
    return np.random.default_rng(seed).choice(possible, size=min(sample, len(possible)), replace=False)


def _moves(
    x: Tensor, values: Tensor, methods: Sequence[str], search: Search | None, site: str, variable: str
) -> dict[str, Move]:
    white, centroids = whiten(x, SPREAD), Centroids(x, values)
    moves: dict[str, Move] = {}
    for method in methods:
        if method == "slope":
            moves[method] = slope(white, values)
        elif method == "leace":
            moves[method] = reading(white, values)
        elif method == "centroids":
            moves[method] = centroids
        elif search is not None:
            moves[method] = within(search.best(site, None, variable, (1, 2)), centroids)
    return moves


def _same_length(step: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(step.shape[1], generator=generator, dtype=torch.float64).to(step)
    return step.norm(dim=1, keepdim=True) * random / random.norm()


def _whole(tokens: Tensor, target: Tensor) -> float:
    return float((tokens == target).all(dim=1).double().mean())
