from pathlib import Path

import pytest

from arith_erd.errors import UserError
from arith_erd.system.files import require_writable, write_atomically


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "summary.json"
    write_atomically(target, "old")

    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    monkeypatch.undo()
    write_atomically(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert target.read_text() == "new"


def test_a_folder_that_can_be_made_is_left_unmade(tmp_path):
    require_writable("runs_dir", tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("inside", ["", "/sub", "/sub/sub"])
def test_a_folder_that_cannot_be_made_is_refused(inside, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^out=.*file.*: cannot be written .*; expected a folder"):
        require_writable("out", f"{tmp_path}/file{inside}")
