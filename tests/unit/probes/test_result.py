"""Tables on a terminal of 80 characters keep every digit."""

import io
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from arith_erd.probes import result
from arith_erd.probes.result import collect_rows, print_result


def test_table_that_is_too_wide_is_folded_at_spaces_and_keeps_every_number(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    intervals = {f"in token {i}": ["13.123 [12.001, 14.002]", f"22.{i}"] for i in range(5)}
    print_result(pd.DataFrame({"site": ["dec.1", "dec.2"], **intervals}), [])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(lines).split()
    assert [words.count(word) for word in ("dec.1", "dec.2", "13.123", "[12.001,", "14.002]")] == [1, 1, 5, 5, 5]
    assert {f"22.{i}" for i in range(5)} <= set(words)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_slow_probe_shows_how_far_it_is(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "PROGRESS_INTERVAL", 0.1)
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    rows = [{"seed": 3, "site": "dec.1"}, {"seed": 4, "site": "dec.2"}]

    def slow() -> Iterator[dict[str, Any]]:
        for row in rows:
            time.sleep(0.2)
            yield row
        time.sleep(0.3)  # a terminal is told while no row comes

    assert collect_rows(slow(), "Dose", 2) == rows
    assert "1 of 2 networks done, at dec.2, 2 rows" in stderr.getvalue()
    erased = stderr.getvalue().endswith("\x1b[2K")
    assert erased == is_terminal


@pytest.mark.parametrize("stream", [None, SimpleNamespace(write=len)])
def test_standard_error_may_be_missing_or_replaced(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert collect_rows([{"seed": 3}], "Dose", 1) == [{"seed": 3}]
