"""The interface of networks, initial weights from a seed, hook points inside networks, and greedy decoding."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..digits import ONE, PAD, START, ZERO
from ..errors import UserError
from ..seeds import RandomStream, derive_seed
from ..system.isolation import LOCK, own_generator

AnyNetwork = TypeVar("AnyNetwork", bound="Network")
DECODING_BATCH_SIZE = 256


class Network(nn.Module):
    """A model of completions given prompts: P prompt tokens, m answer tokens, V tokens in the vocabulary, C channels.

    >>> import torch
    >>> from arith_erd.models import NanoGPT
    >>> network = NanoGPT(prompt_length=7, answer_length=4, num_layers=2).eval()
    >>> prompt, answer_in = torch.tensor([[4, 4, 3, 2, 4, 3, 4]]), torch.tensor([[1, 3, 3, 3]])  # 110+101, <start>000
    >>> network(prompt, answer_in).shape
    torch.Size([1, 4, 5])
    >>> [name for name in network.sites() if name in ("dec.1", "dec.2", "logits")]
    ['dec.1', 'dec.2', 'logits']

    A subclass takes ``prompt_length``, ``answer_length``, ``vocab_size`` and the options in its YAML file. It defines
    `decode`, `sites`, and `encode` if it has an encoder. It describes a single network; `training.pack` stacks the
    replicas.
    """

    task_sizes: tuple[int | None, int | None, int | None] = (None, None, None)
    """P, m and V that a task must have for this network; None for any. `Hooked` refuses other tasks."""

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> any tensor for `decode`, by default the same tokens. Called once per answer."""
        return prompt

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Output of `encode` and ``<start> r_0 .. r_{t-2}`` (B, t), t <= m -> logits of r_0 .. r_{t-1} (B, t, V)."""
        raise NotImplementedError

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        """Prompt (B, P) and teacher-forced answer ``<start> r_0 .. r_{m-2}`` (B, m) -> logits (B, m, V)."""
        return self.decode(self.encode(prompt), answer_in)

    def sites(self) -> dict[str, nn.Module]:
        """Name -> module whose output probes read and replace; at least the layers ``enc.1`` .. and ``dec.1`` .."""
        raise NotImplementedError


def initialise(make_network: Callable[[], AnyNetwork], seed: int) -> AnyNetwork:
    """Make a network with the initial weights of a seed, on the CPU, so that they are the same for every device."""
    with own_generator(derive_seed(seed, RandomStream.WEIGHTS)):
        return make_network()


class HookPoint(nn.Module):
    """The identity, which makes an intermediate tensor hookable, like TransformerLens' class of the same name.

    It has no parameters and disappears from compiled graphs. Positions are axis 1, except in attention patterns.
    """

    def __init__(self, position_axis: int = 1) -> None:
        super().__init__()
        self.position_axis = position_axis

    @property
    def is_hooked(self) -> bool:
        """Whether a probe reads or replaces the tensor. Tensors that only probes need are computed only then."""
        return len(self._forward_hooks) > 0

    def forward(self, x: Tensor) -> Tensor:
        return x


def stack_sites(
    stack: str, embedding: nn.Module, dropout: nn.Module, layers: nn.ModuleList, inside: Mapping[str, str]
) -> dict[str, nn.Module]:
    """The sites of a stack, ``enc`` or ``dec``: its embedding, and each layer's input, inner sites and output.

    ``inside`` has the paths of inner sites, as in ``{"attn_out": "attention.sublayer"}``. Ablated ones are left out.
    """
    sites = {f"{stack}.embed": embedding}
    for i, (layer, below) in enumerate(zip(layers, [dropout, *layers], strict=False), 1):
        modules, name = dict(layer.named_modules()), f"{stack}.{i}"
        parts = {f"{name}.{site}": modules[path] for site, path in inside.items() if path in modules}
        sites |= {f"{name}.resid_pre": below, **parts, name: layer}
    return sites


def position_axis(module: nn.Module) -> int:
    """The axis of positions in a module's output: 1, unless the module is a `HookPoint` with another axis."""
    return module.position_axis if isinstance(module, HookPoint) else 1


# Decoding


def shift_right(completion: Tensor) -> Tensor:
    """Completion ``r_0 .. r_{m-1}`` (..., m) -> decoder input ``<start> r_0 .. r_{m-2}`` (..., m)."""
    start = torch.full_like(completion[..., :1], START)
    return torch.cat([start, completion[..., :-1]], dim=-1)


