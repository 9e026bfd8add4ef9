"""What the tests of the pages' numbers share: the rows in ``results/``, and how a page is checked."""

import re
import runpy
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
# Code, generated tables, targets of links and headings hold no claims of their own.
ASIDE = re.compile(
    r"```.*?```|`[^`\n]*`|<!-- \w+:begin -->.*?<!-- \w+:end -->|\]\([^)]*\)|^#[^\n]*$|<!--.*?-->", re.S | re.M
)
NAMES = re.compile(r"\b(?:figure|table|layer|seed)s? \d(?: and \d)?", re.I)
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?[%K]?(?!\w)")


@cache
def claims(folder: str = ".") -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "claims.csv", dtype=str, keep_default_na=False).set_index("id")


@cache
def cards() -> dict[str, Any]:
    """The functions of ``benchmarks/cards.py``, which writes the tables of the page."""
    return runpy.run_path(str(ROOT / "benchmarks" / "cards.py"))


def check_page(page: str, sentences: Iterable[str], exempt: Collection[str]) -> None:
    """Every sentence is on the page, and no number beside them but those that are exempt."""
    text = " ".join(ASIDE.sub(" ", (ROOT / page).read_text()).split())
    for sentence in sentences:
        assert sentence in text, f"{page} lacks: {sentence}"
        text = text.replace(sentence, " ")
    left = {number.rstrip(",") for number in NUMBER.findall(NAMES.sub(" ", text))}
    assert left <= set(exempt), f"{page}: no rows behind {sorted(left - set(exempt))}"
