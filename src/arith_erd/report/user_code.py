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
from ..errors import UserError, bad_value, first_line
from ..system.signals import exits_are_errors


def import_from_file(key: str, name: str, claims_file: Path, trust: bool, expected: str = "") -> Any:
    """Import the class or function ``FILE.py:NAME`` from a file in the folder of ``claims_file``.

    Raises:
        UserError: if the name has another form (``expected`` lists further accepted forms), or if the file is not
            trusted or cannot be run.
    """
    file, colon, attribute = name.partition(":")
    path = claims_file.resolve().parent / file
    if not colon or Path(file).name != file or path.suffix != ".py":
        raise bad_value(key, name, f"{expected}FILE.py:NAME, of a Python file beside {claims_file.name}")
    if not (trust or path.parent == bundled.PAPER.resolve()):
        raise UserError(f"{key}={name}: {file} is code that would run; --trust allows it")
    try:
        return getattr(_load_module(path), attribute)
    except Exception as error:
        accepted = f"a Python file that can be imported, and has {attribute}"
        raise UserError(f"{key}={name}: {first_line(error)}; expected {accepted}") from error


@contextmanager
def explain_errors_of_user_code(imported: object, where: str) -> Iterator[None]:
    """Turn errors of code from `import_from_file` into a `UserError` that starts with ``where`` and names the line."""
    try:
        with exits_are_errors():
            yield
    except Exception as error:
        file = getattr(imported, "__module__", "")  # the path of the file, or the name of a module of the package
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if not (isinstance(error, UserError) or file.endswith(".py")):
            raise
        raise UserError(f"{where}: {first_line(error)}" + (f" ({file}, line {lines[-1]})" if lines else "")) from error


@cache
def _load_module(path: Path) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(str(path), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # pydantic looks up annotations there
    with exits_are_errors():
        spec.loader.exec_module(module)
    return module