@torch.no_grad()
def is_causal(run: Callable[[Tensor], Tensor], answer_in: Tensor) -> bool:
    """Whether a change of the last decoder input (..., t) changes only the last logits; ``run`` computes all logits."""
    if answer_in.shape[-1] < 2:
        return True
    other, logits = answer_in.clone(), list[Tensor]()
    other[..., -1] = ZERO + ONE - answer_in[..., -1].clamp(ZERO, ONE)
    for x in (answer_in, other):
        with LOCK, torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):  # the network may draw numbers
            logits.append(run(x)[..., :-1, :])
    return torch.allclose(logits[0], logits[1], rtol=1e-3, atol=1e-3, equal_nan=True)


def require_logits(name: str, logits: object, answer_in: Tensor, vocab_size: int = 0) -> Tensor:
    """Return the logits; a `UserError` unless they are a tensor (B, t, V) for the decoder's input (B, t)."""
    if isinstance(logits, Tensor) and logits.dim() == 3 and logits.shape[:2] == answer_in.shape:
        if logits.shape[2] < vocab_size:
            raise UserError(f"{name}: returned logits of {logits.shape[2]} tokens; expected those of {vocab_size}")
        return logits
    received = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    examples, t = answer_in.shape
    accepted = f"logits ({examples}, {t}, V), one position for each of the decoder's {t} inputs"
    raise UserError(f"{name}: returned {received}; expected {accepted}")


@torch.no_grad()
def greedy_decode(network: nn.Module, prompt: Tensor, length: int) -> Tensor:
    """Greedy decoding of ``length`` tokens: prompts (N, P) -> tokens (N, length).

    A `Network` encodes each prompt once; any other module runs as a whole for each token.
    """
    batches = []
    for part in prompt.split(DECODING_BATCH_SIZE):
        step = partial(network.decode, network.encode(part)) if isinstance(network, Network) else partial(network, part)
        answer = torch.full((len(part), 1), START, dtype=prompt.dtype, device=prompt.device)
        for t in range(length):
            token = require_logits(type(network).__name__, step(answer), answer)[:, t].argmax(dim=-1, keepdim=True)
            answer = torch.cat([answer, token], dim=-1)
        batches.append(answer[:, 1:])
    return torch.cat(batches)


@torch.no_grad()
def teacher_forced_tokens(network: nn.Module, prompt: Tensor, completion: Tensor) -> Tensor:
    """The most likely tokens (N, m) under teacher forcing, from (N, P) and (N, m). Padding stays padding."""
    parts = zip(prompt.split(DECODING_BATCH_SIZE), completion.split(DECODING_BATCH_SIZE), strict=True)
    return keep_padding(torch.cat([network(p, shift_right(c)).argmax(dim=-1) for p, c in parts]), completion)


@torch.no_grad()
def greedy_tokens(network: nn.Module, prompt: Tensor, completion: Tensor) -> Tensor:
    """The result of `greedy_decode`, but decode only where teacher forcing fails: (N, P), (N, m) -> tokens (N, m).

    Greedy decoding gives the right sequence if and only if every token is the most likely one after the right prefix.
    So one teacher-forced pass gives the exact sequence accuracy of decoding. Only sequences that fail are decoded, to
    get the wrong answers.
    """
    result = completion.clone()
    failed = (teacher_forced_tokens(network, prompt, completion) != completion).any(dim=-1)
    result[failed] = greedy_decode(network, prompt[failed], completion.shape[-1])
    return keep_padding(result, completion)


def sequence_correct(predicted: Tensor, completion: Tensor) -> Tensor:
    """A mask (..., N) of answers with all tokens right except padding, from (..., N, m) and completions (N, m)."""
    return ((predicted == completion) | (completion == PAD)).all(dim=-1)


def sequence_accuracy(logits: Tensor, completion: Tensor) -> float:
    """The share of completions (N, m) whose tokens all have the highest logits (N, m, V)."""
    return float(sequence_correct(logits.argmax(-1), completion).double().mean())


def keep_padding(predicted: Tensor, completion: Tensor) -> Tensor:
    """Predicted tokens (N, m), with padding where the completions (N, m) have padding after the answer."""
    return predicted.where(completion != PAD, completion)
