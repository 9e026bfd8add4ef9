"""The values that each key accepts.

A `Reader` turns the value of one key into what the program works with, or raises a `UserError` that names the key. A
dataclass whose fields are annotated with readers is a *closed* group: `read_group` refuses every key it does not list.
An *open* group is one whose ``_target_`` takes the keys as arguments (`build.factory`), so its class refuses them.
"""

import difflib
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from ..errors import UserError, bad_value

Reader = Callable[[str, Any], Any]
"""``reader(key, value)`` is the value as the program uses it; raises a `UserError`."""
Group = TypeVar("Group")

LARGEST_COUNT = 2**31 - 1  # what torch can count to
LARGEST_NETWORK = 4096  # channels, heads or layers: more than any machine holds


def accepting(accepted: str, test: Callable[[Any], bool]) -> Reader:
    """Values for which ``test`` holds; ``accepted`` describes them in the error."""

    def reader(key: str, value: Any) -> Any:
        if not test(value):
            raise bad_value(key, value, accepted)
        return value

    return reader


def nullable(reader: Reader) -> Reader:
    """What ``reader`` accepts, or null."""

    def or_null(key: str, value: Any) -> Any:
        try:
            return None if value is None else reader(key, value)
        except UserError as error:
            raise UserError(f"{error}, or null") from error

    return or_null


def one_of(*options: str) -> Reader:
    return accepting(" or ".join(options), lambda value: isinstance(value, str) and value in options)


