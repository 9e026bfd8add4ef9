"""Attention as one Triton kernel in each direction, for CUDA: scores, softmax and dropout never leave the chip.

A program computes a few heads of one example of one replica. A row of scores has at most `MAX_LENGTH` entries, so a
head's whole pattern is a block of registers, and the backward pass computes it again. Triton's interpreter
(``TRITON_INTERPRET=1``) runs the kernels on a CPU, for the tests. The plain form is `attention.attend`.
"""

# ruff: noqa: N803 (constants of a kernel are upper-case arguments)
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from .dropout import MULTIPLIERS, SIGNS, drop_threshold

MAX_LENGTH = 64
HEADS_PER_PROGRAM = 2
FIRST_MULTIPLIER = tl.constexpr(MULTIPLIERS[0] & 0xFFFFFFFF)
SECOND_MULTIPLIER = tl.constexpr(MULTIPLIERS[1] & 0xFFFFFFFF)
SIGN_BITS = tl.constexpr(SIGNS & 0xFFFFFFFF)


@triton.jit
def load_rows(base, stride, rows, channels, LENGTH: tl.constexpr, SIZE: tl.constexpr, DOUBLE: tl.constexpr):
    """Load a matrix (LENGTH, SIZE), padded with zeros to the block, as 32-bit numbers, or 64-bit ones if DOUBLE."""
    inside = (rows < LENGTH)[:, None] & (channels < SIZE)[None, :]
    block = tl.load(base + rows[:, None] * stride + channels[None, :], mask=inside, other=0.0)
    return block.to(tl.float64 if DOUBLE else tl.float32)


@triton.jit
def store_rows(base, stride, rows, channels, values, LENGTH: tl.constexpr, SIZE: tl.constexpr):
    inside = (rows < LENGTH)[:, None] & (channels < SIZE)[None, :]
    tl.store(base + rows[:, None] * stride + channels[None, :], values.to(base.dtype.element_ty), mask=inside)


@triton.jit
def product(a, b, TF32: tl.constexpr):
    return tl.dot(a, b, input_precision="tf32" if TF32 else "ieee", out_dtype=a.dtype)


@triton.jit
def weights_and_dropout(
    q, k, mask, key, rows, columns, first, count, scale, keep_scale, threshold,
    T: tl.constexpr, S: tl.constexpr, MASKED: tl.constexpr, DROPOUT: tl.constexpr, TF32: tl.constexpr,
):  # fmt: skip
    """One head's pattern (T, S) without dropout, and its `dropout.keep_mask`; ``first`` numbers its first element."""
    inside = (rows < T)[:, None] & (columns < S)[None, :]
    offsets = rows[:, None] * S + columns[None, :]
    used = inside
    if MASKED:
        used = inside & (tl.load(mask + offsets, mask=inside, other=1) == 0)
    scores = tl.where(used, product(q, tl.trans(k), TF32) * scale, float("-inf"))
    largest = tl.max(scores, axis=1)
    weights = tl.exp(scores - tl.where(largest == float("-inf"), 0.0, largest)[:, None])  # a row outside is empty
    total = tl.sum(weights, axis=1)
    weights = weights / tl.where(total == 0.0, 1.0, total)[:, None]
    factors = tl.full(weights.shape, 1.0, weights.dtype)
    if DROPOUT:
        index, half = first + offsets, (count + 1) // 2
        second = index >= half
        x = (tl.where(second, index - half, index) + tl.load(key)).to(tl.uint32, bitcast=True)
        x = ((x ^ (x >> 16)) * FIRST_MULTIPLIER) ^ tl.load(key + 1).to(tl.uint32, bitcast=True)
        x = (x ^ (x >> 15)) * SECOND_MULTIPLIER
        x = (x ^ (x >> 16)) ^ SIGN_BITS
        keep = tl.where(second, x, x << 16).to(tl.int32, bitcast=True) >= threshold
        factors = tl.where(keep, keep_scale, 0.0).to(weights.dtype)
    return weights, factors


