"""The table of certificates adds up what probes wrote, and replaces a network's rows by new ones."""

import pandas as pd
import pytest

from arith_erd.paper.studies import certificates


@pytest.fixture
def folder(tmp_path):
    rows = {"seed": 0, "algorithm": "local_remainder", "bit": 3, "distance": [0.25, 0.3, 0.375], "right": [1, 0.5, 0.0]}
    pd.DataFrame(rows | {"n": [30, 10, 60]}).to_csv(tmp_path / "rows.csv")
    pd.DataFrame(rows | {"against": "graded_carry", "n": [1, 1, 1]}).to_csv(tmp_path / "contrasts.csv")
    precision = {"seed": [0], "bit": [3], "threshold": [0.5], "sigma": [0.1]}
    pd.DataFrame(precision).to_csv(tmp_path / "precision.csv")
    return tmp_path


def test_shares_within_a_step_of_distance_are_weighted_by_their_answers(folder):
    shares, precision = certificates.collect("nanogpt", folder).values()
    own = shares[shares["against"] == ""].set_index("distance")
    assert own["n"].tolist() == [30, 10, 60]  # 0.25, 0.3 and 0.35: the bounds of the preregistration are ends of a step
    assert own["right"].tolist() == [1, 0.5, 0]
    assert precision["sigma"].tolist() == [0.1]


def test_rows_of_a_network_are_replaced_and_those_of_others_stay(folder, tmp_path):
    path = tmp_path / "certificates.csv"
    for network in ("nanogpt", "authors", "nanogpt"):
        table = certificates.replace_rows(path, certificates.collect(network, folder)[certificates.SHARES])
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
