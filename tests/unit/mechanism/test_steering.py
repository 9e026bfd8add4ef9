"""Steps of steering: by how much sums are shifted, and which bits should change."""

import numpy as np

from arith_erd.mechanism.steering import sample_shifts, shifted_bits, summing_models
from arith_erd.tasks import Add


def test_shifted_sums_stay_sums_and_shift_their_bits() -> None:
    rng = np.random.default_rng(0)
    operands, models = rng.integers(0, 128, (500, 2)), summing_models(Add())
    sums = operands.sum(axis=1)
    delta = sample_shifts(sums, Add().bits, rng)
    total = sums[:, None] + delta
    assert (delta != 0).all()
    assert ((total >= 0) & (total <= 254)).all()
    assert np.array_equal(shifted_bits(models["value"], operands, delta), total >> np.arange(8) & 1)
    # A remainder machine keeps its prefix: shifted by 2^t it gives the other bit, by 2^(t+1) the same one.
    for power, flips in ((0, 1), (1, 0)):
        step = np.tile(2 ** (np.arange(8) + power), (500, 1))
        shifted = shifted_bits(models["value_of_remainder"], operands, step)
        assert np.array_equal(shifted, sums[:, None] >> np.arange(8) & 1 ^ flips)
