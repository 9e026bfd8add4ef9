"""Two processes never train one run."""

import os
import signal
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


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of ``tmp_path / "run"``."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_second_process_names_the_holder(holder, tmp_path):
    named = rf"^.*run: in use by process {holder.pid} on {socket.gethostname()}; "
    with pytest.raises(UserError, match=named), holding(tmp_path / "run"):
        pytest.fail("held twice")


def test_lock_is_released_when_its_holder_dies(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with holding(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_file_system_without_locks_is_accepted(tmp_path, monkeypatch, capsys):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with holding(tmp_path / "run"):
        assert "cannot be locked here (Operation not supported)" in capsys.readouterr().out
