"""Runs of a sweep share the GPUs of a box, as Ray hands them out; here the GPUs are only declared."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import TINY

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since Ray puts sockets there, whose paths may have 107 characters only."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def test_four_runs_share_two_gpus(folder: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray")
    program = Path(__file__).with_name("sharing.py")
    gpus = [f"hydra.launcher.ray.{key}" for key in ("init.num_gpus=2", "init.num_cpus=4", "remote.num_gpus=0.5")]
    output = folder / "output.txt"
    with output.open("w") as file:  # no pipe: Ray's own processes would hold it open for a while
        ran = subprocess.run(
            [sys.executable, str(program), "-m", "hydra/launcher=ray_gpus", *gpus, *TINY, "seed=0,1,2,3"],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=1800,
        )
    assert ran.returncode == 0, output.read_text()
    assert len(list(folder.glob("runs/*/summary.json"))) == 4
    assert Counter(path.read_text() for path in (folder / "devices").iterdir()) == {"0": 2, "1": 2}
