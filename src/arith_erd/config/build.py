"""Turn a `_target_` into an object.

A configuration may come with a run directory from anywhere. So a name reaches only the classes of this package and
the optimizers of torch: many classes of torch open files, load libraries or start programs when they are made. And
arguments are values: nothing in them is instantiated, interpolated or looked up, as Hydra's own ``instantiate`` would.
"""

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import UserError, bad_value
from ..runs import require_name
from .rules import Reader

PACKAGES = ("arith_erd", "torch.optim")
EXPECTED = f"a class of {' or '.join(PACKAGES)}, once, at the head of its group"
METADATA = ("_target_", "name")  # not passed on

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Factory:
    """A class by its dotted name, and the arguments that its group gives it; nothing is imported before `build`.

    >>> from arith_erd.tasks import Task
    >>> Factory.read("task", {"_target_": "arith_erd.tasks.Add", "name": "add", "bits": 3}).build(Task).bits
    3
    """

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    """Of the option, as in file names."""

    @classmethod
    def read(
        cls, key: str, group: Any, rules: Mapping[str, Reader] | None = None, metadata: tuple[str, ...] = ()
    ) -> "Factory":
        """The factory that a group of keys describes.

        Args:
            key: of the group.
            group: its value.
            rules: for arguments that are checked before the class is imported.
            metadata: keys besides ``name`` that are not arguments.

        Raises:
            UserError: if the target is outside `PACKAGES`, a second one is nested in the arguments, or a rule refuses
                a value.
        """
        if not isinstance(group, dict):
            raise bad_value(key, group, "a group of keys")
        name = group.get("name")
        if "name" in group:
            require_name(f"{key}.name", name)
        arguments = {str(k): value for k, value in group.items() if k not in (*METADATA, *metadata)}
        for k, reader in (rules or {}).items():
            if k in arguments:
                reader(f"{key}.{k}", arguments[k])
        for nested in _targets(arguments):
            raise bad_value(f"{key}._target_", nested, EXPECTED)
        target = group.get("_target_")
        if not re.fullmatch(rf"({'|'.join(map(re.escape, PACKAGES))})(\.[A-Za-z_]\w*)+", str(target), re.ASCII):
            raise bad_value(f"{key}._target_", target, EXPECTED)
        return cls(str(target), arguments, name)

    def build(self, kind: type[Kind], *positional: Any, **named: Any) -> Kind:
        """An object of the class.

        Args:
            kind: what the class must be a subclass of.
            positional: passed on.
            named: passed on; these win over the factory's own arguments.

        Raises:
            UserError: if there is no such class, or it refuses the arguments.
        """
        made = self.load(kind)
        try:
            return made(*positional, **{**self.arguments, **named})
        except UserError:
            raise
        except Exception as error:  # constructors raise anything when they do not take a value
            raise UserError(f"{self.target}: {error}") from error

    def load(self, kind: type[Kind]) -> type[Kind]:
        """The class, if it is defined in an allowed package; re-exports are refused.

        Raises:
            UserError: if there is no such class, or it is not a subclass of ``kind``.
        """
        module, _, name = self.target.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise bad_value("_target_", self.target, f"{EXPECTED}, but there is none of that name") from error
        if not isinstance(found, type) or not f"{found.__module__}.".startswith(tuple(f"{p}." for p in PACKAGES)):
            raise bad_value("_target_", self.target, EXPECTED)
        if not issubclass(found, kind):
            raise bad_value("_target_", self.target, f"a {kind.__name__}")
        return found


def factory(rules: Mapping[str, Reader] | None = None) -> Reader:
    """A `Reader` of open groups; see `Factory.read`."""
    return lambda key, group: Factory.read(key, group, rules)


def _targets(value: Any) -> Iterator[Any]:
    """Every `_target_` in a tree of dictionaries and lists."""
    if isinstance(value, dict):
        yield from (item for k, item in value.items() if k == "_target_")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _targets(child)
