"""The examples in docstrings do what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = "arith_erd"
SOURCE = Path(__file__).parents[2] / "src" / PACKAGE


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = [module_name(path) for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()]


def test_public_functions_have_examples():
    assert {PACKAGE, f"{PACKAGE}.config.compose", f"{PACKAGE}.seeds"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
