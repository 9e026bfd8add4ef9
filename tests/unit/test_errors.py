"""Error messages are one line, safe to print, and of bounded length."""

from arith_erd.errors import MAX_MESSAGE_LENGTH, UserError


def test_message_is_one_line_without_control_characters() -> None:
    assert str(UserError("two\nlines \x1b[31m")) == r"two lines \x1b[31m"


def test_long_message_keeps_its_beginning_and_end() -> None:
    text = str(UserError(f"first {'x' * 5000} last"))
    assert len(text) <= MAX_MESSAGE_LENGTH + len(" ... ")
    assert text.startswith("first ")
    assert text.endswith(" last")
