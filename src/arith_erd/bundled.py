"""Where files outside the modules lie: in the root of a clone, and beside the modules in an installed wheel.

A wheel has all of ``conf/``, and of ``paper/`` what ``setup.py`` names: the claims with what measures and draws them,
probes, and seed 0 of four networks.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

PACKAGE = Path(__file__).parent
ROOT = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parents[1]
CONF = ROOT / "conf"
PAPER = ROOT / "paper"
RESULTS = PAPER / "results"


@cache
def load_option(*option: str) -> dict[str, Any]:
    """A file of ``conf/``, which also has the defaults of the class that it names; empty if there is no such file."""
    path = CONF / f"{'/'.join(option)}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}
