"""Two processes never train one run."""

import os
import socket
import subprocess
import sys

import pytest

from arith_erd.errors import UserError
from arith_erd.system.lock import holding

HOLD = """
import sys, time
from pathlib import Path
from arith_erd.system.lock import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_process_names_the_holder_until_that_dies(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        named = rf"^.*run: in use by process {process.pid} on {socket.gethostname()}; "
        with pytest.raises(UserError, match=named), holding(tmp_path / "run"):
            pytest.fail("held twice")
        process.kill()
    with holding(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_file_system_without_locks_is_accepted(tmp_path, monkeypatch, capsys):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with holding(tmp_path / "run"):
        assert "cannot be locked here (Operation not supported)" in capsys.readouterr().out
