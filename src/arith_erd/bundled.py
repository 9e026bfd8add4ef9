"""Where files outside the modules lie: in the root of a clone, and beside the modules in an installed wheel.

A wheel has all of ``conf/``. From ``paper/`` it has what ``setup.py`` lists: the claims with the code that measures and
draws them, probes, and seed 0 of four networks.
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
    """The options in a file of ``conf/``, which are also the defaults of its class; empty if there is no such file."""
    path = CONF / f"{'/'.join(option)}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}
