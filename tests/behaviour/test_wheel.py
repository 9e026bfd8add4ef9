"""The built wheel works without the repository: it brings ``conf/``."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what pip would unpack from the wheel."""
    pytest.importorskip("setuptools", minversion="77", reason="the build backend")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # setuptools leaves build/ behind
    source.mkdir()
    for name in ("src", "conf", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).symlink_to(root / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", f"-w{folder}", source]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.mark.slow
def test_wheel_contains_every_configuration(installed: Path, root: Path) -> None:
    wanted, found = (
        {path.relative_to(conf) for path in conf.rglob("*.yaml")}
        for conf in (root / "conf", installed / "arith_erd/conf")
    )
    assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize("program", ["training", "probes"])
def test_programs_find_their_configurations_from_any_folder(program: str, installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"arith_erd.{program}", "task=mul", "--cfg", "job"]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "_target_: arith_erd.tasks.Mul" in ran.stdout
