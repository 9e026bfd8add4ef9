"""Erase a concept from embeddings linearly: INLP, mean projection, LEACE, and random erasures as controls.

Whitened coordinates show the difference: ``x - mean = white * scale @ axes.T``, where white has covariance 1. The
directions ``q`` span the correlations of the white coordinates with the concept z, one for each independent column of
z. LEACE removes q in white coordinates. Mean projection removes the span of ``scale * q``, the covariance of x and z.
INLP removes the span of ``q / scale``, the weights of a least-squares probe, and repeats this with what is left.
"""

from dataclasses import dataclass

import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import require_integer, require_type
from ..errors import UserError, warn
from ..seeds import MAX_SEED
from ..system.isolation import isolated
from .tensors import as_reals, finite_matrix

MIN_RELATIVE_DEVIATION = 1e-3  # axes with a smaller deviation, relative to the first, do not count as varying
FLOAT32_EPS = torch.finfo(torch.float32).eps
MIN_EXAMPLES_PER_AXIS = 2
MIN_CORRELATION = torch.finfo(torch.float64).eps ** 0.5


@dataclass(frozen=True)
class Eraser:
    """The map ``x - (x - mean) @ right @ left.T`` on tensors (N, d), computed in float64.

    ``mean`` (d,) is a fixed point. The columns of ``left`` (d, r) span the removed directions; those of ``right``
    (d, r) measure the amount to remove. In an orthogonal projection the two are equal.
    """

    mean: Tensor
    left: Tensor
    right: Tensor

    def __repr__(self) -> str:
        return f"Eraser(rank {self.rank} of {len(self.mean)})"

    @property
    def rank(self) -> int:
        return self.left.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        x = as_reals("activations", x)
        size = x.shape[-1] if x.dim() else 0
        if size != len(self.mean):
            problem = f"an eraser of {len(self.mean)} dimensions does not fit activations of size {size}"
            raise UserError(f"{problem}; expected one that was fitted at the same positions (None: all, concatenated)")
        change = (x.to(self.mean) - self.mean) @ self.right @ self.left.T  # (N, d)
        return (x.to(self.mean) - change).to(x)


@dataclass(frozen=True)
class Whitened:
    """Embeddings (N, d) of rank r as ``mean + white * scale @ axes.T``, to be shared by several fits.

    ``mean`` (d,); ``white`` (N, r), with mean 0 and covariance 1; ``scale`` (r,), standard deviations along the
    principal axes, in descending order; ``axes`` (d, r), orthonormal.
    """

    mean: Tensor
    white: Tensor
    scale: Tensor
    axes: Tensor

    @property
    def rank(self) -> int:
        return len(self.scale)


def whiten(x: Tensor, tolerance: float = FLOAT32_EPS) -> Whitened:
    """Whiten embeddings (N, d) or (N, k, C) of any type, in float64.

    Axes with a deviation below ``tolerance``, a fraction of the largest, hold rounding errors of float32 and are
    dropped. A LayerNorm leaves one such axis for each position. A probe could read its target from these errors, and
    erasing its direction would then erase nothing.
    """
    x = finite_matrix("embeddings", x, "(N, d) or (N, k, C)").to(torch.float64)
    mean = x.mean(dim=0)
    q, r = torch.linalg.qr(x - mean)
    u, s, vh = torch.linalg.svd(r, full_matrices=False)
    varying = s > tolerance * s.max()
    root = len(x) ** 0.5
    return Whitened(mean, q @ u[:, varying] * root, s[varying] / root, vh[varying].T)


