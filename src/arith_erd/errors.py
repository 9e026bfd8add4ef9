"""The one error type that people see as a single line instead of a traceback."""

LONGEST = 1000  # characters of a message


class UserError(Exception):
    """Input that cannot be used.

    The message is one line that says what was received, what is accepted and which key or file to change.
    """

    def __init__(self, message: str) -> None:
        text = printable(" ".join(message.split()))
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}")


def bad_value(key: str, value: object, accepted: str) -> UserError:
    """``task.bits=1: expected an integer from 2 to 9``, as an error to raise."""
    return UserError(f"{key}={value}: expected {accepted}")


def printable(text: str) -> str:
    """Text from outside fit for a terminal: control characters, which could rewrite it, are spelt out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
