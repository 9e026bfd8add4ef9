"""The examples in docstrings do what they show, and everything that people call has one."""

import doctest
import importlib
from pathlib import Path

import pytest

import arith_erd

SOURCE = Path(__file__).parents[2] / "src" / "arith_erd"


PATHS = [path.relative_to(SOURCE.parent) for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in PATHS]


@pytest.mark.parametrize("name", [name for name in arith_erd.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name):
    assert len(getattr(arith_erd, name).__doc__.split()) > 5


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example that trains writes to runs/
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
