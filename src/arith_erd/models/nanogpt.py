"""nanoGPT, the decoder-only model of the paper (appendix E), after Karpathy (2022).

Pre-norm, GELU, no biases, learned positions, dropout on embeddings, attention weights and residuals; the head is
the transposed embedding. The input is the prompt, ``<start>`` and the answer in one sequence: 297,600 parameters at
the defaults for seven-bit addition, 297,984 for multiplication.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bundled import load_option
from ..digits import VOCAB_SIZE
from ..tasks import Layout
from .attention import Heads, project_in, split_heads
from .dropout import Dropout
from .network import HookPoint, Network, stack_sites
from .positions import Rotary, added_positions, position_ids, without_padding

INIT_STD = 0.02  # standard deviation of initial weights
NET = load_option("model", "nanogpt")["net"]
SITES = {  # sites of a block: name -> path
    "attn.pattern": "attention.sublayer.heads.pattern",
    "attn.z": "attention.sublayer.heads.z",
    "attn.result": "attention.sublayer.heads.result",
    "attn_out": "attention.sublayer",
    "resid_mid": "attention",
    "mlp.pre": "feed_forward.sublayer.expand",
    "mlp.post": "feed_forward.sublayer.post",
    "mlp_out": "feed_forward.sublayer",
}


class CausalSelfAttention(nn.Module):
    """Causal multi-head attention, with queries, keys and values from one projection."""

    def __init__(self, d_model: int, num_heads: int, dropout: float, rotary: int = 0) -> None:
        super().__init__()
        self.rotary = Rotary(rotary, d_model // num_heads) if rotary else None
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.dropout = Dropout(dropout)
        self.heads = Heads(d_model, num_heads)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, mask: Tensor, ids: Tensor | None = None, *, num_last: int) -> Tensor:
        """x (B, T, C) -> updates (B, L, C) of the last L positions; `attend` explains mask, `Rotary` ids."""
        qkv = project_in(self.qkv, x).chunk(3, dim=-1)
        q, k, v = (split_heads(y, self.heads.num_heads) for y in qkv)  # (B, nh, T, hs)
        if self.rotary is not None:
            q, k = (self.rotary(y, ids) for y in (q, k))
        q = q[..., -num_last:, :]  # (B, nh, L, hs)
        return self.heads(q, k, v, self.out, mask[..., -num_last:, :], self.dropout)  # (B, L, C)


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them, four times as wide inside."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.expand = nn.Linear(d_model, 4 * d_model, bias=False)
        self.post = HookPoint()
        self.out = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.post(F.gelu(self.expand(x))))


class Residual(nn.Module):
    """Pre-norm: ``x + dropout(sublayer(norm(x), ...))``."""

    def __init__(self, sublayer: CausalSelfAttention | FeedForward, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.sublayer = sublayer
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *context: Tensor, num_last: int | None = None) -> Tensor:
        """Embeddings (B, T, C) -> embeddings of the last L positions (B, L, C), by default of all positions."""
        if num_last is None:
            return x + self.dropout(self.sublayer(self.norm(x), *context))
        return x[..., -num_last:, :] + self.dropout(self.sublayer(self.norm(x), *context, num_last=num_last))


class TransformerBlock(nn.Module):
    """Attention, then MLP; an ablated part leaves its residual stream untouched."""

    def __init__(
        self, d_model: int, num_heads: int, dropout: float, attention: bool, feed_forward: bool, rotary: int = 0
    ) -> None:
        super().__init__()
        sublayer = CausalSelfAttention(d_model, num_heads, dropout, rotary) if attention else None
        self.attention = Residual(sublayer, d_model, dropout) if sublayer else None
        self.feed_forward = Residual(FeedForward(d_model), d_model, dropout) if feed_forward else None

    def forward(self, x: Tensor, *context: Tensor, num_last: int) -> Tensor:
        """Embeddings (B, T, C) -> embeddings (B, L, C) of the last L positions; context as in `CausalSelfAttention`."""
        x = x[..., -num_last:, :] if self.attention is None else self.attention(x, *context, num_last=num_last)
        return x if self.feed_forward is None else self.feed_forward(x)


class NanoGPT(Network):
    """Decoder-only Transformer over V tokens, called with prompt and answer as two arguments.

    Args:
        prompt_length, answer_length: tokens, P and m.
        d_model: channels C, a multiple of ``num_heads``.
        dropout: the share of activations that training sets to zero.
        attention, feed_forward, positional_encoding: False removes the component.
        positions: one of `tasks.POSITION_ENCODINGS`.
        layout: places of the task's tokens, which some position encodings need.
    """

    causal_mask: Tensor  # (P + m, P + m) bool

    def __init__(
        self,
        prompt_length: int,
        answer_length: int,
        d_model: int = NET["d_model"],
        num_heads: int = NET["num_heads"],
        num_layers: int = NET["num_layers"],
        dropout: float = NET["dropout"],
        attention: bool = NET["attention"],
        feed_forward: bool = NET["feed_forward"],
        positional_encoding: bool = NET["positional_encoding"],
        positions: str = NET["positions"],
        vocab_size: int = VOCAB_SIZE,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        self.task_sizes = (prompt_length, answer_length, vocab_size)
        length = prompt_length + answer_length
        self.position_encoding = positions if positional_encoding else "none"
        self.padded = layout is not None and layout.padded
        self.embedding = nn.Embedding(vocab_size, d_model)
        # One position is never read: the authors count the last answer token, too.
        self.positions = added_positions(self.position_encoding, length + 1, d_model, layout, math.sqrt(2) * INIT_STD)
        self.dropout = Dropout(dropout)
        rotary = length * (self.position_encoding == "rope")
        block_arguments = (d_model, num_heads, dropout, attention, feed_forward, rotary)
        self.blocks = nn.ModuleList(TransformerBlock(*block_arguments) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.logits = HookPoint()
        self.register_buffer("causal_mask", torch.ones(length, length).triu(1).bool(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() >= 2:  # GPT-2's rule: projections back into the residual stream start smaller
                std = INIT_STD / math.sqrt(2 * num_layers) if name.endswith("out.weight") else INIT_STD
                nn.init.normal_(weight, std=std)

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Prompt (B, P) and ``<start> r_0 .. r_{t-2}`` (B, t) -> logits of r_0 .. r_{t-1} (B, t, V).

        Only answer positions have logits, so the loss ignores the prompt, as the authors' does.
        """
        tokens = torch.cat([memory, answer_in], dim=-1)
        x = self.embedding(tokens)  # (B, P + t, C)
        length = x.shape[-2]
        if self.positions is not None:
            x = self.positions(x, tokens)
        x = self.dropout(x)
        mask = self.causal_mask[:length, :length]
        context = (without_padding(mask, tokens), position_ids(tokens)) if self.padded else (mask,)
        *lower, last = self.blocks
        for block in lower:
            x = block(x, *context, num_last=length)
        x = last(x, *context, num_last=answer_in.shape[-1])  # (B, t, C): nothing reads its output at the prompt
        return self.logits(F.linear(self.norm(x), self.embedding.weight))

    def sites(self) -> dict[str, nn.Module]:
        """The blocks ``dec.1 .. dec.5`` (B, P + m, C), ``dec.6`` (B, m, C; answer only), and their insides."""
        sites = stack_sites("dec", self.embedding, self.dropout, self.blocks, SITES)
        return sites | {"dec.ln_final": self.norm, "logits": self.logits}
