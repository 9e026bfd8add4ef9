"""The built wheel works without the repository: it brings ``conf/``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_wheel_brings_every_configuration_and_programs_find_them(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="the build backend")
    source, installed = tmp_path / "source", tmp_path / "installed"  # setuptools leaves build/ behind
    source.mkdir()
    for name in ("src", "conf", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).symlink_to(root / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", f"-w{tmp_path}", source]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, installed, "zip")
    wanted, found = (
        {path.relative_to(conf) for path in conf.rglob("*.yaml")}
        for conf in (root / "conf", installed / "arith_erd/conf")
    )
    assert found == wanted
    for program in ("training", "probes"):
        command = [sys.executable, "-m", f"arith_erd.{program}", "task=mul", "--cfg", "job"]
        environment = os.environ | {"PYTHONPATH": str(installed)}
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "_target_: arith_erd.tasks.Mul" in ran.stdout
