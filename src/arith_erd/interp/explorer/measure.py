"""What the explorer needs to know about a network: its weights in 16 bits, means, directions, and its worst token."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...bits import from_digits, reorder, to_digits
from ...errors import UserError
from ...models.attention import MultiHeadAttention
from ...models.nanogpt import MLP, CausalSelfAttention, NanoGPT
from ...models.transformer import FeedForward, Transformer
from ...tasks import Examples, Task
from ..causal_model import CausalModel
from ..hooked import Hooked
from ..interventions import token_means
from ..sites import layers, residual_stream


@dataclass(frozen=True)
class Measured:
    """A network as the page has it.

    Attributes:
        model: the network, its weights rounded to ``bits`` bits.
        bits: 16, or 32 where a sample of answers is not the same with 16.
        right: the share of the sample that it answers right.
        missed: the answer position that is wrong most often in a sample of the pairs held out from training, the share
            where it is, and one such pair. None if all are right, or it is not known what was held out.
        tensors: weights by their names; ``mean.SITE`` (T, C), ``tokens.SITE`` (P, V, C), and ``carry.SITE`` and
            ``value.SITE`` (m, C), what one carry and one unit of the answer add to the stream at each answer position.
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
    tokens, bits = model.run(fit).argmax(-1).cpu(), 16
    rounded = _rounded(model, torch.float16)
    if not torch.equal(tokens, rounded.run(fit).argmax(-1)):
        rounded, bits = _rounded(model, torch.float32), 32
    precision = torch.float16 if bits == 16 else torch.float32
    known = {name: x.to(precision).float() for name, x in _statistics(rounded, fit).items()}
    right = float((tokens.numpy() == fit.completion).all(1).mean())
    return Measured(rounded, bits, right, _missed(model, pairs, rng), rounded.network.state_dict() | known)


def _missed(model: Hooked, pairs: int, rng: np.random.Generator) -> dict[str, Any] | None:
    table = model.task.examples()
    held_out = rng.permutation(np.flatnonzero(model.split(table)))[:pairs] if model.split else np.array([], int)
    if not len(held_out):
        return None
    some = model.task.examples(*table.operands[held_out].T)
    wrong = model.run(some).argmax(-1).cpu().numpy() != some.completion
    if not wrong.any():
        return None
    t = int(wrong.mean(0).argmax())
    pair = some.operands[wrong[:, t].argmax()].tolist()
    return {"position": model.task.answer_names[t], "wrong": float(wrong[:, t].mean()), "pair": pair}


def _rounded(model: Hooked, precision: torch.dtype) -> Hooked:
    """The network with rounded weights. Units and heads that nothing reads, as in references, are set to zero."""
    network = copy.deepcopy(model.network).cpu()
    for weight in network.parameters():
        weight.copy_(weight.to(precision).float())
    for module in network.modules():
        if isinstance(module, FeedForward | MLP):
            last = module.contract if isinstance(module, FeedForward) else module.out
            _clear(module.expand, (last.weight == 0).all(0), slice(0, None))
        elif isinstance(module, MultiHeadAttention):
            _clear(module.value, (module.out.weight == 0).all(0), slice(0, None))
        elif isinstance(module, CausalSelfAttention):
            _clear(module.qkv, (module.out.weight == 0).all(0), slice(2 * module.out.in_features, None))
    return Hooked(network, task=model.task, name=model.name, seed=model.seed, epoch=model.epoch)


def _clear(linear: nn.Linear, unread: Tensor, rows: slice) -> None:
    for parameter in linear.parameters():
        parameter[rows][unread] = 0


def _statistics(model: Hooked, fit: Examples) -> dict[str, Tensor]:
    """Means and directions; see `Measured.tensors`."""
    found: dict[str, Tensor] = {}
    averaged = [site for site in model.sites if site.endswith((".z", ".mlp_out"))]
    _, cache = model.run_with_cache(fit, averaged, prompt_too=True)
    for site, x in cache.items():
        found[f"mean.{site}"] = x.mean(0).flatten(1)
    stream = residual_stream(model.sites)
    encoder = [site for site in layers(stream) if site.startswith("enc.")]
    decoder = [site for site in stream if site.startswith("dec.")]
    _, cache = model.run_with_cache(fit, [*encoder[-1:], *decoder])
    if encoder:
        found[f"tokens.{encoder[-1]}"] = token_means(
            cache[encoder[-1]], torch.as_tensor(fit.prompt), model.task.vocab_size
        )
    solvers = [torch.linalg.pinv(_regressors(model.task, fit, p), rcond=1e-9)[1:3] for p in range(model.task.width)]
    for site in decoder:
        slopes = torch.stack([solver @ cache[site][:, p].double() for p, solver in enumerate(solvers)], dim=1)
        found[f"value.{site}"] = slopes[0].float() / model.task.base ** (model.task.width - 1)
        if "carry" in model.task.variables():
            found[f"carry.{site}"] = slopes[1].float()
    return found


def _regressors(task: Task, fit: Examples, position: int) -> Tensor:
    """Variables (N, k) that the stream may hold at an answer position: 1, the answer, the carry, those held fixed.

    What is linear in the others is left out, as in `mechanism.directions`: at t = 1 ``a_0 + b_0 = r_0 + 2 c_1``.
    """
    values = CausalModel(task).values(fit)
    t, top = int(reorder(np.arange(task.width), task.completion_order)[position]), task.width - 1
    digits = to_digits(fit.answer, task.width, task.base)
    operands = [to_digits(column, max(task.width, task.bits), task.base) for column in fit.operands.T]
    columns = [np.ones(len(fit)), fit.answer / task.base**top, *([values["carry"][:, t]] if "carry" in values else [])]
    columns += [x[:, place] for x in operands for place in (t, t - 1) if place >= 0]
    if task.completion_order == "reverse":
        columns += [digits[:, t - 1]] if t > 1 else []
        columns += [from_digits(digits[:, :t], task.base) / task.base**t] if 1 < t < top - 1 else []
    columns += [digits[:, t]] if t < top else []
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float64))