@isolated(False)
def leace(x: Tensor | Whitened, z: npt.ArrayLike) -> Eraser:
    """Least-squares concept erasure (Belrose et al., 2023): the smallest change that hides z.

    Of all affine maps after which no linear probe of z does better than the mean, LEACE has the least E|x - r(x)|^2.
    `LeaceEraser` of concept-erasure gives the same for a standardised z without shrinkage.

    Args:
        x: embeddings (N, d), a cached site (N, k, C), whose positions are concatenated, or `whiten` of one of these.
        z: (N,) or (N, k), a tensor or an array, with a number or a bit in each column, in any unit. Constant columns
            are ignored.
    """
    x = _whitened(x)
    q = _correlated_directions(_correlation(x, z))  # (r, k)
    return Eraser(x.mean, left=x.axes * x.scale @ q, right=x.axes / x.scale @ q)


@isolated(False)
def mean_projection(x: Tensor | Whitened, z: npt.ArrayLike) -> Eraser:
    """Orthogonal projection away from the columns of Cov(x, z); arguments as in `leace`.

    For a bit, Cov(x, z) points from the zeros' mean to the ones' mean. As with LEACE, no linear probe then does
    better than the mean. No orthogonal projection with this property has a lower rank.
    """
    x = _whitened(x)
    return project_away(x, mean_directions(x, z))


def mean_directions(x: Whitened, z: npt.ArrayLike, check: bool = True) -> Tensor:
    """The orthonormal directions (d, k) of Cov(x, z); ``check`` warns if the examples are too few for an eraser."""
    q = _correlated_directions(_correlation(x, z, check))  # (r, k)
    return x.axes @ _orthonormalise(x.scale[:, None] * q)


@isolated(False)
def inlp(x: Tensor | Whitened, z: npt.ArrayLike, iterations: int = 2) -> Eraser:
    """Iterative nullspace projection (Ravfogel et al., 2020) of a least-squares probe; the paper uses two iterations.

    Fit a linear probe with intercept, of least norm; project onto the nullspace of its weights; fit the next probe on
    the projected embeddings. Unlike LEACE and mean projection, INLP need not hide z: other directions can hold it.
    """
    require_integer("iterations", iterations, 0)
    x = _whitened(x)
    correlation = _correlation(x, z)
    width = _correlated_directions(correlation).shape[1]
    if iterations * width > x.rank:
        most = f"from 0 to {x.rank // width}" if width else "at least 0"
        takes = f"each removes {width} of the embedding's {x.rank} directions"
        raise UserError(f"iterations={iterations}: expected {most}, since {takes}")
    removed = x.scale.new_zeros(x.rank, 0)  # orthonormal, along the principal axes
    for _ in range(iterations):
        hidden = _orthonormalise(removed / x.scale[:, None])  # white coordinates that the nullspace projection hides
        q = _correlated_directions(correlation - hidden @ (hidden.T @ correlation))
        removed = _orthonormalise(torch.cat([removed, q / x.scale[:, None]], dim=1))
    return project_away(x, x.axes @ removed)


def project_away(x: Whitened, directions: Tensor) -> Eraser:
    return Eraser(x.mean, directions, directions)


def random_basis(d: int, generator: torch.Generator) -> Tensor:
    """Orthonormal directions (d, d), uniformly distributed: the first r of them are a random control of rank r."""
    return _orthonormalise(torch.randn(d, d, generator=generator, dtype=torch.float64))


def project_away_variance(x: Whitened, directions: Tensor, fraction: float) -> Eraser:
    """Remove orthonormal directions (d, n), first to last, until ``fraction`` of the variance of x is removed.

    The last one is removed only in part: ``x - s (x - mean) b b.T``, with s in [0, 1] chosen to reach the fraction.
    """
    variances = (x.scale[:, None] * (x.axes.T @ directions)).square().sum(dim=0)  # (n,)
    remaining = fraction * x.scale.square().sum() - variances.cumsum(dim=0) + variances  # before each direction
    strength = (remaining / variances).clamp(0, 1).sqrt()
    removed = strength > 0
    return Eraser(x.mean, (directions * strength)[:, removed], directions[:, removed])


