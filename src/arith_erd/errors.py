"""The one error type that people see as a single line instead of a traceback."""


class UserError(Exception):
    """Input that cannot be used.

    The message is one line that says what was received, what is accepted and which key or file to change.
    """


def bad_value(key: str, value: object, accepted: str) -> UserError:
    """``task.bits=1: expected an integer from 2 to 9``, as an error to raise."""
    return UserError(f"{key}={value}: expected {accepted}")


def require_integer(key: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse what is no integer from ``low`` to ``high``; True and False are none.

    Raises:
        UserError: naming the key.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise bad_value(key, value, f"an integer {span}")


def first_line(error: Exception) -> str:
    """``ValueError: no such thing``; of a `UserError` its message alone."""
    name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return f"{name}{str(error).strip().partition(chr(10))[0]}"
