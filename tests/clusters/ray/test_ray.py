"""Runs of a sweep share the GPUs of a box, as Ray hands them out. The GPUs are only declared. A worker is killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from arith_erd.runs.directory import Run
from tests.tiny import TINY

pytestmark = pytest.mark.slow
PATIENCE = 1800  # seconds, on a busy machine


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since Ray puts sockets there, whose paths may have 107 characters only."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def test_four_runs_share_two_gpus_and_that_of_a_killed_worker_resumes(folder: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray")
    program = Path(__file__).with_name("sharing.py")
    gpus = [f"hydra.launcher.ray.{key}" for key in ("init.num_gpus=2", "init.num_cpus=4", "remote.num_gpus=0.5")]
    settings = [*gpus, *TINY, "trainer.max_epochs=40", "seed=0,1,2,3"]
    output, killed = folder / "output.txt", False
    with output.open("w") as file:  # no pipe: Ray's own processes would hold it open for a while
        sweep = subprocess.Popen(
            [sys.executable, str(program), "-m", "hydra/launcher=ray_gpus", *settings],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    deadline = time.monotonic() + PATIENCE
    while sweep.poll() is None:
        if time.monotonic() > deadline:
            sweep.terminate()
            raise TimeoutError(output.read_text())
        for path in folder.glob("runs/*seed2-*") if not killed else ():
            if 2 <= len(Run(path).metrics()) < 20:
                os.kill(int((folder / "workers" / path.name).read_text()), signal.SIGKILL)
                killed = True
        time.sleep(0.1)
    assert sweep.returncode == 0, output.read_text()
    assert killed
    logs = "".join(path.read_text() for path in folder.glob("runs/.ray_gpus-*/*/logs/*"))
    assert logs.count("resuming from epoch") == 1, logs
    assert len(list(folder.glob("runs/*/summary.json"))) == 4
    assert Counter(path.read_text() for path in (folder / "devices").iterdir()) == {"0": 2, "1": 2}
