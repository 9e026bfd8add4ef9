"""A place inside a layer where probes read or replace a tensor."""

from torch import Tensor, nn


class HookPoint(nn.Module):
    """The identity, so that a tensor which no module returns can be hooked; after TransformerLens' class of that name.

    It has no parameters and disappears from compiled graphs.

    Args:
        position_axis: the axis of the tensor that counts positions; 1 everywhere but in attention patterns.
    """

    def __init__(self, position_axis: int = 1) -> None:
        super().__init__()
        self.position_axis = position_axis

    @property
    def watched(self) -> bool:
        """Whether anyone reads or replaces the tensor. What training never needs is computed only then."""
        return len(self._forward_hooks) > 0

    def forward(self, x: Tensor) -> Tensor:
        return x


def position_axis(module: nn.Module) -> int:
    """The axis that counts positions in what a module returns: (B, T, ...), unless it is a `HookPoint` that says so."""
    return module.position_axis if isinstance(module, HookPoint) else 1
