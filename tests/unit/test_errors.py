"""Error messages are one line, safe to print, and of bounded length."""

import pytest

from arith_erd.errors import MAX_MESSAGE_LENGTH, UserError, first_line, require_integer


def test_message_is_one_line_without_control_characters() -> None:
    assert str(UserError("two\nlines \x1b[31m")) == r"two lines \x1b[31m"


def test_long_message_keeps_its_beginning_and_end() -> None:
    text = str(UserError(f"first {'x' * 5000} last"))
    assert len(text) <= MAX_MESSAGE_LENGTH + len(" ... ")
    assert text.startswith("first ")
    assert text.endswith(" last")


@pytest.mark.parametrize("value", [1, 10, True, 2.0, "3", None])
def test_integers_out_of_range_and_other_types_are_refused(value: object) -> None:
    with pytest.raises(UserError, match="expected an integer from 2 to 9"):
        require_integer("task.bits", value, 2, 9)


def test_first_line_names_the_type_of_other_errors_only() -> None:
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(UserError("one")) == "one"
