"""Classes and functions of Python files that lie beside a claims file and are named in it, as ``measures.py:Gap``.

Reading a claims file must not run code that came with it, so only the command line can allow this (``--trust``). The
files of the paper that comes with the package need no permission.
"""

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import bundled
from ..errors import UserError, first_line
from ..system.signals import exits_are_errors

_files: set[str] = set()


def named_in_file(name: str, claims_file: Path, trust: bool, expected: str = "") -> Any:
    """What ``FILE.py:NAME`` names, of a file in the folder of ``claims_file``.

    Raises:
        UserError: if it is nothing of the kind, ``expected`` or else; if it is not trusted; if the file cannot be run.
    """
    file, colon, attribute = name.partition(":")
    path = claims_file.resolve().parent / file
    if not colon or Path(file).name != file or path.suffix != ".py":
        raise UserError(f"{name}: expected {expected}FILE.py:NAME, of a Python file beside {claims_file.name}")
    if not (trust or path.parent == bundled.PAPER.resolve()):
        raise UserError(f"{name}: {file} is code that would run; --trust allows it")
    if not hasattr(module := _module(path), attribute):
        raise UserError(f"{name}: {path} has no {attribute}")
    return getattr(module, attribute)


@contextmanager
def errors_of_own_code(made: object, where: str) -> Iterator[None]:
    """Make errors of an object that `named_in_file` gave a `UserError`, which names the line in that file."""
    try:
        with exits_are_errors():
            yield
    except Exception as error:
        file = type(made).__module__
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if isinstance(error, UserError) or file not in _files:
            raise
        raise UserError(f"{where}: {first_line(error)}" + (f" ({file}, line {lines[-1]})" if lines else "")) from error


@cache
def _module(path: Path) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(str(path), path)
    module = importlib.util.module_from_spec(spec)
    _files.add(str(path))
    sys.modules[module.__name__] = module  # where pydantic looks for the names of annotations
    try:
        with exits_are_errors():
            spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path}: {first_line(error)}; expected a Python file that can be imported") from error
    return module
