"""The interface of an architecture, and the points inside it where probes read or replace a tensor."""

from collections.abc import Mapping

from torch import Tensor, nn


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

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> any tensor that `decode` needs, by default the same tokens; once for an answer."""
        return prompt

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Output of `encode` and ``<start> r_0 .. r_{t-2}`` (B, t), t <= m -> logits of r_0 .. r_{t-1} (B, t, V)."""
        raise NotImplementedError

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        """Prompt (B, P) and teacher-forced answer ``<start> r_0 .. r_{m-2}`` (B, m) -> logits (B, m, V)."""
        return self.decode(self.encode(prompt), answer_in)

    def sites(self) -> dict[str, nn.Module]:
        """Modules whose outputs probes read and replace, by name: the layers ``enc.1`` .. and ``dec.1`` .. at least."""
        raise NotImplementedError


class HookPoint(nn.Module):
    """The identity. It makes an intermediate tensor hookable, like TransformerLens' class of the same name.

    It has no parameters and disappears from compiled graphs. Positions are the axis 1, except in attention patterns.
    """

    def __init__(self, position_axis: int = 1) -> None:
        super().__init__()
        self.position_axis = position_axis

    @property
    def watched(self) -> bool:
        """Whether a probe reads or replaces the tensor. Tensors that training does not need are computed only then."""
        return len(self._forward_hooks) > 0

    def forward(self, x: Tensor) -> Tensor:
        return x


def sites_of(layer: nn.Module, name: str, inside: Mapping[str, str]) -> dict[str, nn.Module]:
    """The sites of a layer: those inside, by their paths, as ``{"attn_out": "attention.sublayer"}``, and the layer.

    What was ablated is left out.
    """
    modules = dict(layer.named_modules())
    sites = {f"{name}.{site}": modules[path] for site, path in inside.items() if path in modules}
    return sites | {name: layer}


def position_axis(module: nn.Module) -> int:
    """The axis of positions in a module's output: 1, unless it is a `HookPoint` with another."""
    return module.position_axis if isinstance(module, HookPoint) else 1
