"""From a resolved configuration to a `Job` or a `ProbeJob`; what is refused becomes one line."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..errors import UserError, bad_value, no_such_key, user_error
from ..runs import Run, leaves
from .job import BaseJob, Job, ProbeJob

OURS = ("resolved", "typed", "departures", "overwrite")  # fields that no file sets
Kind = TypeVar("Kind", bound=BaseJob)


def read_job(config: Mapping[str, Any], overwrite: Any = False) -> Job:
    """The job of a resolved configuration, or a `UserError` that names a key; ``overwrite`` holds for one command."""
    stored = {key: value for key, value in config.items() if key not in ("trust", "overwrite")}  # of another command
    return _read(Job, stored, overwrite=overwrite)


def read_probe_job(config: Mapping[str, Any], typed: Collection[str] = (), departures: str = "") -> ProbeJob:
    """The job of a resolved configuration of ``probe.py``, with what `ProbeJob` says of it; errors as `read_job`."""
    about = ("task", "split", "model", "seed")
    kept = tuple(text for text in typed if text.lstrip("+~").replace("=", ".").split(".")[0] in about)
    return _read(ProbeJob, config, typed=kept, departures=departures)


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
    fields: Mapping[str, Any] = vars(kind)["__pydantic_fields__"]
    known = [name for name in fields if name not in OURS]
    for key in config:
        if key not in known:
            raise no_such_key(str(key), known)
    given = {**config, **ours, "resolved": dict(config)}
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise user_error(error, given, fields) from error
