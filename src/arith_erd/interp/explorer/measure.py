"""What the explorer needs to know about a network: its weights in 16 bits, means, directions, and its worst token."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...bits import reorder
from ...errors import UserError
from ...models import NanoGPT, Transformer
from ...tasks import Examples
from ..causal_model import CausalModel
from ..hooked import Hooked
from ..interventions import token_means
from ..sites import layers, residual_stream
from ..slopes import regressors, solver


@dataclass(frozen=True)
class Measured:
    """A network as the page has it.

    Attributes:
        model: the network, its weights rounded to ``bits`` bits: 16, or 32 where 16 change an answer of the sample.
        right: the share of the sample that it answers right.
        missed: of a sample of the pairs held out, the answer ``position`` that is ``wrong`` most often, and one such
            ``pair``; None if all are right, or it is not known what was held out.
        tensors: weights by name; ``mean.SITE`` (T, C), ``tokens.SITE`` (P, V, C); ``carry.SITE`` and ``value.SITE``
            (m, C), what one carry and one unit of the answer add to the stream at each answer position.
    """

    model: Hooked
    bits: int
    right: float
    missed: dict[str, Any] | None
    tensors: dict[str, Tensor]


@torch.no_grad()
def measure(model: Hooked, pairs: int = 512, seed: int = 0) -> Measured:
    """Round the weights; take means and fit directions over ``pairs`` random examples.

    Raises:
        UserError: for a network of a class that the page cannot run.
    """
    if type(model.network) not in (Transformer, NanoGPT):
        kind = type(model.network).__name__
        raise UserError(f"explorer: {model.name} is a {kind}; expected a Transformer or a NanoGPT of this package")
    rng = np.random.default_rng(seed)
    fit = model.task.examples(*(rng.integers(0, size, pairs) for size in model.task.shape))
    tokens = model.run(fit).argmax(-1).cpu()
    precision, rounded = torch.float16, _rounded(model, torch.float16)
    if not torch.equal(tokens, rounded.run(fit).argmax(-1)):
        precision, rounded = torch.float32, _rounded(model, torch.float32)
    known = {name: x.to(precision).float() for name, x in _statistics(rounded, fit).items()}
    right = float((tokens.numpy() == fit.completion).all(1).mean())
    tensors = rounded.network.state_dict() | known
    return Measured(rounded, 8 * precision.itemsize, right, _missed(model, pairs, rng), tensors)


def _missed(model: Hooked, pairs: int, rng: np.random.Generator) -> dict[str, Any] | None:
    table = model.task.examples()
    held_out = rng.permutation(np.flatnonzero(model.split(table)))[:pairs] if model.split else ()
    if not len(held_out):
        return None
    some = model.task.examples(*table.operands[held_out].T)
    wrong = model.run(some).argmax(-1).cpu().numpy() != some.completion
    t = int(wrong.mean(0).argmax())
    missed = {"position": model.task.answer_names[t], "wrong": float(wrong[:, t].mean())}
    return missed | {"pair": some.operands[wrong[:, t].argmax()].tolist()} if wrong.any() else None


def _rounded(model: Hooked, precision: torch.dtype) -> Hooked:
    """The network with rounded weights. Units and heads that nothing reads, as in references, are set to zero."""
    network = copy.deepcopy(model.network).cpu()
    for weight in network.parameters():
        weight.copy_(weight.to(precision).float())
    for module in network.modules():
        parts = dict(module.named_children())
        for first, last in (("expand", "contract"), ("expand", "out"), ("value", "out"), ("qkv", "out")):
            if first in parts and last in parts:
                unread = (parts[last].weight == 0).all(0)
                for parameter in parts[first].parameters():
                    parameter[-len(unread) :][unread] = 0  # of queries, keys and values the last third
    return Hooked(network, task=model.task, name=model.name, seed=model.seed, epoch=model.epoch)


def _statistics(model: Hooked, fit: Examples) -> dict[str, Tensor]:
    """Means and directions; see `Measured.tensors`."""
    task, stream, causal = model.task, residual_stream(model.sites), CausalModel(model.task)
    values = causal.values(fit)
    _, cache = model.run_with_cache(fit, [x for x in model.sites if x.endswith((".z", ".mlp_out"))], prompt_too=True)
    found = {f"mean.{site}": x.mean(0).flatten(1) for site, x in cache.items()}
    encoder = [site for site in layers(stream) if site.startswith("enc.")][-1:]
    decoder = [site for site in stream if site.startswith("dec.")]
    _, cache = model.run_with_cache(fit, [*encoder, *decoder])
    for site in encoder:
        found[f"tokens.{site}"] = token_means(cache[site], torch.as_tensor(fit.prompt), task.vocab_size)
    names = ("carry", "value") if "carry" in causal.variables else ("value",)
    digits = reorder(np.arange(task.width), task.completion_order)
    solvers = torch.stack([solver(regressors(causal, values, t))[1 : 1 + len(names)] for t in digits])  # (m, names, N)
    for site in decoder:
        slopes = torch.einsum("mkn,nmc->kmc", solvers, cache[site].double()).float()
        found |= {f"{name}.{site}": slope for name, slope in zip(names, slopes, strict=True)}
        found[f"value.{site}"] /= task.base ** (task.width - 1)
    return found
