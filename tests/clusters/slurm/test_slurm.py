"""Sweeps under the Slurm of this machine: jobs are killed and asked to leave, and nothing is lost.

These run where Slurm's programs and the launcher's plugin are installed. With ``--basetemp`` their folders lie on a
disk that the nodes share.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from arith_erd.runs.directory import Run
from tests.behaviour.interruption import assert_same
from tests.tiny import TINY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EPOCHS = 40
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2")
PATIENCE = 1800  # seconds for a submission, on a busy machine

# What happens to a job that runs; JOB is its id.
CANCEL, KILL = ("scancel", "JOB"), ("scancel", "--full", "--signal=KILL", "JOB")
USR1, USR2 = ("scancel", "--signal=USR1", "JOB"), ("scancel", "--signal=USR2", "JOB")


@pytest.fixture(autouse=True)
def slurm() -> None:
    if shutil.which("sbatch") is None:
        pytest.skip("Slurm is not installed")
    pytest.importorskip("submitit", reason="pip install -c requirements.lock -e '.[slurm]'")


class Sweep:
    """A sweep over packs of two seeds; everything it writes goes into ``folder``."""

    def __init__(self, folder: Path, packs: int) -> None:
        self.folder, self.packs = folder, packs
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        seeds = ",".join(f"{2 * pack}-{2 * pack + 1}" for pack in range(self.packs))
        command = [sys.executable, str(ROOT / "train.py"), "-m", f"seed={seeds}", *TINY, f"trainer.max_epochs={EPOCHS}"]
        with (self.folder / "output.txt").open("a") as log:
            return subprocess.Popen(
                [*command, *arguments], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def submit(self, blows: Iterable[Sequence[str]] = (), *overrides: str) -> int:
        """Submit it and wait; the exit status. Each blow goes to another job that is in the middle of its run."""
        waiting, struck = list(blows), set[str]()
        submission = self.start(*PRESET, *overrides, f"runs_dir={self.folder / 'slurm'}")
        deadline = time.monotonic() + PATIENCE
        while submission.poll() is None:
            if time.monotonic() > deadline:
                submission.terminate()
                raise TimeoutError(self.output)
            for job in self.slurm("squeue", "--noheader", "--states=RUNNING", "--format=%i").split():  # as 17_3
                _, array, index = job.partition("_")
                if array and waiting and job not in struck and 1 <= self.epochs(int(index)) < EPOCHS // 2:
                    self.slurm(*(job if word == "JOB" else word for word in waiting.pop(0)))
                    struck.add(job)
            time.sleep(0.1)
        assert not waiting, "a job ended before it was struck"
        return submission.returncode

    def slurm(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def epochs(self, index: int) -> int:
        """How many epochs a run has behind it."""
        for path in self.folder.glob(f"slurm/*-seed{2 * index}-{2 * index + 1}-*"):
            return len(Run(path).metrics()) // 2
        return 0

    @property
    def finished(self) -> int:
        return len(list(self.folder.glob("slurm/*/summary.json")))

    @property
    def output(self) -> str:
        """What the submissions and their jobs have printed."""
        logs = [self.folder / "output.txt", *sorted(self.folder.glob("slurm/.slurm/*/*/*_log.*"))]
        return "\n".join(f"== {log.relative_to(self.folder)}\n{log.read_text()}" for log in logs)


def test_killed_jobs_finish_at_the_second_submission(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, packs=3)
    assert sweep.submit([CANCEL, KILL]) == 1, sweep.output
    assert sweep.finished == 1
    assert sweep.output.count("not finished") == 2
    assert sweep.submit() == 0, sweep.output
    assert sweep.output.count("resuming from epoch") == 2
    assert sweep.start(f"runs_dir={tmp_path / 'local'}").wait(PATIENCE) == 0
    for path in (tmp_path / "local").iterdir():
        assert_same(Run(path), Run(tmp_path / "slurm" / path.name))


def test_jobs_that_are_asked_to_leave_requeue_themselves(tmp_path: Path) -> None:
    """SIGUSR1 is the program's to answer; with SIGUSR2 submitit tells of a time limit."""
    sweep = Sweep(tmp_path, packs=3)
    assert sweep.submit([USR1, USR2]) == 0, sweep.output
    assert sweep.finished == 3
    assert sweep.output.count("resuming from epoch") == 2
    assert "not requeued" not in sweep.output


@pytest.mark.parametrize("packs", [1, 2])  # a single job is no array
def test_node_lacking_a_requirement_is_named_in_the_table(tmp_path: Path, packs: int) -> None:
    sweep = Sweep(tmp_path, packs)
    assert sweep.submit([], "trainer.accelerator=gpu") == 1, sweep.output
    table = (tmp_path / "output.txt").read_text()
    assert table.count(" failed ") == packs
    for job in range(packs):
        assert f"job {job}: trainer.accelerator=gpu: expected cpu or auto" in table
    assert sweep.finished == 0
