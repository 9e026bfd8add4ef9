"""The interface between an architecture and the rest: training and probes use nothing else of it."""

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Tree:
    """Several continuations of one answer, decoded in a single pass: where each token is, and what it may look at.

    ``<start> 1 0`` with ``0`` as another first bit is the sequence ``<start> 1 0 | 0 0`` at the positions
    ``0 1 2 | 1 2``; the tokens after the bar see ``<start>`` and each other, not the first branch.

    Args:
        positions: (T,) int64, the position of each token in its own answer.
        future: (T, T) bool, True where a token must not look.
    """

    positions: Tensor
    future: Tensor


class Network(nn.Module):
    """A model of completions given prompts: P prompt tokens, m answer tokens, V tokens in the vocabulary, C channels.

    A subclass takes ``prompt_length``, ``answer_length``, ``vocab_size`` and what its YAML file sets, and defines
    `encode`, `decode` and `sites`. It is written for a single network; packs are made of it from outside.
    """

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> any tensor that `decode` needs. Decoding calls it once for a whole answer."""
        raise NotImplementedError

    def decode(self, memory: Tensor, answer_in: Tensor, tree: Tree | None = None) -> Tensor:
        """Output of `encode` and ``<start> r_0 .. r_{t-2}`` (B, t), t <= m -> logits of r_0 .. r_{t-1} (B, t, V).

        With a `Tree` of T tokens, ``answer_in`` is (B, T) and the logits are (B, T, V): of the token after each.
        """
        raise NotImplementedError

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        """Prompt (B, P) and teacher-forced answer ``<start> r_0 .. r_{m-2}`` (B, m) -> logits (B, m, V)."""
        return self.decode(self.encode(prompt), answer_in)

    def sites(self) -> dict[str, nn.Module]:
        """The layers whose outputs probes read and replace, by name: ``enc.1`` .. and ``dec.1`` .. ."""
        raise NotImplementedError
