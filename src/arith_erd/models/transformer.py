"""The encoder-decoder Transformer of the paper (section 3.2, table 2), after Vaswani et al. (2017).

Post-norm, ReLU, biases everywhere, separate embeddings for prompt and answer, fixed sinusoidal positions, dropout
on the embeddings and on each sublayer's output but not on attention weights, no final norm: 701,381 parameters at
the defaults for seven-bit addition.
"""

import torch
from torch import Tensor, nn

from ..bundled import load_option
from ..digits import VOCAB_SIZE
from ..errors import UserError
from ..tasks import Layout
from .attention import MultiHeadAttention
from .dropout import Dropout
from .network import HookPoint, Network, stack_sites
from .positions import added_positions

NET = load_option("model", "transformer")["net"]
SITES = {  # sites of a layer: name -> path; an encoder layer has no cross-attention
    "attn.pattern": "self_attention.sublayer.heads.pattern",
    "attn.z": "self_attention.sublayer.heads.z",
    "attn.result": "self_attention.sublayer.heads.result",
    "attn_out": "self_attention.sublayer",
    "resid_mid": "self_attention",
    "cross_attn.pattern": "cross_attention.sublayer.heads.pattern",
    "cross_attn.z": "cross_attention.sublayer.heads.z",
    "cross_attn.result": "cross_attention.sublayer.heads.result",
    "cross_attn_out": "cross_attention.sublayer",
    "resid_mid_cross": "cross_attention",
    "mlp.pre": "feed_forward.sublayer.expand",
    "mlp.post": "feed_forward.sublayer.post",
    "mlp_out": "feed_forward.sublayer",
}


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, four times as wide inside."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.expand = nn.Linear(d_model, 4 * d_model)
        self.post = HookPoint()
        self.contract = nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.post(self.expand(x).relu()))


class Residual(nn.Module):
    """Post-norm: ``norm(x + dropout(sublayer(x, ...)))``, or just ``norm(x)`` without a sublayer."""

    def __init__(self, sublayer: nn.Module | None, d_model: int, dropout: float) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, *context: Tensor | None) -> Tensor:
        if self.sublayer is None:
            return self.norm(x)
        return self.norm(x + self.dropout(self.sublayer(x, *context)))


class Layer(nn.Module):
    """Self-attention, with ``cross`` attention to the encoder's output, then feed-forward."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float,
        attention: bool,
        feed_forward: bool,
        rotary: int,
        cross: bool,
    ) -> None:
        super().__init__()

        def residual_attention(rotary: int = 0) -> Residual:
            return Residual(MultiHeadAttention(d_model, num_heads, rotary) if attention else None, d_model, dropout)

        self.self_attention = residual_attention(rotary)
        self.cross_attention = residual_attention() if cross else None
        self.feed_forward = Residual(FeedForward(d_model), d_model, dropout) if feed_forward else nn.Identity()

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x = self.self_attention(x, x, mask)
        return self.feed_forward(x if self.cross_attention is None else self.cross_attention(x, memory))


class Transformer(Network):
    """Encoder-decoder Transformer over V tokens.

    Args:
        prompt_length, answer_length: tokens, P and m.
        d_model: channels C, a multiple of ``num_heads``.
        num_layers: layers of the encoder, and as many of the decoder.
        dropout: the share of activations that training sets to zero.
        encoder, attention, feed_forward, positional_encoding: False removes the component (paper, section 5).
            Without the encoder the decoder attends to the embedded prompt. Without attention the decoder sees no
            prompt at all; the norms stay. Without feed-forward its norm goes too, as in the authors' code.
        positions: one of `tasks.POSITION_ENCODINGS`, in both stacks; ``rope`` is not applied in cross-attention.
        layout: places of the task's tokens. Operands must have one length, since `decode` cannot see padding.
    """

    causal_mask: Tensor  # (m, m) bool

    def __init__(
        self,
        prompt_length: int,
        answer_length: int,
        d_model: int = NET["d_model"],
        num_heads: int = NET["num_heads"],
        num_layers: int = NET["num_layers"],
        dropout: float = NET["dropout"],
        encoder: bool = NET["encoder"],
        attention: bool = NET["attention"],
        feed_forward: bool = NET["feed_forward"],
        positional_encoding: bool = NET["positional_encoding"],
        positions: str = NET["positions"],
        vocab_size: int = VOCAB_SIZE,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        if layout is not None and layout.padded:
            raise UserError("task.min_bits: expected null, since an encoder-decoder takes operands of one length")
        self.position_encoding = positions if positional_encoding else "none"
        length = max(prompt_length, answer_length)
        rotary = length * (self.position_encoding == "rope")
        layer_arguments = (d_model, num_heads, dropout, attention, feed_forward, rotary)
        self.task_sizes = (prompt_length, answer_length, vocab_size)
        self.prompt_embedding = nn.Embedding(vocab_size, d_model)
        self.answer_embedding = nn.Embedding(vocab_size, d_model)
        self.positions = added_positions(self.position_encoding, length, d_model, layout)
        self.prompt_dropout = Dropout(dropout)
        self.answer_dropout = Dropout(dropout)
        self.encoder = nn.ModuleList(Layer(*layer_arguments, cross=False) for _ in range(num_layers if encoder else 0))
        self.decoder = nn.ModuleList(Layer(*layer_arguments, cross=True) for _ in range(num_layers))
        self.head = nn.Linear(d_model, vocab_size)
        self.register_buffer("causal_mask", torch.ones(answer_length, answer_length).triu(1).bool(), persistent=False)

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> memory (B, P, C), to which the decoder attends."""
        x = self.prompt_embedding(prompt)
        if self.positions is not None:
            x = self.positions(x, prompt)
        x = self.prompt_dropout(x)
        for layer in self.encoder:
            x = layer(x)
        return x

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Memory (B, P, C) and ``<start> r_0 .. r_{t-2}`` (B, t) -> logits of r_0 .. r_{t-1} (B, t, V)."""
        x = self.answer_embedding(answer_in)
        if self.positions is not None:
            x = self.positions(x, answer_in, first=self.task_sizes[0])
        x = self.answer_dropout(x)
        length = answer_in.shape[-1]
        for layer in self.decoder:
            x = layer(x, memory, self.causal_mask[:length, :length])
        return self.head(x)

    def sites(self) -> dict[str, nn.Module]:
        """The layers ``enc.1 .. enc.6`` (B, P, C) and ``dec.1 .. dec.6`` (B, m, C), and the sites inside them."""
        encoder = stack_sites("enc", self.prompt_embedding, self.prompt_dropout, self.encoder, SITES)
        decoder = stack_sites("dec", self.answer_embedding, self.answer_dropout, self.decoder, SITES)
        return encoder | decoder | {"logits": self.head}
