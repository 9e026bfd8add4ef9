"""Runs of a sweep share the GPUs of a box, as Ray hands them out; here the GPUs are only declared."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_four_runs_share_two_gpus(tiny, tmp_path: Path):
    pytest.importorskip("ray", reason="pip install -c requirements.ray.lock -e '.[ray]'")
    program = Path(__file__).with_name("sharing.py")
    gpus = [f"hydra.launcher.ray.{key}" for key in ("init.num_gpus=2", "init.num_cpus=4", "remote.num_gpus=0.5")]
    ran = subprocess.run(
        [sys.executable, str(program), "-m", "hydra/launcher=ray_gpus", *gpus, *tiny, "seed=0,1,2,3"],
        cwd=tmp_path,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "RAY_DEDUP_LOGS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 4
    assert Counter(path.read_text() for path in (tmp_path / "devices").iterdir()) == {"0": 2, "1": 2}
