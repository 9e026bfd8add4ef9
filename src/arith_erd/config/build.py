"""Build the object that a `_target_` names.

A configuration may come with a run directory from anywhere. So a name can reach only classes of this package, torch's
optimizers, and packages that the command line trusts (`trust`). Other classes of torch are refused, since many open
files, load libraries or start programs. A function of a trusted package can be named too, if its return type is
annotated; this excludes others, such as a loader of pickles. Arguments are values: unlike Hydra's ``instantiate``, we
neither instantiate nor interpolate them.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ..errors import UserError, bad_value, first_line
from ..runs.directory import require_name
from ..system.signals import Preempted

PACKAGES = ("arith_erd", "torch.optim")

_trusted: set[str] = set()

Kind = TypeVar("Kind")


def trust(*packages: str) -> None:
    """Allow classes of more packages in ``_target_``, for the rest of this process.

    Raises:
        UserError: for a package that Python does not find.
    """
    for package in packages:
        if not isinstance(package, str) or not all(part.isidentifier() for part in package.split(".")):
            raise bad_value("trust", list(packages), "names of packages, such as trust=[my_package]")
        try:
            spec = importlib.util.find_spec(package)  # imports the packages around it, not the package
        except Exception as error:
            if not _says_absent(error, package):
                raise UserError(f"trust={package}: importing it fails with {first_line(error)}") from error
            spec = None
        if spec is None:
            raise bad_value(
                "trust", package, "a package that Python finds: installed, here, or in a folder of PYTHONPATH"
            )
    _trusted.update(packages)


def trust_classes(*classes: type) -> None:
    """Allow classes that the program itself has, such as those of a notebook. A file cannot do that."""
    _trusted.update(one.__module__ for one in classes)


def source_hashes(config: Mapping[str, Any]) -> dict[str, str]:
    """Package -> hash of its ``.py`` files, for each trusted package in a ``_target_`` of the configuration."""
    digests = {}
    targets = [str(target) for target in _targets(config)]
    for package in (one for one in sorted(_trusted) if any(target.startswith(f"{one}.") for target in targets)):
        with suppress(ImportError, ValueError, AttributeError, OSError):  # a notebook has no file
            spec: Any = importlib.util.find_spec(package)
            folders = spec.submodule_search_locations or ()
            files = [file for folder in folders for file in Path(folder).rglob("*.py")] or [Path(spec.origin)]
            text = b"".join(file.name.encode() + b"\n" + file.read_bytes() for file in sorted(files))
            digests[package] = hashlib.sha256(text).hexdigest()[:16]
    return digests


def _says_absent(error: BaseException, module: str) -> bool:
    """Whether an import failed because the module itself, or a package that contains it, is missing."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def _within(name: str, packages: Iterable[str]) -> bool:
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))


def _allowed(name: str) -> bool:
    return _within(name, (*PACKAGES, *_trusted))


def _expected(target: Any = "") -> str:
    """The accepted values of ``_target_``, with the ``trust=`` that a class of another package needs."""
    package, dot, _ = str(target).partition(".")
    ours = {"arith_erd", "torch", *_trusted, *sys.stdlib_module_names}
    hint = f"; trust=[{package}] on the command line allows those of {package}"
    accepted = f"a class of {' or '.join([*PACKAGES, *sorted(_trusted)])}"
    return accepted + hint * bool(dot and package.isidentifier() and package not in ours)


@dataclass(frozen=True)
class Factory:
    """A class by its dotted name, with the arguments of its group. Nothing is imported before `load` or `build`.

    It may also be a function of a trusted package with a return annotation: ``def adder(task) -> CausalModel``.

    >>> from arith_erd.tasks import Task
    >>> Factory.read("task", {"_target_": "arith_erd.tasks.Add", "name": "add", "bits": 3}).build(Task).bits
    3
    """

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None  # name of the option, as in file names
    key: str = field(default="", compare=False)  # key of the target, for messages

    @classmethod
    def read(cls, key: str, group: Any, types: Mapping[str, Any] | None = None, *metadata: str) -> "Factory":
        """The factory of a group of keys; a `UserError` for a target that is not allowed, or a second target.

        Arguments with annotated ``types`` are checked before the class is imported. The keys ``metadata`` and ``name``
        are not arguments.
        """
        if not isinstance(group, dict):
            raise bad_value(key, group, "a group of keys")
        name = require_name(f"{key}.name", group["name"]) if "name" in group else None
        arguments = {str(k): value for k, value in group.items() if k not in ("_target_", "name", *metadata)}
        for k, kind in (types or {}).items():
            if k in arguments:
                try:
                    TypeAdapter(kind).validate_python(arguments[k])
                except ValidationError as error:
                    raise bad_value(f"{key}.{k}", arguments[k], kind.__metadata__[0].description) from error
        for nested in _targets(arguments):
            raise bad_value(f"{key}._target_", nested, f"{_expected()}, once, at the head of its group")
        return replace(cls.of(f"{key}._target_", group.get("_target_")), arguments=arguments, name=name)

    @classmethod
    def of(cls, key: str, target: Any) -> "Factory":
        """The factory of a dotted name, the value of ``key``, without arguments; errors as in `read`."""
        module, _, _ = str(target).rpartition(".")
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", str(target), re.ASCII) or not _allowed(module):
            raise bad_value(key, target, _expected(target))
        return cls(str(target), key=key)

    def build(self, kind: type[Kind], *positional: Any, **named: Any) -> Kind:
        """Make an object of the class, a subclass of ``kind``. Arguments given here override the factory's own."""
        made = self.load(kind)
        with self.blamed():
            return made(*positional, **{**self.arguments, **named})

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Within the block, which runs code of the class, every error becomes a `UserError` with file and line."""
        try:
            yield
        except (UserError, Preempted):
            raise
        except (Exception, SystemExit) as error:
            # The last line of the class's own file before the error, if it got that far.
            file = getattr(sys.modules.get(self.target.rpartition(".")[0]), "__file__", None)
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            place = f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""
            raise self.fault(f"{first_line(error)}{place}") from error

    def fault(self, what: str) -> UserError:
        return UserError(f"{self.key}={self.target}: {what}")

    def load(self, kind: type[Kind]) -> type[Kind]:
        """Import the class, which must be a subclass of ``kind``, or the function, which must be annotated with one.

        A class must be defined in an allowed package, a function in a trusted one; re-exports are refused.
        """
        module, _, name = self.target.rpartition(".")
        try:
            member = getattr(importlib.import_module(module), name, None)
        except Preempted:
            raise
        except (Exception, SystemExit) as error:  # a module may raise anything
            if not _says_absent(error, module):
                raise self.fault(f"importing {module} fails with {first_line(error)}") from error
            member = None
        if member is None:
            raise self.fault(f"expected {_expected()}, but there is none of that name")
        given = member
        if inspect.isfunction(member) and _allowed(member.__module__) and not _within(member.__module__, PACKAGES):
            with self.blamed():
                given = inspect.signature(member, eval_str=True).return_annotation
            if given is inspect.Signature.empty:
                raise self.fault(f"expected an annotated function, such as def {name}(..) -> {kind.__name__}")
        if not isinstance(given, type) or not _allowed(member.__module__):
            raise self.fault(f"expected {_expected()}")
        if not issubclass(given, kind):
            raise self.fault(f"expected a {kind.__name__}")
        return cast(type[Kind], member)


def _targets(value: Any) -> Iterator[Any]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from [child] if key == "_target_" else _targets(child)
