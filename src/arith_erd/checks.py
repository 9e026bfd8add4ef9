"""Checks and conversions of what callers give; a `UserError` for values that do not fit."""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import numpy as np

from .errors import UserError, bad_value, counted, first_line, no_such_key, warn

if TYPE_CHECKING:
    from pydantic import ValidationError

NO_FIELDS: Mapping[str, Any] = {}
UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")  # types of Pydantic's errors
Function = TypeVar("Function", bound=Callable[..., Any])


def require_integer(key: str, value: object, low: int, high: int | None = None) -> None:
    """Raise a `UserError` unless ``value`` is an integer (not a bool; NumPy's too) in [low, high]."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < low or (high is not None and number > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise bad_value(key, _quoted(value), f"an integer {limits}")


def require_fraction(key: str, value: object, zero: bool = False) -> None:
    """Raise a `UserError` unless ``value`` is a number (not a bool) between 0 and 1, excluded; 0 may be if ``zero``."""
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else -1
    if not (0 < number < 1 or (zero and number == 0)):
        raise bad_value(key, value, "a number " + ("from 0 to below 1" if zero else "between 0 and 1, both excluded"))


def require_type(what: str, value: object, kind: type) -> None:
    """Raise a `UserError` unless ``value`` is of a class, such as ``model: received list; expected Hooked``."""
    if not isinstance(value, kind):
        received = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise UserError(f"{what}: received {received}; expected {kind.__name__}")


def renamed(old: str, new: str, since: str) -> Callable[[Function], Function]:
    """Decorate a function so that an argument may have its old name, too, with a `FutureWarning`, until 2.0."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def taking_both(*arguments: Any, **named: Any) -> Any:
            if old in named and new not in named:
                warn(f"{function.__name__}: {old}= is {new}= since {since}", FutureWarning)
                named[new] = named.pop(old)
            return function(*arguments, **named)

        taking_both.__dict__["old_names"] = {**vars(function).get("old_names", {}), old: new}
        return cast(Function, taking_both)

    return decorate


def user_path(path: Path | str, key: str = "path") -> Path:
    """A path with ``~`` or ``~USER`` expanded; ``./~x`` is made absolute. A `UserError` if it is not a path."""
    text = os.path.expanduser(path) if isinstance(path, str | Path) else ""
    if not text or text.startswith("~") or "\0" in text:
        accepted = "a path; ~ and ~USER are home folders, ./~x is a file of that name"
        raise bad_value(key, "''" if path == "" else path, accepted)
    return Path(os.path.abspath(text) if str(Path(text)).startswith("~") else text)


def import_extra(package: str, extra: str, key: str = "") -> Any:
    """Import a package of an optional extra. If it is missing, a `UserError` says for which key, and how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise UserError(f"{key or package}: {first_line(error)}; pip install 'arith_erd[{extra}]'") from error


def as_python(value: Any) -> Any:
    """Convert NumPy's numbers to Python's, also in lists, since configurations and strict checks refuse NumPy's."""
    if isinstance(value, list | tuple):
        return [as_python(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def explain_validation_error(
    error: "ValidationError", values: Any, fields: Mapping[str, Any] = NO_FIELDS, prefix: str = ""
) -> UserError:
    """Turn Pydantic's first error into one with a dotted key and value: ``probe.num_examples=0: expected an integer``.

    ``fields`` of the dataclass for ``values`` describe the accepted values; without a description Pydantic does.
    """
    first, *others = error.errors(include_url=False)
    key, node, known, description = prefix, values, NO_FIELDS, ""
    of_a_value = not first["type"].startswith(("missing", "invalid_key", *UNKNOWN_KEY))
    for part in map(str, first["loc"]):
        if isinstance(node, list) and part.isdigit():
            key, node = f"{key}.{part}", node[int(part)]
            continue
        if not isinstance(node, Mapping) or part == "[key]" or (part not in {**node, **fields} and of_a_value):
            break  # an alternative of a type
        key, node, known = f"{key}.{part}".strip("."), node.get(part), fields
        if part in known:
            description = known[part].description or description
            kinds = (known[part].annotation, *get_args(known[part].annotation))  # of a list or a union: its items
            fields = next(filter(None, (getattr(kind, "__pydantic_fields__", None) for kind in kinds)), NO_FIELDS)
    if first["type"] in ("value_error", "assertion_error"):  # a validator's own words; one of several keys names them
        received = f"{key}={_quoted(first['input'])}: " if first["loc"] else ""
        return UserError(f"{received}{first['ctx']['error']}")
    if first["type"].startswith("missing"):
        return UserError(f"{key}: missing; expected a value for it")
    if first["loc"][-1:] == ("[key]",):
        return UserError(f"{key}: no such key; expected {_accepted(first)}")
    if first["type"] in (*UNKNOWN_KEY, *["invalid_key"] * bool(known)):
        return no_such_key(key, [f"{key.rpartition('.')[0]}.{name}".strip(".") for name in known])
    if first["type"] in ("dataclass_type", "dict_type"):
        return bad_value(key, first["input"], "a group of keys")
    branches = [first, *(other for other in others if other["loc"][:1] == first["loc"][:1])]  # alternatives of a union
    return bad_value(key, _quoted(first["input"]), description or " or ".join(dict.fromkeys(map(_accepted, branches))))


def _quoted(value: object) -> object:
    """Quote a number given as text: ``probe.num_examples=5: expected an integer`` would contradict itself."""
    return repr(value) if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?", value) else value


def _accepted(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    low = context.get("ge", 0)
    kind = {int: "an integer", float: "a number"}.get(type(low))  # else a date, for example
    descriptions = {
        "greater_than_equal": kind and f"{kind} of at least {int(low) if low == int(low) else low}",
        "literal_error": str(context.get("expected", "")).replace("'", ""),
        "int_type": "an integer",
        "int_parsing": "an integer",
        "string_type": "a name",
        "string_too_short": f"at least {counted(context.get('min_length', 0), 'character')}",
        "string_pattern_mismatch": f"text that matches {context.get('pattern')}",
        "is_instance_of": "a list" if context.get("class") == "Sequence" else f"an object, a {context.get('class')}",
        "sequence_str": "a list",
        "too_short": "at least one of them",
    }
    return descriptions.get(error["type"]) or str(error["msg"]).removeprefix("Input should be ")
