"""The interface of an architecture. Training and probes use nothing else of it."""

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Tree:
    """Several continuations of one answer, decoded in a single pass: the positions and the attention mask.

    The first m tokens are an answer, the trunk. The others are G rows of w tokens. A row attends to the trunk and to
    itself, never to another row, so attention costs G w (m + w) instead of (m + G w)^2.

    ``<start> 1 0`` with ``0`` as another first bit is the sequence ``<start> 1 0 | 0 0`` at the positions
    ``0 1 2 | 1 2``. The tokens after the bar are a row; they attend to ``<start>`` and to each other.

    Args:
        positions: (m + G w,) int64, the position of each token in its own answer.
        rows: (G, w, m + w) bool, True where a token of a row must not attend, to the trunk or to its own row.
    """

    positions: Tensor
    rows: Tensor

    @property
    def trunk(self) -> int:
        """Its number of tokens, m."""
        return self.rows.shape[2] - self.rows.shape[1]


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
    `encode`, `decode` and `sites`. It describes a single network; `training.pack` stacks the replicas.
    """

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> any tensor that `decode` needs. Decoding calls it once for a whole answer."""
        raise NotImplementedError

    def decode(self, memory: Tensor, answer_in: Tensor, tree: Tree | None = None) -> Tensor:
        """Output of `encode` and ``<start> r_0 .. r_{t-2}`` (B, t), t <= m -> logits of r_0 .. r_{t-1} (B, t, V).

        With a `Tree` of T tokens, ``answer_in`` is (B, T) and the logits (B, T, V) are those of the next tokens. Only
        the probes ``prefix`` and ``mechanism`` use trees; a network without the argument serves all other probes.
        """
        raise NotImplementedError

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        """Prompt (B, P) and teacher-forced answer ``<start> r_0 .. r_{m-2}`` (B, m) -> logits (B, m, V)."""
        return self.decode(self.encode(prompt), answer_in)

    def sites(self) -> dict[str, nn.Module]:
        """Modules whose outputs probes read and replace, by name: the layers ``enc.1`` .. and ``dec.1`` .. at least."""
        raise NotImplementedError
