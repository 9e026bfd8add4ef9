"""The fingerprints of the third preregistration, on answers whose algorithm and noise are known."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from arith_erd.digits import Array
from arith_erd.mechanism.certificate import LOCAL_REMAINDER, PrefixBlock, answered_by
from arith_erd.paper.studies import thousand
from arith_erd.tasks import Add

TASK = Add(bits=5)


def noisy_carry(threshold: float, sigma: float, rng: np.random.Generator) -> Callable[[PrefixBlock], Array]:
    def answer(block: PrefixBlock) -> Array:
        x = block.inputs
        return x.column_sum % 2 ^ (x.c + sigma * rng.standard_normal(len(x.c)) > threshold)

    return answer


@pytest.mark.parametrize(
    ("algorithm", "rule", "slope"), [(LOCAL_REMAINDER, 1, 0.5), ("graded_carry", 0, 0.5), ("prefix_carry", None, 0)]
)
def test_algorithms_have_their_own_fingerprints(algorithm: str, rule: int | None, slope: float) -> None:
    """Numbers with exact place values have a slope, and a carry from the last column alone has none."""
    found = thousand.fingerprints(answered_by(lambda block: block.predicted(algorithm), TASK)).set_index("bit")
    assert (found["right"] == 1).all()
    of_bits = found.loc[[*thousand.BITS]]
    assert rule is None or (of_bits["rule"] == rule).all()
    np.testing.assert_allclose(of_bits["slope"], slope, atol=0.1 if slope else 0.05)


def test_threshold_and_noise_of_a_carry_are_recovered() -> None:
    """A carry differs from local_remainder below -1/2 and above 3/2, which adds to sigma where the noise is small."""
    sigmas = []
    for threshold, sigma in ((0.4, 0.05), (0.5, 0.1), (0.6, 0.2)):
        found = answered_by(noisy_carry(threshold, sigma, np.random.default_rng(0)), TASK)
        of_bit = thousand.fingerprints(found).set_index("bit").loc[4]
        assert of_bit["threshold"] == pytest.approx(threshold, abs=0.04)
        sigmas.append(of_bit["sigma"])
    assert sigmas == sorted(sigmas)
    assert sigmas[2] == pytest.approx(0.2, rel=0.25)


def made_up(rng: np.random.Generator, count: int, gap: float) -> pd.DataFrame:
    """Networks of one kind, or of two whose thresholds are ``gap`` standard deviations apart."""
    seeds, bits = np.repeat(np.arange(count), 6), np.tile(np.arange(6), count)
    threshold = 0.5 + 0.02 * (rng.standard_normal(count) + gap * (np.arange(count) % 2))
    columns = {"sigma": np.exp(rng.normal(-2, 0.3, len(seeds))), "slope": rng.normal(0.4, 0.05, len(seeds))}
    columns |= {"threshold": threshold[seeds], "rule": 0.01, "right": 1.0, "epochs_to_95": 20.0 + seeds % 7}
    return pd.DataFrame({"seed": seeds, "bit": bits} | columns)


def test_two_kinds_refute_the_prediction_and_few_networks_decide_nothing() -> None:
    rng = np.random.default_rng(1)
    for count, gap, verdict in ((200, 0.0, "holds"), (200, 6.0, "refuted"), (15, 0.0, "undecided: ")):
        table = thousand.predictions(made_up(rng, count, gap)).splitlines()
        assert f"| {verdict}" in table[2], table[2]
