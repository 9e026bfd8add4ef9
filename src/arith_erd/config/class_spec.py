"""Build the object that a `_target_` names.

A configuration may come with a run directory from anywhere. So a name can reach only classes of this package, torch's
optimizers, and packages that the command line trusts (`trust`). It may also name a function of a trusted package with
an annotated return type, which excludes, for example, a loader of pickles. Arguments are values: unlike Hydra's
``instantiate``, we neither instantiate nor interpolate them.
"""

import ast
import dis
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ..errors import ArgumentsError, UserError, bad_value, did_you_mean, first_line, last_line
from ..runs.identity import require_name
from ..system.signals import ProgramExit, exits_are_errors

ALLOWED_PACKAGES = ("arith_erd", "torch.optim")

_trusted_packages: set[str] = set()

T = TypeVar("T")


def trust(*packages: str) -> None:
    """Allow classes of more packages in ``_target_``, for the rest of this process.

    Raises:
        UserError: for a package that Python does not find.
    """
    for package in packages:
        if not isinstance(package, str) or not all(part.isidentifier() for part in package.split(".")):
            raise bad_value("trust", list(packages), "names of packages, such as trust=[my_package]")
        try:
            with exits_are_errors():
                spec = importlib.util.find_spec(package)  # imports parent packages, not the package
        except Exception as error:
            if not _is_missing(error, package):
                raise UserError(f"trust={package}: importing it fails with {first_line(error)}") from error
            spec = None
        if spec is None:
            accepted = "a package that Python finds: installed, here, or in a folder of PYTHONPATH"
            raise bad_value("trust", package, accepted)
    _trusted_packages.update(packages)


def trust_modules_of(*classes: type) -> None:
    """Allow classes that the running program defines, such as those of a notebook. A file cannot do that."""
    _trusted_packages.update(cls.__module__ for cls in classes if not _is_allowed(cls.__module__))


def source_hashes(config: Mapping[str, Any]) -> dict[str, str]:
    """Package -> hash of its ``.py`` files, for each trusted package in a ``_target_`` of the configuration.

    For a script or a notebook, it hashes the classes and the names that they use there; empty without a source.
    """
    hashes = {}
    targets = [str(target) for target in _nested_targets(config)]
    for package in sorted(_trusted_packages):
        if not (inside := [target for target in targets if _is_inside(target, [package])]):
            continue
        try:
            spec: Any = importlib.util.find_spec(package)
            folders = spec.submodule_search_locations or ()
            files = [file for folder in folders for file in Path(folder).rglob("*.py")] or [Path(spec.origin)]
            text = b"".join(file.name.encode() + b"\n" + file.read_bytes() for file in sorted(files))
        except (ImportError, ValueError, AttributeError, OSError):  # no file that can be imported
            text = _sources_in(package, [target.removeprefix(f"{package}.") for target in inside]).encode()
        hashes[package] = hashlib.sha256(text).hexdigest()[:16] if text else ""
    return hashes


def _sources_in(module: str, names: list[str]) -> str:
    """The sources of a module's classes and functions, and of those that they use, with the constants that they read;
    empty if one has no source."""
    sources: dict[str, str] = {}
    read = set[str]()
    for name in names:  # the list grows
        member = getattr(sys.modules.get(module), name, None)
        if name in sources or not isinstance(member, type | FunctionType) or member.__module__ != module:
            continue
        functions = [value for value in (member, *vars(member).values()) if isinstance(value, FunctionType)]
        try:
            text = inspect.getsource(member)  # if a class is defined twice: its first definition
            sources[name] = "".join([text, *(x for x in map(inspect.getsource, functions) if x not in text)])
        except (OSError, TypeError):  # a notebook's class before Python 3.13; take its cell
            files = [function.__code__.co_filename for function in functions]
            sources[name] = "".join(line for file in files for line in linecache.getlines(file))
        if not sources[name]:
            return ""
        names += re.findall(r"\w+", sources[name])
        read |= {name for function in functions for name in _globals_read(function.__code__)}
    for name in read - sources.keys():
        with suppress(ValueError, SyntaxError, AttributeError):  # missing, or not a literal
            sources[name] = f"{name} = {ast.literal_eval(repr(getattr(sys.modules.get(module), name)))!r}"
    return "".join(sources[name] for name in sorted(sources))


