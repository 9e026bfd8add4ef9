"""How a program ends, also if its output is closed or full."""

import subprocess
import sys

import pytest

from arith_erd.system.cli_errors import EXIT_FAILED, EXIT_INTERNAL, USER_CODE_NOTE, line_and_status

PRINTS = """
import sys
from arith_erd.system.cli_errors import one_line_errors
with one_line_errors():
    print("\u00fc" * 10, flush=True)
    print("\u00fc", file=sys.stderr)
    open(sys.argv[1], "w").write("done")
"""


@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-", ">/dev/full", "| true"])
def test_output_that_is_closed_or_full_ends_nothing(redirected, tmp_path):
    command = f'"$1" -c "$2" "$3" {redirected}'
    arguments = ["sh", "-c", command, "sh", sys.executable, PRINTS, str(tmp_path / "file")]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stdout + result.stderr
    assert result.returncode == 0
    assert (tmp_path / "file").read_text() == "done"


def test_characters_that_the_terminal_lacks_are_escaped(tmp_path):
    arguments = [sys.executable, "-c", PRINTS, str(tmp_path / "file")]
    environment = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    result = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert (result.stdout, result.stderr) == ("\\xfc" * 10 + "\n", "\\xfc\n")


def test_line_is_written_at_once_into_a_pipe_and_a_warning_is_a_line(cli):
    code = "import os; from arith_erd.system.cli_errors import one_line_errors as lines\nwith lines():"
    assert cli("-c", f"{code}\n    print('a line')\n    os._exit(0)").stdout == "a line\n"
    warns = f"{code}\n    import warnings; [warnings.warn('few pairs', stacklevel=n) for n in (1, 2)]"
    assert cli("-c", warns).stderr == "warning: few pairs\n"


def test_error_of_own_code_is_a_failure_that_names_the_code():
    error = KeyError("margin")
    assert line_and_status(error)[1] == EXIT_INTERNAL
    error.add_note(f"{USER_CODE_NOTE}step 5: my_package.losses.Margin")
    error.add_note("see error.txt")
    line = "step 5: my_package.losses.Margin: KeyError: 'margin'; the traceback is in error.txt"
    assert line_and_status(error) == (line, EXIT_FAILED)
