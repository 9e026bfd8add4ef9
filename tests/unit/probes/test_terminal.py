"""Tables on a terminal of 80 characters keep every digit."""

import io
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from arith_erd.probes import run_probe
from arith_erd.probes.run_probe import show, with_progress


def test_table_that_is_too_wide_goes_on_below_with_the_names_of_its_rows(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    intervals = {f"in token {i}": ["13.123 [12.001, 14.002]", f"22.{i}"] for i in range(5)}
    show(pd.DataFrame({"site": ["dec.1", "dec.2"], **intervals}), [])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line.split("  ")[0] for line in lines] == ["site", "dec.1", "dec.2", "", "site", "dec.1", "dec.2"]
    text = "\n".join(lines)
    assert text.count("13.123 [12.001, 14.002]") == 5
    assert all(f"22.{i}" in text for i in range(5))
    assert text.count("dec.2") == 2
    assert "…" not in text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_slow_probe_shows_how_far_it_is(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_probe, "EVERY", 0.2)
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    rows = [{"seed": 3, "site": "dec.1"}, {"seed": 4, "site": "dec.2"}]

    def slow() -> Iterator[dict[str, Any]]:
        yield from rows
        end = time.monotonic() + 20
        while "1 of 2 networks done, at dec.2, 2 rows" not in stderr.getvalue():
            assert time.monotonic() < end
            time.sleep(0.05)

    assert with_progress(slow(), "Dose", 2) == rows
    assert bool(re.search(r"2 rows after \d+ s", stderr.getvalue())) == (not is_terminal)
