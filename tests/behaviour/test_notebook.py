"""The notebook runs, and prints what it shows: ``docs/mkdocs_hooks.py`` makes a page of it as it stands."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "inside.ipynb"
NUMBER = re.compile(r"\d+\.\d+|\d+(?=%)")
NEAR = 0.05  # numbers differ in their last digits between machines, percentages by a few points


def cells() -> list[tuple[str, str, int]]:
    """Of each code cell: its source, and what it printed and how many pictures it drew when it was last executed."""
    found = []
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            printed = [line for output in cell["outputs"] for line in output.get("text", [])]
            drawn = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
            found.append(("".join(cell["source"]), "".join(printed), len(drawn)))
    return found


def numbers(text: str) -> list[float]:
    """Fractions as they are, percentages as fractions."""
    return [float(found[0]) / (100 if text[found.end() :].startswith("%") else 1) for found in NUMBER.finditer(text)]


@pytest.mark.slow
def test_notebook_runs_and_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.get_fignums())) or plt.close("all"))
    namespace: dict[str, Any] = {}
    plt.switch_backend("agg")
    for number, (source, printed, drawn) in enumerate(cells(), start=1):
        exec(compile(source, f"code cell {number}", "exec"), namespace)
        now = capsys.readouterr().out
        assert NUMBER.sub("#", now) == NUMBER.sub("#", printed), f"code cell {number}"
        assert numbers(now) == pytest.approx(numbers(printed), abs=NEAR), f"code cell {number}"
        assert sum(shown) == drawn, f"code cell {number}"
        shown.clear()
