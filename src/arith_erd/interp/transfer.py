"""Copy the value of one answer position to another."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..bits import ZERO
from ..models.network import Network
from .causal import CausalTask
from .das import SPREAD, balanced
from .erasure import whiten
from .interchange import Subspace
from .place import Budget
from .search import Search
from .value import slope

METHODS = ("slope", "das", "whole")


def transfers(
    network: Network,
    pairs: CausalTask,
    sites: Sequence[str],
    methods: Sequence[str],
    sample: int,
    seed: int = 0,
    budget: Budget | None = None,
) -> Iterator[dict[str, Any]]:
    """Copy the embedding along position t's value directions to position t', within a pair or between two.

    A network that keeps one number at all positions then answers with bit t' of the copied sum. Nothing is predicted
    for a network that keeps different variables at different positions.

    Args:
        network: in evaluation mode.
        pairs: of a task with a value.
        sites: decoder layers.
        methods: ``slope``: the direction of least squares at t; ``das``: the subspace of rank 1 or 2 found at t;
            ``whole``: the whole embedding.
        sample: number of couples; they share no operand with those that the subspaces are learned from.
        seed: of the couples and searches.
        budget: of the searches.

    Yields:
        ``site, method, source`` (t), ``position`` (t'), ``pair`` (``same`` or ``other``), ``n``; ``iia``: for another
        pair the balanced accuracy (`das.balanced`) at bit t' of its sum, for the same pair the share of answers that
        stay right; ``floor``: the same with nothing exchanged.
    """
    search = Search(network, pairs, sites, budget, seed)
    rng = np.random.default_rng(seed)
    base, other = (search.setting.pools[2][rng.integers(len(search.setting.pools[2]), size=sample)] for _ in range(2))
    answer = pairs.values["answer"]
    runs = search.runs
    for site in sites:
        patched = runs.continuation(site, base)
        for method in methods:
            for t in range(pairs.task.width):
                subspace = _at(search, site, t, method)
                for place in range(pairs.task.width):
                    own = runs.at(site, base, place)
                    for pair, source in (("same", base), ("other", other)):
                        given = runs.at(site, source, t)
                        with torch.no_grad():
                            value = given if subspace is None else subspace.exchange(own, given)
                            tokens = patched(value, place)[:, place].argmax(dim=-1)
                        said, unchanged = (
                            torch.as_tensor(answer[which, place] + ZERO, device=tokens.device)
                            for which in (source, base)
                        )
                        before = runs.tokens[torch.as_tensor(base), place]
                        yield {
                            "site": site,
                            "method": method,
                            "source": t,
                            "position": place,
                            "pair": pair,
                            "n": sample,
                            "iia": balanced(tokens, said, unchanged),
                            "floor": balanced(before, said, unchanged),
                        }


def _at(search: Search, site: str, t: int, method: str) -> Subspace | None:
    if method == "whole":
        return None
    if method == "das":
        return search.best(site, t, search.pairs.value, (1, 2))
    pool = search.setting.pools[0]
    x = whiten(search.runs.at(site, pool, t), SPREAD)
    values = torch.as_tensor(search.pairs.examples.answer[pool], device=x.axes.device)
    step = slope(x, values)(np.zeros(1, dtype=np.int64), 1)  # (1, d)
    return Subspace((step / step.norm()).T)
