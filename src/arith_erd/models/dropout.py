"""Dropout without a generator: a mask is a pure function of (seed, step, site in the network, element).

So a replica drops the same activations alone or in a pack, on any device, and after a resume.
"""

import torch
from torch import Tensor, nn

from ..errors import bad_value

MULTIPLIERS = (0x7FEB352D, 0x846CA68B - (1 << 32))  # constants of "lowbias32", a published integer hash with low bias
SIGNS = 0x80008000 - (1 << 32)  # with these bits flipped, both halves of an int32 compare like unsigned numbers


def _xor_shift(x: Tensor, bits: int) -> Tensor:
    """``x ^ (x >> bits)`` with the logical shift that int32 lacks: the copies of the sign bit are masked away."""
    return x ^ ((x >> bits) & ((1 << (32 - bits)) - 1))


def hash32(x: Tensor, key: Tensor | int = 0) -> Tensor:
    """Hash int32 numbers; each ``key`` gives another bijection. Overflow wraps the same way on every device."""
    x = _xor_shift(x, 16) * MULTIPLIERS[0]
    x = _xor_shift(x ^ key, 15) * MULTIPLIERS[1]
    return _xor_shift(x, 16)


def drop_threshold(p: float) -> int:
    """The smallest random int32 number that keeps an element; only the upper 16 bits of a random number count."""
    return (min(round(p * (1 << 16)), (1 << 16) - 1) - (1 << 15)) << 16


def keep_mask(key: Tensor, shape: torch.Size, p: float, batch_axis: int = 0) -> Tensor:
    """Float mask of ``shape``: 0 with probability ``p`` (rounded to 1/65536), else ``1 / (1 - p)``.

    One hash serves two elements, 16 bits each: one in the first half of the mask and one in the second. The key, (2,)
    int32, differs for each seed, step and site. Elements are numbered as if the axis of examples came first, so an
    example has the same mask in any memory layout.
    """
    count = shape.numel()
    batch_first = shape[batch_axis : batch_axis + 1] + shape[:batch_axis] + shape[batch_axis + 1 :]
    half = (count + 1) // 2
    threshold = drop_threshold(p)
    if torch.compiler.is_compiling():
        # The same mask, element by element: Inductor does not vectorise concatenation, and hashes are cheap. Permute
        # the numbers before hashing them, so that Inductor writes the mask in the order in which it is read.
        index = torch.arange(count, dtype=torch.int32, device=key.device).view(batch_first).movedim(0, batch_axis)
        second = index >= half
        random = hash32(torch.where(second, index - half, index) + key[0], key[1]) ^ SIGNS
        keep = torch.where(second, random, random << 16) >= threshold
    else:
        random = hash32(torch.arange(half, dtype=torch.int32, device=key.device) + key[0], key[1]) ^ SIGNS
        keep = torch.cat([(random << 16) >= threshold, random >= threshold])[:count]
        keep = keep.view(batch_first).movedim(0, batch_axis)
    return keep * (1 / (1 - p))


class Dropout(nn.Module):
    """Inverted dropout whose mask is a function of ``key``, a buffer that is set before each training step."""

    key: Tensor | None  # (2,) int32

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise bad_value("dropout", p, "a probability below 1")
        self.p = p
        self.register_buffer("key", None, persistent=False)

    def forward(self, x: Tensor, batch_axis: int = 0) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.key is None:
            wanted = "call eval(), or arith_erd.models.dropout.set_dropout_keys before each step"
            raise RuntimeError(f"Dropout in training mode needs a key: {wanted}")
        return x * keep_mask(self.key, x.shape, self.p, batch_axis)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def dropout_sites(network: nn.Module) -> list[str]:
    """Names of the `Dropout` modules, in the order in which the network defines them."""
    return [name for name, module in network.named_modules() if isinstance(module, Dropout)]


def set_dropout_keys(network: nn.Module, key: Tensor, step: int = 0) -> None:
    """Set the key of every `Dropout` of one network for a step, from the replica's key (2,) int32, as a pack does."""
    sites = dropout_sites(network)
    for site, site_key in zip(sites, dropout_keys(key[None], step, len(sites))[0], strict=True):
        network.get_submodule(site).key = site_key


def dropout_keys(replica_keys: Tensor, step: int, sites: int) -> Tensor:
    """Dropout keys (R, sites, 2) int32 of one training step, from replica keys (R, 2) int32."""
    site = torch.arange(sites, dtype=torch.int32, device=replica_keys.device)
    in_step = hash32(replica_keys + step, replica_keys.flip(-1))  # (R, 2)
    return hash32(in_step[:, None, :] + site[:, None], in_step.flip(-1)[:, None, :])
