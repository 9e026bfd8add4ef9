"""Where results are, and the script that reads the cards of mechanisms."""

import runpy
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@cache
def cards() -> dict[str, Any]:
    """The functions of ``benchmarks/cards.py``."""
    return runpy.run_path(str(ROOT / "benchmarks" / "cards.py"))
