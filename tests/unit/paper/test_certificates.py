"""The table of certificates adds up what networks answered, and replaces a network's rows by new ones."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from arith_erd.paper.studies import certificates


def made() -> Any:
    """A certificate of few answers to bit 3."""
    rows = {"algorithm": "local_remainder", "bit": 3, "distance": [0.25, 0.3, 0.375], "right": [1, 0.5, 0.0]}
    shares = pd.DataFrame(rows | {"n": [30, 10, 60]})
    contrasts = pd.DataFrame(rows | {"against": "graded_carry", "n": [1, 1, 1]})
    precision = pd.DataFrame({"bit": [3], "threshold": [0.5], "sigma": [0.1]})
    return SimpleNamespace(shares=lambda: shares, contrasts=lambda: contrasts, precision=lambda: precision)


def test_shares_within_a_step_of_distance_are_weighted_by_their_answers():
    shares, precision = certificates.count("nanogpt", 0, made()).values()
    own = shares[shares["against"] == ""].set_index("distance")
    assert own["n"].tolist() == [30, 10, 60]  # 0.25, 0.3 and 0.35: the bounds of the preregistration are ends of a step
    assert own["right"].tolist() == [1, 0.5, 0]
    assert precision["sigma"].tolist() == [0.1]


def test_rows_of_a_network_are_replaced_and_those_of_others_stay(tmp_path):
    path = tmp_path / "certificates.csv"
    for network in ("nanogpt", "authors", "nanogpt"):
        table = certificates.replace_rows(path, certificates.count(network, 0, made())[certificates.SHARES])
    assert table["network"].value_counts().to_dict() == {"authors": 6, "nanogpt": 6}
    pd.testing.assert_frame_equal(pd.read_csv(path, keep_default_na=False), table.reset_index(drop=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["control,erd", "mul_nanogpt"])
def test_stored_answers_give_the_rows_of_the_tables(name):
    for path, rows in certificates.recount(certificates.ANSWERS / f"{name}-seed=0.bin").items():
        table = pd.read_csv(path, keep_default_na=False, na_values=[""] if path == certificates.PRECISION else None)
        stored = table[(table["network"] == name) & (table["seed"] == 0)].reset_index(drop=True)
        by = [column for column in (*certificates.BY, "total") if column in rows]
        pd.testing.assert_frame_equal(rows.sort_values(by).reset_index(drop=True), stored, rtol=1e-5, check_dtype=False)
