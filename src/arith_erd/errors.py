"""The error that is shown to people as one line, without a traceback, and those that a damaged file raises."""

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 1000  # characters of a message
EXCERPT = 200


class UserError(Exception):
    """The user's input cannot be used.

    The message is one line: what was received, what is accepted, and which key or file to change.
    """

    def __init__(self, message: str) -> None:
        text = printable(" ".join(message.split()))
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}")


UNREADABLE = (UserError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""Exceptions that a file with unexpected content raises in the code that reads it."""


def bad_value(key: str, value: object, accepted: str) -> UserError:
    """The error ``task.bits=1: expected an integer from 2 to 9``, to be raised by the caller."""
    return UserError(f"{key}={value}: expected {accepted}")


def refused(prefix: str, errors: Sequence[Mapping[str, Any]]) -> UserError:
    """Pydantic's ``ValidationError.errors()`` in a line: ``probe.pairs=0: expected an integer of at least 1``.

    Errors at the same place are the branches of a union.
    """
    first = errors[0]
    name = first["loc"][0] if first["loc"] else ""
    branches = dict.fromkeys(_accepted(error) for error in errors if error["loc"][:1] == first["loc"][:1])
    return bad_value(f"{prefix}.{name}".strip("."), first["input"], " or ".join(branches))


def _accepted(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    words = {
        "greater_than_equal": f"an integer of at least {context.get('ge')}",
        "literal_error": str(context.get("expected", "")).replace("'", ""),
        "int_type": "an integer",
        "string_type": "a name",
        "is_instance_of": "a list",
        "sequence_str": "a list",
        "unexpected_keyword_argument": "no such key",
    }
    return words.get(error["type"]) or str(error["msg"]).removeprefix("Input should be ")


def require_integer(key: str, value: object, low: int, high: int | None = None) -> None:
    """Raise a `UserError` with the key unless ``value`` is an int (not a bool) in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise bad_value(key, value, f"an integer {span}")


def first_line(error: BaseException) -> str:
    """``ValueError: its message``, one line; for a `UserError` the message only."""
    name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return f"{name}{str(error).strip().partition(chr(10))[0]}"


def printable(text: str) -> str:
    """Text that is safe to print: control characters, which could rewrite the terminal, are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def excerpt(text: str) -> str:
    """The first 200 characters, safe to print: for what a file says of itself."""
    return printable(text if len(text) <= EXCERPT else f"{text[:EXCERPT]} ...")
