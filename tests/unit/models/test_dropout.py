"""Masks from a hash must look like coin tosses, and no two of them may be related.

Nothing here is random: each bound is some five standard errors wide, and the same masks meet it every time.
"""

import itertools

import numpy as np
import pytest
import torch

from arith_erd.models.dropout import Dropout, dropout_keys, keep_mask
from arith_erd.seeds import derive_seed

COUNT = 1 << 16


def replica_keys(*seeds: int) -> torch.Tensor:
    return torch.tensor([[derive_seed(seed, "dropout", half) & 0x7FFFFFFF for half in (0, 1)] for seed in seeds]).int()


def key(seed: int = 0, step: int = 0, site: int = 0) -> torch.Tensor:
    return dropout_keys(replica_keys(seed), step, site + 1)[0, site]


def kept(key: torch.Tensor, p: float = 0.5, count: int = COUNT) -> np.ndarray:
    return keep_mask(key, torch.Size([count]), p).bool().numpy()


def largest_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Standardised correlation of two masks at every shift against each other, (N,)."""
    x, y = ((z - z.mean()) / z.std() for z in (x, y))
    return np.fft.irfft(np.fft.rfft(x).conj() * np.fft.rfft(y), n=len(x)) / len(x) ** 0.5


PLACES = [key(*place) for place in itertools.product((0, 1, 2, 1000), (0, 1, 2, 4799), (0, 1, 31))]


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.999])
def test_masks_drop_at_their_rate_and_scale_what_they_keep(p):
    for place in PLACES[:12]:
        mask = keep_mask(place, torch.Size([COUNT]), p)
        assert abs((mask > 0).double().mean() - (1 - p)) < 5 * (p * (1 - p) / COUNT) ** 0.5 + 1 / 65536
        assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).item()}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_mask_is_the_same_wherever_the_examples_are(axis: int, compiled: bool, monkeypatch) -> None:
    expected, shape = keep_mask(PLACES[0], torch.Size([7, 3, 5]), 0.3), [3, 5]
    shape.insert(axis, 7)
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: compiled)
    assert torch.equal(keep_mask(PLACES[0], torch.Size(shape), 0.3, axis).movedim(axis, 0), expected)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("what", ["seed", "step", "site"])
def test_sites_steps_and_seeds_are_independent(what, p):
    """A standardised correlation above 5 comes by chance once in two million."""
    masks = [kept(key(**{what: value}), p) for value in (*range(16), 100, 4799)]
    assert abs(np.triu(np.corrcoef(masks), 1)).max() * COUNT**0.5 < 5


def test_masks_are_not_shifted_copies_of_each_other():
    masks = [kept(place) for place in PLACES[::3]]
    for x, y in itertools.combinations(masks, 2):
        assert abs(largest_correlation(x, y)).max() < 6.5
    for x in (*masks, *(kept(place, 0.1) for place in PLACES[::3])):
        assert abs(largest_correlation(x, x)[1:]).max() < 6.5


def test_training_without_a_key_is_refused():
    with pytest.raises(RuntimeError, match="needs a key"):
        Dropout(0.5).train()(torch.randn(3))


def test_masks_equal_those_of_the_published_results():
    assert key(0, 0, 0).tolist() == [-1220369160, -385783097]
    assert "".join("01"[x] for x in kept(key(3, 700, 5), count=16).astype(int)) == "1001000001100000"
