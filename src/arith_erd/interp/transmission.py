"""Exchange whole embeddings between runs, position by position. Count which causal model predicts the new answer."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..bits import ZERO, Array
from ..models.network import Network
from .causal import PARTIAL, CausalTask
from .interchange import ForcedRuns, Patched, Position
from .pairs import FAMILIES, families_of, sources


def models_of(pairs: CausalTask) -> tuple[str, ...]:
    """The causal models to compare: ``none``, one for each variable of the task, and ``token`` for the prompt."""
    return ("none", *(name for name in pairs.models if name not in PARTIAL), "token")


def transmissions(
    network: Network, pairs: CausalTask, sites: Sequence[str], sample: int, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Exchange the embedding at every position of the sites, for every family of pairs.

    In the decoder position t is exchanged in the couples of a family at t, and bit t of the answer is read. In the
    encoder each prompt position is exchanged in the couples of every t. All use the same bases.

    Args:
        network: in evaluation mode.
        pairs: of its task.
        sites: of the network.
        sample: number of bases.
        seed: of the couples.

    Yields:
        ``site``, ``position`` of the site, ``family``, ``answer`` (the t that is read), ``n``, ``flipped`` (share of
        answers that change), ``flipped_later`` (in the decoder: share where some token after t changes), and for each
        model of `models_of`: ``iia_*``, the share of answers that it predicts; ``floor_*``, the same without any
        exchange; ``ceiling_*``, with all positions of the site exchanged. NaN where a model predicts nothing.
    """
    rng = np.random.default_rng(seed)
    base = rng.integers(len(pairs.a), size=sample)
    couples = _couples(pairs, base, rng)
    used = np.concatenate([base, *couples.values()])
    runs = ForcedRuns.of(network, pairs, sites, used[used >= 0])
    judges = {key: Judge(pairs, base, source) for key, source in couples.items() if (source >= 0).any()}
    before = runs.tokens[torch.as_tensor(base)].cpu().numpy()
    for site in sites:
        patched = runs.continuation(site, base)
        encoder = site.startswith("enc.")
        for (family, t), judge in judges.items():
            everything = _tokens(runs, patched, site, judge.source, None)
            bits = range(pairs.task.width)
            for place in range(patched.embedding.shape[1]) if encoder else bits if t is None else [t]:
                tokens = _tokens(runs, patched, site, judge.source, place)
                for answer in [t] if t is not None else bits if encoder else [place]:
                    row = {"site": site, "position": place, "family": family, "answer": answer}
                    yield row | judge.measure(answer, before, tokens, everything, place if encoder else None)


def _couples(pairs: CausalTask, base: Array, rng: np.random.Generator) -> dict[tuple[str, int | None], Array]:
    """Sources (n,) of the bases by family and t; t is None for families that hold at every t."""
    found: dict[tuple[str, int | None], Array] = {}
    for name in families_of(pairs):
        if FAMILIES[name].everywhere:
            found[name, None] = sources(pairs, name, 0, base, rng)
        else:
            found |= {(name, t): sources(pairs, name, t, base, rng) for t in range(pairs.task.width)}
    return found


def _tokens(runs: ForcedRuns, patched: Patched, site: str, source: Array, position: Position) -> Array:
    """The likeliest tokens (n, m) with the sources' embeddings."""
    with torch.no_grad():
        return patched(runs.at(site, source, position), position).argmax(dim=-1).cpu().numpy()


class Judge:
    """Couples, with each causal model's predictions for them.

    Args:
        pairs: of a task.
        base: (n,).
        source: (n,), -1 for a base without one; such a base is left unchanged and not counted.
    """

    def __init__(self, pairs: CausalTask, base: Array, source: Array) -> None:
        self.pairs, self.base, self.counted = pairs, base, source >= 0
        self.source = np.where(self.counted, source, base)
        self.models = models_of(pairs)
        self.predicted = {
            model: pairs.predict(model, base, self.source) + ZERO for model in self.models if model != "token"
        }

    def measure(self, t: int, before: Array, after: Array, everything: Array, token: int | None) -> dict[str, Any]:
        """Tokens (n, m) without an exchange, with one, and with all positions exchanged -> columns from ``n`` on.

        Args:
            t: the position of the answer that is read.
            token: the prompt position that was exchanged; None in the decoder.
        """
        counted, predicted = self.counted, self.predicted
        if token is not None:
            predicted = predicted | {"token": self.pairs.exchange_token(token, self.base, self.source) + ZERO}
        changed = (before != after)[counted]
        measured: dict[str, Any] = {
            "n": int(counted.sum()),
            "flipped": float(changed[:, t].mean()),
            "flipped_later": float(changed[:, t + 1 :].any(axis=1).mean()) if token is None else np.nan,
        }
        for kind, tokens in (("iia", after), ("floor", before), ("ceiling", everything)):
            for model in self.models:
                said = predicted.get(model)
                share = np.nan if said is None else float((tokens[:, t] == said[:, t])[counted].mean())
                measured[f"{kind}_{model}"] = share
        return measured
