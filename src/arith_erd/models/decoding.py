"""Greedy decoding, and why it is rarely needed.

Greedy decoding gives the right sequence if and only if every token is the likeliest one after the right prefix. So
one teacher-forced forward pass gives the exact autoregressive sequence accuracy. Only sequences that fail need to be
decoded, and only where the wrong answer itself is of interest.
"""

from functools import partial

import torch
from torch import Tensor, nn

from ..bits import PAD, START
from .network import Network

BATCH = 256


def shift_right(completion: Tensor) -> Tensor:
    """Completion ``r_0 .. r_{m-1}`` (..., m) -> decoder input ``<start> r_0 .. r_{m-2}`` (..., m)."""
    start = torch.full_like(completion[..., :1], START)
    return torch.cat([start, completion[..., :-1]], dim=-1)


@torch.no_grad()
def greedy(network: nn.Module, prompt: Tensor, length: int) -> Tensor:
    """Append the likeliest token ``length`` times: prompts (N, P) -> tokens (N, length).

    A `Network` encodes each prompt once; any other module runs as a whole for each token.
    """
    batches = []
    for part in prompt.split(BATCH):
        step = partial(network.decode, network.encode(part)) if isinstance(network, Network) else partial(network, part)
        answer = torch.full((len(part), 1), START, dtype=prompt.dtype, device=prompt.device)
        for t in range(length):
            token = step(answer)[:, t].argmax(dim=-1, keepdim=True)
            answer = torch.cat([answer, token], dim=-1)
        batches.append(answer[:, 1:])
    return torch.cat(batches)


@torch.no_grad()
def teacher_forced_tokens(network: nn.Module, prompt: Tensor, completion: Tensor) -> Tensor:
    """The likeliest token (N, m) at each place after the right ones before it: (N, P), (N, m). Unused tokens stay."""
    parts = zip(prompt.split(BATCH), completion.split(BATCH), strict=True)
    return _unused_stay(torch.cat([network(p, shift_right(c)).argmax(dim=-1) for p, c in parts]), completion)


@torch.no_grad()
def greedy_tokens(network: nn.Module, prompt: Tensor, completion: Tensor) -> Tensor:
    """The result of `greedy`, decoded only where teacher forcing fails: (N, P), (N, m) -> tokens (N, m)."""
    result = completion.clone()
    failed = (teacher_forced_tokens(network, prompt, completion) != completion).any(dim=-1)
    result[failed] = greedy(network, prompt[failed], completion.shape[-1])
    return _unused_stay(result, completion)


def sequence_correct(predicted: Tensor, completion: Tensor) -> Tensor:
    """Which answers (..., N) are right in all tokens that they use: (..., N, m), completions (N, m)."""
    return ((predicted == completion) | (completion == PAD)).all(dim=-1)


def _unused_stay(predicted: Tensor, completion: Tensor) -> Tensor:
    return predicted.where(completion != PAD, completion)
