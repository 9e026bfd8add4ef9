"""The examples of the README work as they stand there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every file that the README shows whole."""
    copy = tmp_path_factory.mktemp("extended")
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "train.py", copy)
    blocks = re.findall(r"```(?:python|yaml)\n# ((?:src|conf)/\S+)\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) == 7
    for path, text in blocks:
        assert not (copy / path).exists(), f"{path} would be overwritten"
        (copy / path).write_text(text)
    return copy


@pytest.mark.parametrize("choice", ["task=sub split=band model=mlp", "ablation=two_layers"])
def test_examples_train(extended: Path, choice: str) -> None:
    command = [sys.executable, "train.py", *choice.split(), "task.bits=4", "trainer.max_epochs=1", "seed=0-1"]
    environment = os.environ | {"PYTHONPATH": str(extended / "src")}
    ran = subprocess.run(command, cwd=extended, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    name = choice.split()[0].split("=")[1]
    assert [path for path in (extended / "runs").glob("*/summary.json") if name in path.parent.name]
