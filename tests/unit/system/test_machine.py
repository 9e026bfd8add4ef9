"""What a summary says about the code that trained."""

import subprocess
from pathlib import Path

from arith_erd.system.machine import commit


def test_runs_in_a_repository_are_no_change_of_its_code(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *own, *words], check=True, capture_output=True)

    def write(name: str, text: str = "") -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    package = tmp_path / "src" / "package"
    git("init")
    write("src/package/code.py")
    git("add", ".")
    git("commit", "-m", "first")
    clean = commit(package)
    assert clean
    write("my_runs/add-seed0/config.yaml")
    assert commit(package) == clean
    write("conf/task/new.yaml")
    assert commit(package) == f"{clean}-dirty"
    (tmp_path / "conf" / "task" / "new.yaml").unlink()
    write("src/package/code.py", "changed = True")
    assert commit(package) == f"{clean}-dirty"