@triton.jit
def forward_kernel(
    q_base, k_base, v_base, mask, keys, z_base,
    q_example, q_token, k_example, k_token, v_example, v_token, examples, keep_scale, threshold,
    T: tl.constexpr, S: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
    MASKED: tl.constexpr, DROPOUT: tl.constexpr, TF32: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """z (N, T, HEADS, SIZE), contiguous, for the N examples of all replicas: ``examples`` for each, and a key (2,)."""
    n = (tl.program_id(0) // (HEADS // GROUP)).to(tl.int64)
    rows, columns, channels = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_C)
    for i in range(GROUP):
        head = tl.program_id(0) % (HEADS // GROUP) * GROUP + i
        q = load_rows(q_base + n * q_example + head * SIZE, q_token, rows, channels, T, SIZE, DOUBLE)
        k = load_rows(k_base + n * k_example + head * SIZE, k_token, columns, channels, S, SIZE, DOUBLE)
        v = load_rows(v_base + n * v_example + head * SIZE, v_token, columns, channels, S, SIZE, DOUBLE)
        weights, factors = weights_and_dropout(
            q, k, mask, keys + n // examples * 2, rows, columns, ((n % examples).to(tl.int32) * HEADS + head) * T * S,
            examples * HEADS * T * S, 1 / tl.sqrt(tl.full((1, 1), SIZE, q.dtype)), keep_scale, threshold,
            T, S, MASKED, DROPOUT, TF32,
        )  # fmt: skip
        z = product(weights * factors, v, TF32)
        store_rows(z_base + (n * T * HEADS + head) * SIZE, HEADS * SIZE, rows, channels, z, T, SIZE)


@triton.jit
def backward_kernel(
    q_base, k_base, v_base, mask, keys, dz_base, dq_base, dk_base, dv_base,
    q_example, q_token, k_example, k_token, v_example, v_token, examples, keep_scale, threshold,
    T: tl.constexpr, S: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
    MASKED: tl.constexpr, DROPOUT: tl.constexpr, TF32: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """The gradients of q, k and v from the gradient of z, all contiguous; other arguments as in `forward_kernel`."""
    n = (tl.program_id(0) // (HEADS // GROUP)).to(tl.int64)
    rows, columns, channels = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_C)
    for i in range(GROUP):
        head = tl.program_id(0) % (HEADS // GROUP) * GROUP + i
        q = load_rows(q_base + n * q_example + head * SIZE, q_token, rows, channels, T, SIZE, DOUBLE)
        k = load_rows(k_base + n * k_example + head * SIZE, k_token, columns, channels, S, SIZE, DOUBLE)
        v = load_rows(v_base + n * v_example + head * SIZE, v_token, columns, channels, S, SIZE, DOUBLE)
        scale = 1 / tl.sqrt(tl.full((1, 1), SIZE, q.dtype))
        weights, factors = weights_and_dropout(
            q, k, mask, keys + n // examples * 2, rows, columns, ((n % examples).to(tl.int32) * HEADS + head) * T * S,
            examples * HEADS * T * S, scale, keep_scale, threshold, T, S, MASKED, DROPOUT, TF32,
        )  # fmt: skip
        own_q, own_k, token = (n * T * HEADS + head) * SIZE, (n * S * HEADS + head) * SIZE, HEADS * SIZE
        dz = load_rows(dz_base + own_q, token, rows, channels, T, SIZE, DOUBLE)
        dv = product(tl.trans(weights * factors), dz, TF32)
        dw = product(dz, tl.trans(v), TF32) * factors
        ds = weights * (dw - tl.sum(weights * dw, axis=1)[:, None]) * scale
        store_rows(dq_base + own_q, token, rows, channels, product(ds, k, TF32), T, SIZE)
        store_rows(dk_base + own_k, token, columns, channels, product(tl.trans(ds), q, TF32), S, SIZE)
        store_rows(dv_base + own_k, token, columns, channels, dv, S, SIZE)


def launch(
    kernel: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keys: Tensor | None, p: float, *others: Tensor
) -> None:
    # Heads, and channels within a head, must be adjacent in memory; `q` may be a slice of one projection's output.
    q, k, v = (x if x.stride()[2:] == (x.shape[3], 1) else x.contiguous() for x in (q, k, v))
    (n, t, heads, size), s = q.shape, k.shape[1]
    group = math.gcd(heads, HEADS_PER_PROGRAM)
    block_t, block_s, block_c = (max(16, triton.next_power_of_2(length)) for length in (t, s, size))
    unused = torch.empty(1, dtype=torch.int32, device=q.device)
    wrap_triton(kernel)[(n * heads // group,)](
        q, k, v, unused if mask is None else mask.contiguous().view(torch.uint8),
        unused if keys is None else keys.contiguous(), *others,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], n if keys is None else n // len(keys),
        1 / (1 - p), drop_threshold(p),
        T=t, S=s, HEADS=heads, SIZE=size, GROUP=group, BLOCK_T=block_t, BLOCK_S=block_s, BLOCK_C=block_c,
        MASKED=mask is not None, DROPOUT=keys is not None,
        TF32=torch.get_float32_matmul_precision() != "highest", DOUBLE=q.dtype == torch.float64,
        num_warps=max(1, block_t * block_s // 512),
    )  # fmt: skip


@triton_op("arith_erd::attention", mutates_args={})
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keys: Tensor | None, p: float) -> Tensor:
    """q (N, T, nh, hs), k and v (N, S, nh, hs) -> (N, T, nh, hs), contiguous.

    ``mask`` (T, S) is True at keys to ignore. ``keys`` (R, 2) int32 are the dropout keys of R replicas; None means no
    dropout. Each replica has N / R consecutive examples.
    """
    z = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    launch(forward_kernel, q, k, v, mask, keys, p, z)
    return z


@triton_op("arith_erd::attention_backward", mutates_args={})
def attention_backward(
    dz: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, keys: Tensor | None, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v from the gradient of z."""
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    launch(backward_kernel, q, k, v, mask, keys, p, dz.contiguous(), dq, dk, dv)
    return dq, dk, dv


def keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.p = inputs
    ctx.save_for_backward(*tensors)


def differentiate(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
    return *attention_backward(dz, *ctx.saved_tensors, ctx.p), None, None, None


def stack(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    """Under `torch.func.vmap` all replicas are one launch. They share the mask."""
    *tensors, mask, keys, p = inputs
    assert in_dims[3] is None
    tensors = [
        (x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
        for x, dim in zip((*tensors, keys), (*in_dims[:3], in_dims[4]), strict=True)
        if x is not None
    ]
    z = attention(*tensors[:3], mask, None if keys is None else tensors[3], p)
    return z.unflatten(0, (info.batch_size, -1)), 0


attention.register_autograd(differentiate, setup_context=keep_inputs)
attention.register_vmap(stack)
