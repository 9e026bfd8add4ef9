"""Intervals stay within their measure, and a printed table cuts no number."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.plots.tables import format_mean, print_table


def test_intervals_stay_within_their_unit() -> None:
    """Rule 8 of ``paper/results/verdict-rules.md``."""
    assert format_mean(np.array([0.9, 0.99, 1]), "accuracy") == "96.33% [71.68, 100]"
    assert format_mean(np.array([13, 4.73, 0.453]), "value") == "6.06 [0, 50.5]"
    assert format_mean(np.array([-1, -0.9, -0.99]), "correlation") == "-0.963 [-1, -0.717]"


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_printed_table_cuts_no_number(columns, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    cells = {f"measure{i}": [f"0.{i}39 [-0.0{i}1, 1.00{i}]", "x"] for i in range(6)}
    print_table(pd.DataFrame({"site": ["dec.3", "enc.3"], **cells}), fold=True)
    printed = capsys.readouterr().out
    assert all(part in printed for column, (cell, _) in cells.items() for part in (column, *cell.split()))
