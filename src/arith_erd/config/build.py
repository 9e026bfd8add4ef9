"""Objects from configurations: the one place where a name in a file becomes a class that is called.

A configuration may come with a run directory from anywhere. So a name reaches the classes of this package and the
optimizers of torch, nothing else: many a class of torch opens files, loads libraries or starts programs when it is
made. And the arguments are values: nothing in them is instantiated, interpolated or looked up, as Hydra's own
``instantiate`` would.
"""

import importlib
import re
from collections.abc import Iterator
from typing import Any

from ..errors import UserError, bad_value

PACKAGES = ("arith_erd", "torch.optim")
EXPECTED = f"a class of {' or '.join(PACKAGES)}, once, at the head of its group"
NO_ARGUMENTS = ("_target_", "name", "needs")


def build(node: Any, kind: type = object, *arguments: Any, **named: Any) -> Any:
    """``{"_target_": "arith_erd.tasks.Add", "bits": 3}`` -> ``Add(bits=3)``; every `_target_` goes through here.

    ``name`` and ``needs`` are for people and programs, and no arguments. What a constructor refuses becomes a
    `UserError`.

    Args:
        node: of a configuration.
        kind: what the class must be a subclass of.
        arguments: passed on, before those of the node.
        named: passed on with them.

    Raises:
        UserError: if the target is no such class of this package or of torch.optim, or does not take the arguments.
    """
    if not isinstance(node, dict):
        raise bad_value("configuration", node, "a group of keys with a _target_")
    options = {str(key): value for key, value in node.items() if key not in NO_ARGUMENTS}
    for target in _targets(options):
        raise bad_value("_target_", target, EXPECTED)
    made = _class(node.get("_target_"), kind)
    try:
        return made(*arguments, **{**options, **named})
    except UserError:
        raise
    except Exception as error:  # of a constructor that does not take these values, whichever it raises
        raise UserError(f"{node['_target_']}: {error}") from error


def _targets(value: Any) -> Iterator[Any]:
    """Every `_target_` in a tree of dictionaries and lists."""
    if isinstance(value, dict):
        yield from (item for key, item in value.items() if key == "_target_")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _targets(child)


def _class(target: Any, kind: type) -> type:
    """The class of that name, if it is defined where it may be; another module's may stand in an allowed one."""
    if not re.fullmatch(rf"({'|'.join(map(re.escape, PACKAGES))})(\.[A-Za-z_]\w*)+", str(target), re.ASCII):
        raise bad_value("_target_", target, EXPECTED)
    module, _, name = str(target).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise bad_value("_target_", target, f"{EXPECTED}, but there is none of that name") from error
    if not isinstance(found, type) or not f"{found.__module__}.".startswith(tuple(f"{p}." for p in PACKAGES)):
        raise bad_value("_target_", target, EXPECTED)
    if not issubclass(found, kind):
        raise bad_value("_target_", target, f"a {kind.__name__}")
    return found
