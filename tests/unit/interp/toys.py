"""Networks that compute in a known way, whose only layer is ``dec.1``."""

import torch
from torch import Tensor, nn

from arith_erd.digits import ONE, VOCAB_SIZE, ZERO
from arith_erd.interp.causal_model import CausalModel
from arith_erd.models import Network
from arith_erd.tasks import Task

CHANNELS = 8


class Toy(Network):
    """Knows every variable of its task by heart, and looks it up by the prompt."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.bits = task.bits
        self.values = {name: torch.as_tensor(v) for name, v in CausalModel(task).table.items()}
        self.site = nn.Identity()
        self.eval()

    def encode(self, prompt: Tensor) -> Tensor:
        places = 2 ** torch.arange(self.bits)
        a, b = ((part - ZERO) @ places for part in (prompt[:, : self.bits], prompt[:, self.bits + 1 :]))
        return a * 2**self.bits + b

    def at(self, name: str, memory: Tensor, length: int) -> Tensor:
        """A variable (B, T) at the first positions of the answer."""
        return self.values[name][memory][:, :length].float()

    def sites(self) -> dict[str, nn.Module]:
        return {"dec.1": self.site}


def logits(score: Tensor) -> Tensor:
    """Answer 1 where the score (B, T) is positive: (B, T, V)."""
    out = torch.full((*score.shape, VOCAB_SIZE), -100.0)
    out[..., ONE], out[..., ZERO] = score, -score
    return out


class InDirections(Toy):
    """Holds carry and xor as +-1 along two directions, with noise along the others, and multiplies them."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        generator = torch.Generator().manual_seed(0)
        self.basis = torch.linalg.qr(torch.randn(CHANNELS, CHANNELS, generator=generator))[0]
        shape = (4**task.bits, task.width, CHANNELS - 2)
        self.noise = torch.randn(shape, generator=generator)

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        length = answer_in.shape[1]
        signs = [2 * self.at(name, memory, length) - 1 for name in ("carry", "xor")]
        features = torch.cat([torch.stack(signs, dim=-1), self.noise[memory, :length]], dim=-1)
        x = self.site(features @ self.basis.T)  # (B, T, C)
        carry, xor = (x @ self.basis)[..., :2].unbind(-1)
        return logits(-3 * carry * xor)


class OneNumber(Toy):
    """Holds the sum, in units of ten, along the same direction at every position, beside noise."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.noise = InDirections(task).noise

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        length = answer_in.shape[1]
        number = (self.values["sum"][memory].float()[:, None, None] / 10).expand(-1, length, -1)
        x = self.site(torch.cat([number, self.noise[memory, :length] / 100], dim=-1))
        half_turns = (10 * x[..., 0] + 0.5) / 2 ** torch.arange(length)
        return logits(-10 * torch.sin(torch.pi * half_turns))  # bit t is 1 in every second half turn
