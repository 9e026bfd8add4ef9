"""The sources of classes that lie in no package: those of a script or a notebook."""

import linecache
import sys
from pathlib import Path
from types import ModuleType

import pytest

from arith_erd.config.class_spec import source_hashes, trust_modules_of

CELL = """
def helper(a, b):
    return a + b + sum(K for _ in range(K))

class Base:
    def answer(self, a, b):
        return helper(a, b)

class Mine(Base):
    name = "mine"

    def __init__(self):
        mine = None

mine = Mine()
K = 0
"""


@pytest.fixture
def digest(monkeypatch):
    def of_notebook(text, file="<cell 1>"):
        """As Python 3.11 in a notebook: the module has no file, functions have the text of their cells."""
        module = ModuleType("notebook")
        monkeypatch.setitem(sys.modules, "notebook", module)
        monkeypatch.setitem(linecache.cache, "<cell 1>", (len(text), None, text.splitlines(keepends=True), "<cell 1>"))
        if isinstance(file, Path):
            file.write_text(text)
            module.__file__ = str(file)
        exec(compile(text, file, "exec"), vars(module))
        trust_modules_of(module.Mine)
        return source_hashes({"task": {"_target_": "notebook.Mine"}})["notebook"]

    return of_notebook


def test_an_edited_class_of_a_notebook_has_another_hash_and_one_without_source_none(digest):
    assert digest(CELL) == digest(CELL)
    assert digest(CELL) != digest(CELL.replace("a + b", "a * b"))
    assert digest(CELL, "<stdin>") == ""


def test_a_number_that_a_class_reads_and_a_second_definition_change_the_hash(digest, tmp_path):
    """Python 3.11 gives the source of the first definition."""
    scripts = (CELL, CELL.replace("K = 0", "K = 1"), CELL + CELL.replace("a + b", "a * b"), CELL + "a = 5\n")
    hashes = [digest(text, tmp_path / f"script{i}.py") for i, text in enumerate(scripts)]
    assert len({*hashes}) == 3
    assert hashes[0] == hashes[3]  # the name is local in the class
