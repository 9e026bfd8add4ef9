"""What a program says at its end."""

from arith_erd.system.boundary import FAILED, FAILURE, INTERNAL, explain


def test_error_of_own_code_is_a_failure_that_names_the_code():
    error = KeyError("margin")
    assert explain(error)[1] == INTERNAL
    error.add_note(f"{FAILURE}step 5: my_package.losses.Margin")
    error.add_note("see error.txt")
    line = "step 5: my_package.losses.Margin: KeyError: 'margin'; the traceback is in error.txt"
    assert explain(error) == (line, FAILED)
