"""What the explorer needs to know about a network over many pairs: means, directions, and effects of interventions."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...bits import ZERO, from_digits, reorder, to_digits
from ...errors import UserError
from ...models.attention import Heads, MultiHeadAttention
from ...models.nanogpt import MLP, CausalSelfAttention, NanoGPT
from ...models.transformer import FeedForward, Transformer
from ...tasks import Examples, Task
from ..causal_model import CausalModel
from ..hooked import Hooked
from ..interventions import Interchange, Intervention, Replace, Steer
from ..sites import layers, residual_stream


@dataclass(frozen=True)
class Effect:
    """The share of n answers whose token at a position changes under an intervention.

    ``flip`` inverts the token before it; ``attention`` replaces the outputs of the encoder's self-attention by their
    means; ``tokens`` replaces the encoder's output by the mean for the token and position; ``exchange`` takes the
    position's activation from another pair, and counts pairs with another answer there; ``carry`` moves it along the
    carry's direction to the other carry.
    """

    intervention: str
    site: str
    position: int
    n: int
    changed: float


@dataclass(frozen=True)
class Measured:
    """A network as the page has it.

    Attributes:
        model: the network, its weights rounded to ``bits`` bits.
        bits: 16, or 32 where a sample of answers is not the same with 16.
        tensors: weights by their names; ``mean.SITE`` (T, C), ``tokens.SITE`` (P, V, C), and ``carry.SITE`` and
            ``value.SITE`` (m, C), what one carry and one unit of the answer add to the stream at each answer position.
        effects: over other pairs than the means and directions.
    """

    model: Hooked
    bits: int
    tensors: dict[str, Tensor]
    effects: tuple[Effect, ...]


@torch.no_grad()
def measure(model: Hooked, pairs: int = 512, tested: int = 128, seed: int = 0) -> Measured:
    """Round the weights, take means and fit directions over ``pairs`` random examples, intervene on ``tested`` others.

    Raises:
        UserError: for a network of a class that the page cannot run.
    """
    if type(model.network) not in (Transformer, NanoGPT):
        kind = type(model.network).__name__
        raise UserError(f"explorer: {model.name} is a {kind}; expected a Transformer or a NanoGPT of this package")
    rng = np.random.default_rng(seed)
    fit, test, source = (draw(model.task, count, rng) for count in (pairs, tested, tested))
    rounded, bits = _rounded(model, torch.float16), 16
    if not torch.equal(model.run(fit).argmax(-1), rounded.run(fit).argmax(-1)):
        rounded, bits = _rounded(model, torch.float32), 32
    precision = torch.float16 if bits == 16 else torch.float32
    known = {name: x.to(precision).float() for name, x in _statistics(rounded, fit).items()}
    effects = tuple(_effects(rounded, test, source, known))
    return Measured(rounded, bits, rounded.network.state_dict() | known, effects)


def draw(task: Task, count: int, rng: np.random.Generator) -> Examples:
    """Random examples, with replacement."""
    return task.examples(*(rng.integers(0, size, count) for size in task.shape))


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


def heads_of(network: nn.Module) -> int:
    """Heads of each attention; 1 for a network without attention."""
    return next((module.num_heads for module in network.modules() if isinstance(module, Heads)), 1)


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
        tokens = nn.functional.one_hot(torch.as_tensor(fit.prompt), model.task.vocab_size).float()  # (N, P, V)
        total = torch.einsum("npv,npc->pvc", tokens, cache[encoder[-1]])
        found[f"tokens.{encoder[-1]}"] = total / tokens.sum(0)[..., None].clamp(min=1)
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


def _effects(model: Hooked, test: Examples, source: Examples, known: dict[str, Tensor]) -> Iterator[Effect]:
    """Effects by position; those of exchanges and carries at the middle one, after each layer and each sublayer."""
    task = model.task
    prompt, answer_in = model.inputs(test)
    before = model.run(test).argmax(-1)
    for t in range(1, task.width):
        flipped = answer_in.clone()
        flipped[:, t] = (flipped[:, t] - ZERO + 1) % task.base + ZERO
        token = model.run([prompt, flipped[:, : t + 1]])[:, t].argmax(-1)
        yield _effect("flip", "dec.embed", t, token != before[:, t])
    encoder = [site for site in layers(model.sites) if site.startswith("enc.")]
    whole: dict[str, list[Intervention]] = {}
    if encoder:
        heads = heads_of(model.network)
        attention = [f"{site}.attn.z" for site in encoder if f"{site}.attn.z" in model.sites]
        whole["attention"] = [Replace(z, None, known[f"mean.{z}"].unflatten(1, (heads, -1))) for z in attention]
        place = torch.arange(task.prompt_length)
        whole["tokens"] = [Replace(encoder[-1], None, known[f"tokens.{encoder[-1]}"][place, prompt])]  # (N, P, C)
    for name, interventions in whole.items():
        changed = model.run(test, interventions).argmax(-1) != before
        for t in range(task.width):
            yield _effect(name, encoder[-1], t, changed[:, t])
    t = task.width // 2
    decoder = [site for site in residual_stream(model.sites) if site.startswith("dec.")]
    _, other = model.run_with_cache(source, layers(decoder))
    differ = torch.as_tensor(source.completion)[:, t] != torch.as_tensor(test.completion)[:, t]
    values = CausalModel(task).values(test)
    for site in decoder:
        resumed = model.resume_from(site, test)
        if site in other:
            changed = resumed([Interchange(site, t, source=other[site])])[:, t].argmax(-1) != before[:, t]
            yield _effect("exchange", site, t, changed[differ])
        if "carry" in values:
            carry = values["carry"][:, reorder(np.arange(task.width), task.completion_order)[t]]
            step = torch.from_numpy(1.0 - 2 * carry)[:, None] * known[f"carry.{site}"][t]
            yield _effect("carry", site, t, resumed([Steer(site, t, step)])[:, t].argmax(-1) != before[:, t])


def _effect(name: str, site: str, position: int, changed: Tensor) -> Effect:
    return Effect(name, site, position, len(changed), float(changed.float().mean()) if len(changed) else 0.0)
