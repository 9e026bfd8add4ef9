"""From a resolved configuration to a `Job` or a `ProbeJob`; what is refused becomes one line."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..errors import UserError, bad_value
from ..runs import Run
from .job import Common, Job, ProbeJob

OURS = ("resolved", "typed", "overwrite")  # fields that no file sets
TYPED = ("trust", "overwrite")  # for one command; never read from a run
Kind = TypeVar("Kind", bound=Common)


def read_job(config: Mapping[str, Any], overwrite: Any = False) -> Job:
    """The job of a resolved configuration; ``overwrite``, to train it anew, holds for one command.

    Raises:
        UserError: naming a key that nothing reads, or that is missing, or whose value could not be trained with.
    """
    return _read(Job, {key: value for key, value in config.items() if key not in TYPED}, overwrite=overwrite)


def read_probe_job(config: Mapping[str, Any], typed: Collection[str] = ()) -> ProbeJob:
    """The job of a resolved configuration of ``probe.py``, with the overrides that were typed; errors as `read_job`."""
    about = ("task", "split", "model", "seed")
    kept = tuple(text for text in typed if text.lstrip("+~").replace("=", ".").split(".")[0] in about)
    return _read(ProbeJob, config, typed=kept)


def read_run(run: Run) -> Job:
    """The job that a run directory was made by; a `UserError` if its ``config.yaml`` could not have been trained."""
    config = run.config()
    try:
        return read_job(config)
    except UserError as error:
        raise UserError(f"{run.config_file}: {error}") from error


def _read(kind: type[Kind], config: Mapping[str, Any], **ours: Any) -> Kind:
    for key, value in leaves(config):
        if isinstance(value, str) and not value.isprintable():
            raise bad_value(key, value, "text without control characters")
    known = [name for name in _fields(kind) if name not in OURS]
    for key in config:
        if key not in known:
            raise no_such_key(str(key), known)
    given = {**config, **ours, "resolved": dict(config)}
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise _refusal(kind, given, error) from error


def _refusal(kind: type, config: Mapping[str, Any], error: ValidationError) -> UserError:
    """The first complaint of pydantic, by its dotted key and the value that is there."""
    first = error.errors(include_url=False, include_context=False)[0]
    node: Any = config
    fields, known, path, accepted = _fields(kind), {}, [], ""
    for part in first["loc"]:
        if not isinstance(node, dict):
            break  # an item of a list, or an alternative of a type
        path.append(str(part))
        known, node = fields, node.get(part)
        field = fields.get(str(part))
        fields = _fields(field.annotation) if field else {}
        accepted = field.description or accepted if field else accepted
    key = ".".join(path)
    if first["type"] == "missing":
        return UserError(f"{key}: missing; expected a value for it")
    if first["type"] in ("unexpected_keyword_argument", "invalid_key"):
        return no_such_key(key, [".".join([*path[:-1], name]) for name in known])
    return bad_value(key, node, "a group of keys" if first["type"] in ("dataclass_type", "dict_type") else accepted)


def _fields(kind: Any) -> dict[str, Any]:
    return getattr(kind, "__pydantic_fields__", {})


def no_such_key(key: str, known: Collection[str]) -> UserError:
    """``trainer.max_epoch: no such key; did you mean trainer.max_epochs?``, as an error to raise.

    The groups of the known dotted keys are suggested too: ``taks`` may be ``task``.
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


def leaves(node: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` -> ``[("a.b", 1)]``; lists and empty groups are leaves."""
    found: list[tuple[str, Any]] = []
    for k, value in node.items():
        nested = isinstance(value, dict) and value
        found += leaves(value, f"{prefix}{k}.") if nested else [(f"{prefix}{k}", value)]
    return found