def _globals_read(code: CodeType) -> set[str]:
    names = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals_read(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def _is_missing(error: BaseException, module: str) -> bool:
    """Whether an import failed because the module, or a package that contains it, does not exist."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def _is_inside(name: str, packages: Iterable[str]) -> bool:
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))


def _is_allowed(name: str) -> bool:
    return _is_inside(name, (*ALLOWED_PACKAGES, *_trusted_packages))


def _accepted_targets(target: Any = "") -> str:
    package, dot, _ = str(target).partition(".")
    ours = {"arith_erd", "torch", *_trusted_packages, *sys.stdlib_module_names}
    hint = f"; trust=[{package}] on the command line, or ae.trust({package!r}) in Python, allows those of {package}"
    accepted = f"a class of {' or '.join([*ALLOWED_PACKAGES, *sorted(_trusted_packages)])}"
    return accepted + hint * bool(dot and package.isidentifier() and package not in ours)


@dataclass(frozen=True)
class ClassSpec:
    """A class, or an annotated function, given by its dotted name and arguments. It is imported when it is needed.

    >>> from arith_erd.tasks import Task
    >>> ClassSpec.from_group("task", {"_target_": "arith_erd.tasks.Add", "name": "add", "bits": 3}).build(Task).bits
    3
    """

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None  # name of the option, as in file names
    key: str = field(default="", compare=False)  # key of the target, for messages

    @classmethod
    def from_group(cls, key: str, group: Any, types: Mapping[str, Any] | None = None, *metadata: str) -> "ClassSpec":
        """The class of a group of keys; a `UserError` for a target that is not allowed, or a second target.

        It checks arguments with annotated ``types``. The keys ``metadata`` and ``name`` are not arguments.
        """
        if not isinstance(group, dict):
            raise bad_value(key, group, "a group of keys")
        name = require_name(f"{key}.name", group["name"]) if "name" in group else None
        arguments = {str(k): value for k, value in group.items() if k not in ("_target_", "name", *metadata)}
        for argument, annotation in (types or {}).items():
            if argument in arguments:
                try:
                    TypeAdapter(annotation).validate_python(arguments[argument])
                except ValidationError as error:
                    accepted = annotation.__metadata__[0].description
                    raise bad_value(f"{key}.{argument}", arguments[argument], accepted) from error
        if nested := [*_nested_targets(arguments)]:
            raise bad_value(f"{key}._target_", nested[0], "no `_target_` inside: only the group itself names a class")
        return replace(cls.from_name(f"{key}._target_", group.get("_target_")), arguments=arguments, name=name)

    @classmethod
    def from_name(cls, key: str, target: Any) -> "ClassSpec":
        """The class of a dotted name, the value of ``key``, without arguments; errors as in `from_group`."""
        module, _, _ = str(target).rpartition(".")
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", str(target), re.ASCII) or not _is_allowed(module):
            raise bad_value(key, target, _accepted_targets(target))
        return cls(str(target), key=key)

    def build(self, kind: type[T], *positional: Any, **named: Any) -> T:
        """Make an object of the class, a subclass of ``kind``. Arguments given here override the group's."""
        make = self.import_class(kind)
        with self.explain_errors():
            return make(*positional, **{**self.arguments, **named})

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn every error in the block, which runs the class's code, into a `UserError` with file and line."""
        try:
            yield
        except ArgumentsError as error:
            raise self.error_about(str(error)) from error
        except (UserError, KeyboardInterrupt, ProgramExit):
            raise
        except BaseException as error:
            file = getattr(sys.modules.get(self.target.rpartition(".")[0]), "__file__", None)
            place = last_line(error, lambda path: path == file)
            raise self.error_about(first_line(error) + (f" ({place})" if place else "")) from error

    def error_about(self, what: str) -> UserError:
        return UserError(f"{self.key}={self.target}: {what}")

    def import_class(self, kind: type[T]) -> type[T]:
        """Import the subclass of ``kind``, or the function that returns one; re-exports are refused."""
        module, _, name = self.target.rpartition(".")
        try:
            member = getattr(importlib.import_module(module), name, None)
        except (KeyboardInterrupt, ProgramExit):
            raise
        except BaseException as error:  # a module may raise anything
            if not _is_missing(error, module):
                raise self.error_about(f"importing {module} fails with {first_line(error)}") from error
            member = None
        if member is None:
            hint = did_you_mean(name, dir(sys.modules.get(module)))
            raise self.error_about(f"expected {_accepted_targets()}, but none has that name{hint}")
        produced, home = member, str(getattr(member, "__module__", ""))
        if inspect.isfunction(member) and _is_allowed(home) and not _is_inside(home, ALLOWED_PACKAGES):
            with self.explain_errors():
                produced = inspect.signature(member, eval_str=True).return_annotation
            if produced is inspect.Signature.empty:
                raise self.error_about(f"expected an annotated function, such as def {name}(..) -> {kind.__name__}")
        if not isinstance(produced, type) or not _is_allowed(home):
            raise self.error_about(f"expected {_accepted_targets()}")
        if not issubclass(produced, kind):
            raise self.error_about(f"expected a {kind.__name__}")
        return cast(type[T], member)


def _nested_targets(value: Any) -> Iterator[Any]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from [child] if key == "_target_" else _nested_targets(child)
