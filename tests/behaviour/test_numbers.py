"""The numbers in the pages are those in ``results/``; the sentences around them are free."""

import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "page_numbers.py"))


def test_making_the_numbers_anew_changes_no_page(root, cli):
    result = cli("benchmarks/page_numbers.py", "--check", timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_number_and_table_that_differ_are_written_anew(script):
    renewed = script["renewed"]
    old = "It ends at <!--end-->97%<!--/-->.\n\n<!-- layers:begin -->\nold\n<!-- layers:end -->\n"
    new = renewed(old, {"end": "98%"}, {"layers": "| 1 |"})
    assert new == "It ends at <!--end-->98%<!--/-->.\n\n<!-- layers:begin -->\n| 1 |\n<!-- layers:end -->\n"
    assert renewed(new, {"end": "98%"}, {"layers": "| 1 |"}) == new
    with pytest.raises(KeyError):
        renewed(old, {}, {})
    with pytest.raises(ValueError, match="must not begin a line"):
        renewed("<!--end-->97%<!--/--> is the end", {"end": "98%"}, {})
