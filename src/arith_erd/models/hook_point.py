"""A place inside a layer where probes read or replace a tensor."""

from torch import Tensor, nn


class HookPoint(nn.Module):
    """The identity. It makes an intermediate tensor hookable, like TransformerLens' class of the same name.

    It has no parameters and disappears from compiled graphs.

    Args:
        position_axis: the tensor's axis of positions: 1, except in attention patterns.
    """

    def __init__(self, position_axis: int = 1) -> None:
        super().__init__()
        self.position_axis = position_axis

    @property
    def watched(self) -> bool:
        """Whether a probe reads or replaces the tensor. Tensors that training does not need are computed only then."""
        return len(self._forward_hooks) > 0

    def forward(self, x: Tensor) -> Tensor:
        return x


def position_axis(module: nn.Module) -> int:
    """The axis of positions in a module's output: 1, unless it is a `HookPoint` with another."""
    return module.position_axis if isinstance(module, HookPoint) else 1
