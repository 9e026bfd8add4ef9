"""Where files outside the modules lie: in the root of a clone, and beside the modules in an installed wheel.

A wheel has all of ``conf/``, and of ``paper/`` what ``setup.py`` names: the claims with what measures and draws them,
and seed 0 of four networks.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent
ROOT = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parents[1]
CONF = ROOT / "conf"
PAPER = ROOT / "paper"
RESULTS = PAPER / "results"
