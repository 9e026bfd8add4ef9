"""Tables on a terminal of 80 characters keep every digit."""

import io

import pandas as pd
from rich.console import Console

from arith_erd.probes.terminal import show


def shown(table: pd.DataFrame, width: int = 80) -> list[str]:
    file = io.StringIO()
    show(table, [], [], Console(file=file, width=width))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_table_that_is_too_wide_goes_on_below_with_the_names_of_its_rows() -> None:
    intervals = {f"in token {i}": ["13.123 [12.001, 14.002]", f"22.{i}"] for i in range(5)}
    lines = shown(pd.DataFrame({"site": ["dec.1", "dec.2"], **intervals}))
    assert max(map(len, lines)) <= 80
    assert [line.split("  ")[0] for line in lines] == ["site", "dec.1", "dec.2", "", "site", "dec.1", "dec.2"]
    text = "\n".join(lines)
    assert text.count("13.123 [12.001, 14.002]") == 5
    assert all(f"22.{i}" in text for i in range(5))
    assert text.count("dec.2") == 2
    assert "…" not in text