@isolated(False)
def flip_signs(x: Tensor | Whitened, eraser: Eraser, seed: int | torch.Generator = 0) -> Eraser:
    """Turn an eraser into an eraser of a random concept: reflect it along randomly chosen principal axes of x.

    The reflection keeps the mean and the covariance of x. So the result hides another concept and removes the same
    variance along each principal axis: a fairer control than random directions of the same variance. ``x`` are the
    embeddings on which the eraser was fitted, as in `leace`.
    """
    require_type("eraser", eraser, Eraser)
    if not isinstance(seed, torch.Generator):
        require_integer("seed", seed, 0, MAX_SEED)
        seed = torch.Generator().manual_seed(int(seed))  # NumPy's too
    x = _whitened(x)
    if eraser.mean.shape != x.mean.shape:
        received = f"an eraser of {len(eraser.mean)} dimensions for embeddings of {len(x.mean)}"
        raise UserError(f"flip_signs: received {received}; expected the embeddings on which it was fitted")
    signs = 2.0 * torch.randint(0, 2, (x.rank,), generator=seed, dtype=torch.float64) - 1
    left, right = (x.axes @ (signs[:, None] * (x.axes.T @ side)) for side in (eraser.left, eraser.right))
    return Eraser(eraser.mean, left, right)


def variance_removed(x: Tensor, erased: Tensor) -> float:
    """E|x - r(x)|^2 / tr Cov(x), of embeddings before and after erasure (N, d); 0 for constant embeddings."""
    x = x.to(torch.float64)
    total = (x - x.mean(dim=0)).square().sum()
    return float((x - erased).square().sum() / total) if total > 0 else 0.0


def probe_predictions(x: Whitened, z: Tensor, eraser: Eraser | None = None) -> Tensor:
    """Predictions of z (N, k) by a least-squares probe with intercept, fitted on x or on the erased x."""
    z = _concept(x, z)
    covariance = x.white.T @ (z - z.mean(dim=0)) / len(z)  # (r, k)
    if eraser is not None and eraser.rank and x.rank:
        axes_scaled = x.scale[:, None] * x.axes.T  # (r, d)
        u, s, _ = torch.linalg.svd(axes_scaled - axes_scaled @ eraser.right @ eraser.left.T, full_matrices=False)
        u = u[:, s > FLOAT32_EPS * x.scale[0]]
        covariance = u @ (u.T @ covariance)
    return z.mean(dim=0) + x.white @ covariance


def _whitened(x: Tensor | Whitened) -> Whitened:
    return x if isinstance(x, Whitened) else whiten(x)


def _concept(x: Whitened, z: npt.ArrayLike) -> Tensor:
    return finite_matrix("concept", z, f"({len(x.white)}, k)", (1, 2), len(x.white)).to(x.white)


def _correlation(x: Whitened, concept: npt.ArrayLike, check: bool = True) -> Tensor:
    """Correlations (r, k) of the white coordinates with the columns of a concept that vary."""
    z = _concept(x, concept)
    z = z[:, (z != z[:1]).any(dim=0)]
    if not z.shape[1]:
        warn(f"concept: constant in all {len(z)} examples, so nothing is erased")
    elif check and len(z) < MIN_EXAMPLES_PER_AXIS * x.rank:
        few = f"{len(z)} examples vary along {x.rank} axes, and the fit may not hold for others"
        warn(f"eraser: {few}; expected at least {MIN_EXAMPLES_PER_AXIS * x.rank} examples")
    z = z - z.mean(dim=0)
    return x.white.T @ (z / z.norm(dim=0)) / len(z) ** 0.5


def _correlated_directions(correlation: Tensor) -> Tensor:
    """Orthonormal directions (r, j) that span all correlations above rounding errors; j <= k."""
    u, s, _ = torch.linalg.svd(correlation, full_matrices=False)
    return u[:, s > MIN_CORRELATION]


def _orthonormalise(columns: Tensor) -> Tensor:
    return torch.linalg.qr(columns)[0]
