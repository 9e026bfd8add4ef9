"""Attention that is fast on the sizes of these models: thousands of rows with 8 to 30 entries."""

import math
import os
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from ..errors import bad_value
from .dropout import Dropout
from .network import HookPoint
from .positions import Rotary


def variant(x: Tensor) -> str:
    """The name of the variant that computes attention: without compilation always ``library``, which is `attend`."""
    if not torch.compiler.is_compiling():
        return "library"
    return CHOSEN or ("innermost" if x.device.type == "cpu" else "library")


def batch_innermost(x: Tensor) -> bool:
    """Whether attention keeps examples side by side in memory, by default when compiled for a CPU.

    A product of 15 x 8 with 8 x 15 is too small for any library. The compiler instead vectorises a loop over
    neighbouring examples, and a layer takes 0.8 of the time. Without compilation a sum of products would store every
    product.
    """
    return variant(x) == "innermost"


def project_in(linear: nn.Linear, x: Tensor) -> Tensor:
    """``linear(x)``, (B, T, C) -> (B, T, F). If `batch_innermost`, the result lies in memory as (F, T, B)."""
    if not batch_innermost(x):
        return linear(x)
    columns = x.transpose(0, 1).flatten(0, 1).T  # (C, T B)
    y = linear.weight @ columns if linear.bias is None else torch.addmm(linear.bias[:, None], linear.weight, columns)
    return y.unflatten(1, (x.shape[1], x.shape[0])).permute(2, 1, 0)


def project_out(linear: nn.Linear, x: Tensor) -> Tensor:
    """``linear(x)``, (B, T, C) -> (B, T, F); if `batch_innermost`, x lies in memory as (C, T, B)."""
    if not batch_innermost(x):
        return linear(x)
    rows = x.permute(2, 1, 0).flatten(1).T  # (T B, C)
    return linear(rows).unflatten(0, (x.shape[1], x.shape[0])).transpose(0, 1)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, C) -> (B, nh, T, hs)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: Dropout | None = None,
    pattern: HookPoint | None = None,
) -> Tensor:
    """Scaled dot-product attention: q (B, nh, T, hs), k and v (B, nh, S, hs) -> (B, nh, T, hs).

    The softmax is written out, and normalised after the product with ``v``. Over rows of 15 it takes 0.4 ms on two CPU
    cores, `Tensor.softmax` 2.0 ms. Fused attention kernels have no batching rule for `vmap`.

    ``mask`` (T, S), or (B, 1, T, S) if it differs by example, is True at keys that a query must ignore. ``pattern`` is
    the hook point of the weights (B, nh, T, S).
    """
    hooked = pattern is not None and pattern.is_hooked
    if not hooked and (chosen := variant(q)) != "library":
        return ATTENTION[chosen](q, k, v, mask, dropout)
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (B, nh, T, S)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    weights = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    normaliser = weights.sum(-1, keepdim=True).reciprocal()  # (B, nh, T, 1)
    if pattern is not None and hooked:
        weights = pattern(weights * normaliser)
        return (weights if dropout is None else dropout(weights)) @ v
    if dropout is not None:
        weights = dropout(weights)
    return weights @ v * normaliser


def attend_innermost(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: Dropout | None = None
) -> Tensor:
    """`attend` on tensors that lie in memory as (nh, hs, T, B)."""
    q, k, v = (x.permute(1, 3, 2, 0) for x in (q, k, v))  # (nh, hs, T or S, B)
    scores = (q[:, :, :, None] * k[:, :, None]).sum(1)  # (nh, T, S, B)
    if mask is not None:
        mask = mask[..., None] if mask.dim() == 2 else mask.permute(1, 2, 3, 0)
        scores = scores.masked_fill(mask, float("-inf"))
    weights = ((scores - scores.detach().amax(2, keepdim=True)) * (1 / math.sqrt(q.shape[1]))).exp()
    weights = weights * weights.sum(2, keepdim=True).reciprocal()
    if dropout is not None:
        weights = dropout(weights, batch_axis=3)
    z = (weights[:, None] * v[:, :, None]).sum(3)  # (nh, hs, T, B)
    return z.permute(3, 0, 2, 1)


def attend_triton(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: Dropout | None = None
) -> Tensor:
    """`attend` by our own CUDA kernel. Long sequences and masks that differ by example use loops."""
    from .triton_attention import MAX_LENGTH, attention  # not at the top: only torch for CUDA includes Triton

    if max(q.shape[-2], k.shape[-2]) > MAX_LENGTH or (mask is not None and mask.dim() > 2):
        return attend_innermost(q, k, v, mask, dropout)
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (B, T or S, nh, hs)
    if dropout is None or not dropout.training or dropout.p == 0:
        return attention(q, k, v, mask, None, 0.0).transpose(-3, -2)
    return attention(q, k, v, mask, dropout.key[None], dropout.p).transpose(-3, -2)  # type: ignore[index]


ATTENTION: dict[str, Callable[..., Tensor]] = {"innermost": attend_innermost}
if find_spec("triton"):
    ATTENTION["triton"] = attend_triton
"""Variants of `attend` for compiled packs, by name. They are equal up to rounding, with the same dropout masks."""

CHOSEN = os.environ.get("ARITH_ERD_ATTENTION")
"""The variant of compiled attention, for measurements; None for the device's default. Run names do not contain it."""
if CHOSEN not in (None, "library", *ATTENTION):
    raise bad_value("ARITH_ERD_ATTENTION", CHOSEN, f"library, {', '.join(ATTENTION)}, or no such variable")


class Heads(nn.Module):
    """Attention after its projections: the pattern, the heads' outputs, and their sum.

    ``pattern`` (B, nh, T, S), ``z`` (B, T, nh, hs) and ``result`` (B, T, nh, C) are hook points.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1 or d_model % num_heads:
            raise bad_value("d_model", d_model, f"a multiple of num_heads={num_heads}")
        self.num_heads = num_heads
        self.pattern = HookPoint(position_axis=2)
        self.z = HookPoint()
        self.result = HookPoint()

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: nn.Linear,
        mask: Tensor | None = None,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """q (B, nh, T, hs), k and v (B, nh, S, hs) -> (B, T, C), by the projection ``out`` of all heads together."""
        z = attend(q, k, v, mask, dropout, self.pattern)
        z = self.z(z.transpose(-3, -2))  # (B, T, nh, hs)
        if not self.result.is_hooked:
            return project_out(out, z.flatten(-2))
        weight = out.weight.unflatten(1, (self.num_heads, -1))  # (C, nh, hs)
        total = self.result(torch.einsum("btnh,cnh->btnc", z, weight)).sum(-2)  # (B, T, C)
        return total if out.bias is None else total + out.bias


class MultiHeadAttention(nn.Module):
    """Multi-head attention with queries from one sequence, keys and values from another or the same one."""

    def __init__(self, d_model: int, num_heads: int, rotary: int = 0) -> None:
        super().__init__()
        self.rotary = Rotary(rotary, d_model // num_heads) if rotary else None
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.heads = Heads(d_model, num_heads)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, T, C), memory (B, S, C) -> (B, T, C)."""
        q, k, v = (
            split_heads(project_in(f, y), self.heads.num_heads)
            for f, y in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        return self.heads(q, k, v, self.out, mask)
