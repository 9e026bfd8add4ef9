"""An invertible network. With it `fit_das` can search for variables that no linear subspace carries."""

import torch
from torch import Tensor, nn

from ..checks import require_integer
from .tensors import finite_matrix


class CouplingLayers(nn.Module):
    """A fixed rotation, then layers that add a learned function of one half of the features to the other half.

    Subtraction undoes each layer, so the whole is invertible (RevNet: Gomez et al., 2017, 1707.04585). At the start it
    is just the rotation, drawn from PyTorch's global generator.

    Args:
        size: the size d of the activations; for all positions together, positions times channels.
        directions: orthonormal columns (d, r), such as ``subspace.directions``; the first r features start as these.
    """

    def __init__(self, size: int, num_layers: int = 4, hidden: int = 128, directions: Tensor | None = None) -> None:
        super().__init__()
        for name, number in (("size", size), ("num_layers", num_layers), ("hidden", hidden)):
            require_integer(name, number, 1 if name != "size" else 2)
        columns = torch.randn(size, size)
        if directions is not None:
            directions = finite_matrix("CouplingLayers", directions, f"directions ({size}, r)", (2,), size).to(columns)
            columns = torch.cat([directions, columns], dim=1)[:, :size]
        basis = torch.linalg.qr(columns)[0]
        if directions is not None:  # QR may turn their signs
            basis[:, : directions.shape[1]] = directions
        self.basis = nn.Buffer(basis)
        self.first = (size + 1) // 2
        self.layers = nn.ModuleList()
        for layer in range(num_layers):
            read, written = (size - self.first, self.first)[:: 1 if layer % 2 == 0 else -1]
            last = nn.Linear(hidden, written)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
            self.layers.append(nn.Sequential(nn.Linear(read, hidden), nn.ReLU(), last))

    def forward(self, x: Tensor) -> Tensor:
        """Activations (N, d) -> features (N, d)."""
        halves = [*(x @ self.basis).split(self.first, dim=1)]
        for i, layer in enumerate(self.layers):
            halves[i % 2] = halves[i % 2] + layer(halves[1 - i % 2])
        return torch.cat(halves, dim=1)

    def inverse(self, features: Tensor) -> Tensor:
        """Features (N, d) -> activations (N, d)."""
        halves = [*features.split(self.first, dim=1)]
        for i, layer in reversed([*enumerate(self.layers)]):
            halves[i % 2] = halves[i % 2] - layer(halves[1 - i % 2])
        return torch.cat(halves, dim=1) @ self.basis.T
