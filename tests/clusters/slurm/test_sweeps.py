"""The command that submits a sweep: what it submits, for what it waits, and what it says. Its jobs train nothing."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.clusters.slurm.cluster import Cluster

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("program.py")
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1.5")
PATIENCE = 240  # seconds, on a busy machine


class Sweep:
    """A sweep over seeds, each a job of ``steps`` steps; all that it writes goes into ``folder``."""

    def __init__(self, folder: Path, cluster: Cluster, jobs: int, steps: int = 60) -> None:
        seeds = ",".join(map(str, range(jobs)))
        options = (*PRESET, f"seed={seeds}", f"trainer.max_epochs={steps}", f"runs_dir={folder / 'runs'}")
        self.folder, self.cluster, self.jobs = folder, cluster, jobs
        self.command = [sys.executable, str(PROGRAM), "-m", *options]

    def start(self, *overrides: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.command, *overrides],
            env=self.cluster.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def steps(self, job: int) -> int:
        return sum(len(path.read_text()) for path in self.folder.glob(f"runs/*-seed{job}-*/steps"))

    def running(self) -> dict[int, str]:
        """Jobs that run, and their ids; of the first submission, which numbers them as the sweep does."""
        words = ("squeue", "--states=RUNNING", "--noheader", "--format=%K %i")
        return {int(job): name for job, name in (line.split() for line in self.cluster.command(*words).splitlines())}

    def log(self, job: int) -> str:
        (log,) = self.folder.glob(f"runs/.slurm-*/*/logs/{job}_log.txt")
        return log.read_text()


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def sweep(tmp_path: Path, cluster: Cluster) -> Callable[..., Sweep]:
    return partial(Sweep, tmp_path, cluster)


def ended(command: "subprocess.Popen[str]", status: int) -> str:
    """What a command has printed, which ends with this exit status."""
    output, _ = command.communicate(timeout=PATIENCE)
    assert command.returncode == status, output
    return output


def rows(output: str, status: str) -> int:
    """How many jobs have this status in the table."""
    return len(re.findall(rf"^\d+ +{status} ", output, re.MULTILINE))


def test_same_command_waits_for_jobs_that_are_under_way_and_submits_none_twice(sweep):
    three = sweep(jobs=3, steps=120)
    lost = three.start()
    until(lambda: all(map(three.steps, range(3))))
    lost.kill()
    lost.communicate()
    looks, waits = three.start("wait=false"), three.start()
    output = ended(looks, 0)
    assert "3 jobs under way" in output
    assert rows(output, "running") == 3, output
    output = ended(waits, 0)
    assert "submitted" not in output
    assert rows(output, "finished") == 3, output


def test_signal_before_the_program_can_handle_it_is_not_lost(sweep, tmp_path):
    """USR1, while Python starts; the job is requeued, and finishes."""
    starts = tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, pathlib, time
if "SLURM_STEP_ID" in os.environ and os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    pathlib.Path({str(starts)!r}).touch()
    time.sleep(3)
""")
    one = sweep(jobs=1, steps=1)
    command = one.start(PYTHONPATH=str(tmp_path))
    until(starts.exists)
    one.cluster.command("scancel", "--signal=USR1", one.running()[0])
    assert rows(ended(command, 0), "finished") == 1
    assert one.log(0).count("requeueing") == 1


@pytest.mark.parametrize("cluster", [False], indirect=True)
def test_command_ends_without_accounting_too(sweep):
    two = sweep(jobs=2, steps=1000)
    command = two.start()
    until(lambda: all(map(two.steps, range(2))))
    two.cluster.command("scancel", two.running()[0])
    two.cluster.kill(two.running()[1])
    start = time.monotonic()
    output = ended(command, 1)
    assert time.monotonic() - start < 60
    assert "job 0: CANCELLED; log: " in output
    assert "job 1: FAILED; log: " in output
