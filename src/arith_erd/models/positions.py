"""Position encodings, selected by ``model.net.positions``.

``learned`` and ``sinusoidal`` number the tokens of a sequence. ``rope`` (Su et al. 2021) rotates queries and keys by
angles that grow with the token's number. ``abacus`` (McLeish et al. 2024) and ``coupled`` (Cho et al. 2024, "position
coupling") add the same learned vector to all digits of one place, in operands and answer. If operands have several
lengths, training shifts an example's places by a random number, up to the places of the longest operands, so that all
vectors are trained. ``coupled`` also shifts operator and ``<start>``; ``abacus`` does not. At one length they agree.
"""

import math

import torch
from torch import Tensor, nn

from ..digits import PAD
from ..errors import UserError, bad_value
from ..tasks import POSITION_ENCODINGS, Layout
from .dropout import Dropout, hash32

DIGIT_PLACE_ENCODINGS = ("abacus", "coupled")


def sinusoids(length: int, channels: int) -> Tensor:
    """Fixed vectors (T, C): sines in even channels, cosines in odd ones (Vaswani et al. 2017, section 3.5)."""
    frequency = torch.exp(torch.arange(0, channels, 2) * (-math.log(10000.0) / channels))
    angle = torch.arange(length)[:, None] * frequency  # (T, C / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :channels]


def position_ids(tokens: Tensor) -> Tensor:
    """The number of each token in its sequence, from 0: (B, T) -> (B, T). Padding does not count."""
    return ((tokens != PAD).cumsum(-1) - 1).clamp(min=0)


def without_padding(mask: Tensor, tokens: Tensor) -> Tensor:
    """Also mask padding, except for the query at the same position: mask (T, T), tokens (B, T) -> (B, 1, T, T)."""
    itself = torch.eye(len(mask), dtype=torch.bool, device=mask.device)
    return mask | ((tokens == PAD)[:, None, None, :] & ~itself)


class RandomOffset(Dropout):
    """A random number for each example during training, 0 otherwise; a function of the key, like dropout."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def forward(self, x: Tensor, batch_axis: int = 0) -> Tensor:
        """Largest numbers (B, 1) -> random numbers (B, 1), from 0 to the largest."""
        if not self.training or self.key is None:
            return torch.zeros_like(x)
        index = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
        return (hash32(index + self.key[0], self.key[1]).long() & 0xFFFF)[:, None] % (x + 1)


class IndexEmbedding(nn.Module):
    """Add a vector for the number of each token: learned, or sinusoids of amplitude ``amplitude``."""

    weight: Tensor  # (T, C)

    def __init__(self, length: int, d_model: int, padded: bool, amplitude: float | None = None) -> None:
        super().__init__()
        self.padded = padded
        if amplitude is None:
            self.weight = nn.Parameter(nn.init.normal_(torch.empty(length, d_model)))
        else:
            self.register_buffer("weight", amplitude * sinusoids(length, d_model), persistent=False)

    def forward(self, x: Tensor, tokens: Tensor, first: int = 0) -> Tensor:
        """Add positions to embeddings (B, T, C) of tokens (B, T), counted from 0 in each stack; ignores ``first``."""
        if self.padded:
            return x + self.weight[position_ids(tokens)]
        return x + self.weight[: x.shape[-2]]


class DigitPlaceEmbedding(nn.Module):
    """Add a learned vector for the place of each digit, and one for all tokens that are not digits."""

    places: Tensor  # (P + m,), 0 for tokens that are not digits

    def __init__(self, layout: Layout, d_model: int, shifts_all_tokens: bool) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor(layout.places) + 1, persistent=False)
        self.shift = RandomOffset() if layout.padded else None
        self.shifts_all_tokens = shifts_all_tokens
        # A shifted place can be one larger: the place of the answer's last digit, which full length never reads.
        rows = max(layout.places) + 2 + layout.padded
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(rows, d_model)))

    def forward(self, x: Tensor, tokens: Tensor, first: int = 0) -> Tensor:
        """Add positions to embeddings (B, T, C) of tokens (B, T), which start at index ``first`` of the sequence."""
        places = self.places[first : first + x.shape[-2]]
        if self.shift is None:
            return x + self.weight[places]
        places = places * (tokens != PAD)  # (B, T)
        shift = self.shift(len(self.weight) - 1 - places.amax(-1, keepdim=True))
        return x + self.weight[places + (shift if self.shifts_all_tokens else shift * (places > 0))]


def added_positions(
    position_encoding: str, length: int, d_model: int, layout: Layout | None, amplitude: float = 1.0
) -> IndexEmbedding | DigitPlaceEmbedding | None:
    """The module that adds positions to the embeddings of up to ``length`` tokens; None for ``rope`` and ``none``.

    ``amplitude`` is that of fixed vectors, and should not exceed the amplitude of the token embeddings.
    """
    if position_encoding not in POSITION_ENCODINGS:
        raise bad_value("positions", position_encoding, f"one of {', '.join(POSITION_ENCODINGS)}")
    if position_encoding in ("none", "rope"):
        return None
    if position_encoding in DIGIT_PLACE_ENCODINGS:
        if layout is None:
            raise UserError(f"positions={position_encoding}: expected layout=, such as task.layout")
        return DigitPlaceEmbedding(layout, d_model, position_encoding == "coupled")
    padded = layout is not None and layout.padded
    return IndexEmbedding(length, d_model, padded, amplitude if position_encoding == "sinusoidal" else None)


class Rotary(nn.Module):
    """RoPE: rotates channels i and i + hs / 2 of a head by the angle ``number / 10000^(2 i / hs)``."""

    cos: Tensor  # (T, hs / 2)
    sin: Tensor

    def __init__(self, length: int, head_size: int) -> None:
        super().__init__()
        if head_size % 2:
            raise UserError(f"positions=rope: received {head_size} channels a head; expected an even number")
        angle = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, head_size, 2) / head_size)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor, ids: Tensor | None = None) -> Tensor:
        """Rotate queries or keys (B, nh, T, hs) at positions ``ids`` (B, T), by default 0 .. T - 1."""
        rows = slice(x.shape[-2]) if ids is None else ids[:, None]
        cos, sin = self.cos[rows], self.sin[rows]
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
