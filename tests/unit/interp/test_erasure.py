"""Erasers hide the concept, change as little as they can, and agree with an independent implementation."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from arith_erd.errors import UserError
from arith_erd.interp.erasure import (
    Eraser,
    flip_signs,
    inlp,
    leace,
    mean_projection,
    probe_predictions,
    project_away,
    project_away_variance,
    random_basis,
    variance_removed,
    whiten,
)

N, D, DEAD = 500, 12, 2


def embeddings(seed: int = 0) -> Tensor:
    """Embeddings: correlated, far from the origin, of very different scales, without variance in two directions."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D - DEAD, generator=g, dtype=torch.float64) * torch.logspace(0, -3, D - DEAD)
    return x @ torch.randn(D - DEAD, D, generator=g, dtype=torch.float64) + 5


def concept(x: Tensor, kind: str) -> Tensor:
    """A number in large units, two numbers, or three bits of which one is constant."""
    latent = x[:, :2] @ torch.tensor([[1.0, 0.3], [-2.0, 1.0]], dtype=torch.float64)
    latent = latent + 0.1 * torch.randn(N, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    if kind == "number":
        return 100 * latent[:, :1]
    return latent if kind == "numbers" else torch.hstack([(latent > latent.mean(0)).long(), torch.ones(N, 1)])


def fresh_probe(x: Tensor, z: Tensor) -> np.ndarray:
    """Predictions of z by scikit-learn's least squares, from directions where x varies by more than rounding errors."""
    centred = (x - x.mean(dim=0)).numpy()
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = u[:, s > 1e-9 * np.sqrt(len(x))]
    return LinearRegression().fit(coordinates, z).predict(coordinates)


KINDS = {"number": 1, "numbers": 2, "bits": 2}  # and their ranks


def fitted(x: Tensor, z: Tensor) -> dict[str, Eraser]:
    return {"inlp": inlp(x, z, 2), "mean_projection": mean_projection(x, z), "leace": leace(x, z)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("erase", [leace, mean_projection])
def test_no_fresh_linear_probe_beats_the_mean_after_erasure(erase, kind):
    x = embeddings()
    z = concept(x, kind)
    eraser = erase(x, z)
    erased = eraser(x)
    mean = z.double().mean(dim=0).numpy()
    assert np.abs(fresh_probe(x, z) - mean).max() > 0.1 * float(z.double().std())
    np.testing.assert_allclose(
        fresh_probe(erased, z), np.broadcast_to(mean, z.shape), atol=1e-5 * float(z.double().std())
    )
    assert eraser.rank == KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_leace_equals_concept_erasure(kind):
    reference = pytest.importorskip("concept_erasure", reason="concept-erasure is not installed")
    x = embeddings()
    z = concept(x, kind)
    z = (z - z.mean(0)) / z.double().std(dim=0).clamp_min(1e-9)  # their tolerance is absolute
    theirs = reference.LeaceEraser.fit(x, z.double(), shrinkage=False, svd_tol=1e-6)
    torch.testing.assert_close(leace(x, z)(x), theirs(x), atol=1e-5, rtol=0)


def test_inlp_is_the_textbook_loop():
    x = embeddings()[:, : D - DEAD]  # of full rank, where plain least squares is all there is
    z = concept(x, "number")
    projected, mean = x - x.mean(dim=0), x.mean(dim=0)
    for _ in range(3):
        weights = torch.linalg.lstsq(projected, z - z.mean(), driver="gelsd", rcond=1e-9).solution
        direction = weights / weights.norm()
        projected = projected - projected @ direction @ direction.T
    torch.testing.assert_close(inlp(x, z, 3)(x), projected + mean, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_refit_equals_a_freshly_fitted_probe(kind):
    x = embeddings()
    z, white = concept(x, kind), whiten(x)
    np.testing.assert_allclose(probe_predictions(white, z), fresh_probe(x, z), atol=1e-8 * float(z.abs().max()))
    for eraser in fitted(x, z).values():
        np.testing.assert_allclose(
            probe_predictions(white, z, eraser), fresh_probe(eraser(x), z), atol=1e-6 * float(z.double().std())
        )


@pytest.mark.parametrize("kind", ["number", "numbers"])
def test_erasure_keeps_mean_and_dtype_and_is_idempotent_and_leace_changes_least(kind):
    x = embeddings()
    erasers = fitted(x, concept(x, kind))
    for eraser in erasers.values():
        erased = eraser(x)
        torch.testing.assert_close(erased.mean(dim=0), x.mean(dim=0))
        torch.testing.assert_close(eraser(erased), erased)
        assert eraser(x.float()).dtype == torch.float32
        torch.testing.assert_close(eraser(x.float()), erased.float(), atol=1e-5, rtol=0)
    removed = {name: variance_removed(x, eraser(x)) for name, eraser in erasers.items()}
    assert removed["leace"] < removed["mean_projection"]


def test_rounding_errors_are_not_treated_as_data():
    """A LayerNorm leaves a direction without variance, in float32 one of rounding errors."""
    positions, channels = 3, 8
    norm = nn.LayerNorm(channels)
    latent = torch.randn(2000, positions, 5, generator=torch.Generator().manual_seed(0))
    mix = torch.randn(5, channels, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        x = norm(latent @ mix).flatten(1)
    dead = torch.block_diag(*[torch.ones(channels, 1)] * positions).double() / channels**0.5
    assert whiten(x).rank <= positions * (channels - 1) < whiten(x, tolerance=1e-12).rank
    eraser = inlp(x, latent[:, 0, :1], 2)
    assert (dead.T @ eraser.right).abs().max() < 1e-3
    blind = inlp(whiten(x, tolerance=1e-12), latent[:, 0, :1], 2)  # what is avoided: it erases next to nothing
    assert variance_removed(x, blind(x)) < 1e-3 * variance_removed(x, eraser(x))


@pytest.mark.parametrize("fraction", [0.0, 1e-6, 0.03, 0.5, 0.97, 1.0])
def test_random_directions_remove_the_stated_variance(fraction):
    x, basis = embeddings(), random_basis(D, torch.Generator().manual_seed(0))
    eraser = project_away_variance(whiten(x), basis, fraction)
    assert variance_removed(x, eraser(x)) == pytest.approx(fraction, abs=1e-9)
    without_last = project_away(whiten(x), basis[:, : max(eraser.rank - 1, 0)])
    assert variance_removed(x, without_last(x)) <= fraction + 1e-9


def test_iterations_above_the_rank_are_refused():
    x = embeddings()
    z = concept(x, "numbers")
    assert inlp(x, z, (D - DEAD) // 2).rank == D - DEAD
    with pytest.raises(UserError, match=r"iterations=6: expected from 0 to 5, since each removes 2 of .* 10"):
        inlp(x, z, 6)
    with pytest.raises(UserError, match=r"iterations=-1"):
        inlp(x, z, -1)


@pytest.mark.parametrize("method", ["inlp", "mean_projection", "leace"])
def test_flipped_signs_keep_rank_variance_and_spectrum_and_hide_another_concept(method):
    x = embeddings()
    z = concept(x, "number")
    eraser, white = fitted(x, z)[method], whiten(x)
    flipped = flip_signs(white, eraser, torch.Generator().manual_seed(3))
    assert torch.equal(flipped.left, flip_signs(x, eraser, torch.Generator().manual_seed(3)).left)
    assert flipped.rank == eraser.rank
    assert variance_removed(x, flipped(x)) == pytest.approx(variance_removed(x, eraser(x)), rel=1e-6)
    by_axis = [((x - e(x)) @ white.axes).square().mean(0) for e in (eraser, flipped)]
    torch.testing.assert_close(*by_axis, rtol=1e-6, atol=1e-9)
    if method == "leace":
        left = np.abs(fresh_probe(flipped(x), z) - z.mean(dim=0).numpy()).max()
        assert left > 0.1 * float(z.std())  # the concept itself is still there


@pytest.mark.parametrize("erase", [leace, mean_projection, inlp])
def test_too_few_examples_and_a_constant_concept_give_warnings(erase):
    generator = torch.Generator().manual_seed(0)
    x, z = torch.randn(100, 80, generator=generator), torch.arange(100) % 2
    with pytest.warns(UserWarning, match="100 examples vary along 80 axes, .* expected at least 160 examples"):
        erase(x, z)
    with pytest.warns(UserWarning, match="concept: constant in all 100 examples, so nothing is erased"):
        assert erase(x, torch.ones(100)).rank == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        erase(x[:, :50], z)
