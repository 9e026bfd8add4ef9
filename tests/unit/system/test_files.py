"""A file is written whole or not at all, and two processes never train one run."""

import os
import socket
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from arith_erd.config.hydra_conf import hydra_over_conf
from arith_erd.errors import UserError
from arith_erd.system.files import (
    atomic_file,
    is_locked,
    locked,
    require_small_yaml,
    require_writable,
    run_path,
    write_atomically,
)


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "summary.json"
    write_atomically(target, "old")

    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    monkeypatch.undo()
    write_atomically(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert target.read_text() == "new"


def test_error_names_the_file_and_not_its_temporary_name(tmp_path: Path):
    with pytest.raises(OSError, match=r"No space left on device: '\S+/rows\.csv'$"), atomic_file(tmp_path / "rows.csv"):
        raise OSError(28, "No space left on device")  # as Pillow does: without a name
    with pytest.raises(OSError, match=r"Permission denied: '/source'$"), atomic_file(tmp_path / "copy"):
        raise OSError(13, "Permission denied", "/source")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match=r"'\S+/folder'$"):
        write_atomically(tmp_path / "folder", "")


@pytest.mark.parametrize("inside", ["", "/sub/sub"])
def test_folder_that_cannot_be_created_is_refused_and_a_check_makes_none(inside, tmp_path):
    require_writable("runs_dir", tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^out=.*file.*: cannot be written .*; expected a folder"):
        require_writable("out", f"{tmp_path}/file{inside}")


HOLD = """
import sys, time
from pathlib import Path
from arith_erd.system.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_process_names_the_holder_until_that_dies(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        named = rf"^.*run: in use by process {process.pid} on {socket.gethostname()}; "
        with pytest.raises(UserError, match=named), locked(tmp_path / "run"):
            pytest.fail("held twice")
        process.kill()
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


@pytest.mark.parametrize("damage", [Path.symlink_to, Path.hardlink_to, lambda lock, _: os.mkfifo(lock)])
def test_lock_that_is_no_file_of_the_run_changes_nothing(damage, tmp_path):
    (run := tmp_path / "run").mkdir()
    (theirs := tmp_path / "theirs").write_text("somebody's own")
    damage(run / ".lock", theirs)
    assert not is_locked(run)
    with suppress(UserError), locked(run):
        assert damage == Path.hardlink_to  # the others are refused
    assert theirs.read_text() == "somebody's own"


def test_path_in_a_run_is_refused_only_if_it_leads_out_or_is_no_file(tmp_path):
    (tmp_path / "disk" / "run" / "inner").mkdir(parents=True)
    run = tmp_path / "run"
    run.symlink_to(tmp_path / "disk" / "run")
    (run / "inner" / "x").write_text("four")
    (run / "in").symlink_to("inner")
    (run / "out").symlink_to(tmp_path)
    os.mkfifo(run / "pipe")
    for name in ("inner/x", "in/x", "in/new", "in"):
        assert run_path(run / name, run) == run / name
    for name, limit, problem in (
        ("out/x", 9, "a link out of the run directory; expected a file or folder in it"),
        ("pipe", 9, "expected an ordinary file of at most 9 bytes"),
        ("inner/x", 3, "expected an ordinary file of at most 3 bytes"),
    ):
        with pytest.raises(OSError, match=rf"^\[Errno \d+\] {problem}: '{run / name}'$"):
            run_path(run / name, run, limit)


def test_file_system_without_locks_is_accepted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(95, "Operation not supported")))
    with locked(tmp_path / "run"):
        assert "cannot be locked here (Operation not supported)" in capsys.readouterr().out


def nested_aliases(levels: int) -> str:
    """Ten times as many values at each level."""
    return "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else '0'] * 10)}]\n" for i in range(levels))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        *((text, False) for text in ("a: &a [*a]", "a: &a {b: {c: *a}}", "[" * 10**6, "a: " + "[" * 60 + "]" * 60)),
        *((nested_aliases(10), False), ("a: " + "x" * 2**21, False), ("a: &a {b: 1}\nc: {<<: *a}\nd: *a", True)),
        *((nested_aliases(3), True), ("a: " + "[" * 40 + "]" * 40, True), ("a: [", True)),  # the reader names the last
    ],
)
def test_yaml_that_grows_when_it_is_read_is_refused_before(text, accepted, tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "own.yaml").write_text(text)
    refused = pytest.raises(UserError, match=r"own\.yaml: expected an ordinary file of at most")
    with nullcontext() if accepted else refused:
        require_small_yaml(tmp_path / "task" / "own.yaml")
    if not accepted:
        with pytest.raises(UserError, match=r"own\.yaml"), hydra_over_conf("train", [f"hydra.searchpath=[{tmp_path}]"]):
            pytest.fail("was read")