def count(highest: int = LARGEST_COUNT) -> Reader:
    """Integers from 1 to ``highest``."""

    def reader(key: str, value: Any) -> Any:
        if not is_count(value):
            raise bad_value(key, value, "an integer of at least 1")
        if value > highest:
            raise bad_value(key, value, f"at most {highest}")
        return value

    return reader


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_number(value: object, low: float, high: float = sys.float_info.max) -> bool:
    """A finite number from ``low`` to ``high``; integers too large for a float are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def as_real(value: Any) -> Any:
    """1 -> 1.0 and -0.0 -> 0.0; what is no number stays as it is."""
    return value + 0.0 if is_number(value, -sys.float_info.max) else value


def is_positive(value: object) -> bool:
    return is_number(value, math.ulp(0.0))


Mode = Literal["offline", "online", "disabled"]  # of W&B
MODES: tuple[Mode, ...] = get_args(Mode)

SWITCH = accepting("true or false", lambda x: isinstance(x, bool))
PROBABILITY = accepting("a probability from 0 to below 1", lambda x: is_number(x, 0, math.nextafter(1, 0)))
POSITIVE = accepting("a number above 0", is_positive)
ACCURACY = accepting("an accuracy from 0 to 1", lambda x: is_number(x, 0, 1))
FOLDER = accepting("a folder", lambda x: isinstance(x, str) and x != "")

NETWORK: Mapping[str, Reader] = {  # arguments that networks have in common; others are checked by the network's class
    **dict.fromkeys(("d_model", "num_heads", "num_layers"), count(LARGEST_NETWORK)),
    **dict.fromkeys(("encoder", "attention", "feed_forward", "positional_encoding"), SWITCH),
    "dropout": PROBABILITY,
}
OPTIMIZER: Mapping[str, Reader] = {
    "lr": POSITIVE,
    "betas": accepting(
        "two numbers from 0 to below 1, as [0.9,0.98]",
        lambda x: isinstance(x, list) and len(x) == 2 and all(is_number(b, 0, math.nextafter(1, 0)) for b in x),
    ),
    "eps": POSITIVE,
    "weight_decay": accepting("a number of at least 0", lambda x: is_number(x, 0)),
    "momentum": accepting("a number from 0 to below 1", lambda x: is_number(x, 0, math.nextafter(1, 0))),
}
SCHEDULER: Mapping[str, Reader] = {  # what their effect within a run does not show; see `recipe.schedule_of`
    "step_size": count(),
    "gamma": POSITIVE,
}
LOSS: Mapping[str, Reader] = {
    "label_smoothing": PROBABILITY,
    "weight": POSITIVE,
    "site": accepting("the name of a site, as dec.1", lambda x: isinstance(x, str) and x != ""),
    "target": accepting("the name of a concept of the task", lambda x: isinstance(x, str) and x != ""),
}
LOGGER: Mapping[str, Reader] = {  # here because W&B is slow to import, and its own check would come late
    "mode": one_of(*MODES),
    "artifacts": SWITCH,
    "timeout": accepting("seconds above 0", is_positive),
}


def read_group(kind: type[Group], name: str, group: Any) -> Group:
    """A closed group of keys as the dataclass ``kind`` that lists them.

    Raises:
        UserError: naming a key that is missing or not listed, or whose value is refused.
    """
    defaults = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]
    require_keys(name, group, defaults, {k for k, default in defaults.items() if default is MISSING})
    readers = {k: hint.__metadata__[0] for k, hint in get_type_hints(kind, include_extras=True).items()}
    return kind(**{k: readers[k](f"{name}.{k}", value) for k, value in group.items()})


def reals(name: str, kind: type) -> set[str]:
    """The dotted keys of a closed group whose type is float, or float or null."""
    return {f"{name}.{k}" for k, hint in get_type_hints(kind).items() if float in (hint, *get_args(hint))}


def require_keys(name: str, group: Any, known: Collection[str], required: Collection[str]) -> None:
    """Refuse a group with a key that nothing reads, or without one that is needed; ``name`` is empty at the top."""
    prefix = f"{name}." if name else ""
    if not isinstance(group, dict):
        raise bad_value(name, group, "a group of keys")
    for k in group:
        if k not in known:
            raise no_such_key(f"{prefix}{k}", [f"{prefix}{other}" for other in known])
    for k in known:
        if k in required and k not in group:
            raise UserError(f"{prefix}{k}: missing; expected a value for it")


def no_such_key(key: str, known: Collection[str]) -> UserError:
    """``trainer.max_epoch: no such key; did you mean trainer.max_epochs?``, as an error to raise.

    Args:
        key: dotted.
        known: dotted keys that exist. The groups that they are in are suggested too: ``taks`` may be ``task``.
    """
    groups = {".".join(k.split(".")[:n]) for k in known for n in range(1, k.count(".") + 1)}
    candidates = {k for k in (*known, *groups) if k.count(".") == key.count(".")} | set(known)
    close = difflib.get_close_matches(key, sorted(candidates), n=3, cutoff=0.6)
    last = key.split(".")[-1]
    close += [k for k in sorted(known) if k.split(".")[-1] == last and k not in close]
    siblings = sorted(k for k in candidates if k.rpartition(".")[0] == key.rpartition(".")[0])
    siblings = siblings or sorted({k.split(".")[0] for k in known})
    hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(siblings)}"
    return UserError(f"{key}: no such key; {hint}")


def as_text(value: str) -> str:
    """``'a=b'``: a text as Hydra reads it, with quotes if it would read something else without."""
    plain = re.fullmatch(r"[\w/.:%+@*?| -]*", value, re.ASCII) and value == value.strip()
    if plain and not re.fullmatch(r"null|true|false|[+-]?(nan|inf|\.?\d[\d_.e+-]*)", value, re.IGNORECASE):
        return value
    escaped = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), value)
    return f"'{escaped}'"


def leaves(node: Mapping[Any, Any], prefix: str = "") -> "list[tuple[str, Any]]":
    """``{"a": {"b": 1}}`` -> ``[("a.b", 1)]``; lists and empty groups are leaves."""
    found: list[tuple[str, Any]] = []
    for k, value in node.items():
        nested = isinstance(value, dict) and value
        found += leaves(value, f"{prefix}{k}.") if nested else [(f"{prefix}{k}", value)]
    return found
