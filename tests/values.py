"""The names of options in ``conf/``, and copies of a configuration with a changed key."""

from typing import Any

from arith_erd.bundled import CONF


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def put(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a configuration with another value at a dotted key."""
    first, _, rest = key.partition(".")
    return config | {first: put(config.get(first) or {}, rest, value) if rest else value}
