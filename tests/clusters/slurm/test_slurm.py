"""Sweeps under a Slurm of this machine's own: jobs are killed, preempted and asked to leave in the middle of a
run. Nothing is lost, and every run ends with the bits of a run that nobody disturbed."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arith_erd.runs.directory import Run
from arith_erd.system.start import log_file, task_keys
from tests.behaviour.interruption import assert_same
from tests.clusters.slurm.cluster import NODES, Cluster
from tests.tiny import TINY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2")
PATIENCE = 600  # seconds for a submission, on a busy machine
PREEMPTIONS = int(os.environ.get("PREEMPTIONS", "1"))  # how often the test of them is repeated

Blow = Callable[[Cluster, str], object]
"""What happens to a job that runs, by its id."""


def scancel(*options: str) -> Blow:
    return lambda cluster, job: cluster.command("scancel", *options, job)


def requeue(cluster: Cluster, job: str) -> None:
    cluster.command("scontrol", "requeue", job)


def preempt(cluster: Cluster, job: str) -> None:
    """Jobs that matter more take both nodes."""
    urgent = ("--partition=urgent", f"--nodes={len(NODES)}", "--exclusive", "--mem=100", "--output=/dev/null")
    cluster.command("sbatch", *urgent, "--wrap=true")


class Sweep:
    """A sweep over seeds, each a job; everything it writes goes into ``folder``.

    The fewer jobs share the machine, the more epochs they need: a preemption takes a second to arrive, and the job
    must still train then.
    """

    def __init__(self, folder: Path, jobs: int, cluster: Cluster) -> None:
        self.folder, self.jobs, self.cluster = folder, jobs, cluster
        self.epochs = 30 if jobs > 2 else 60

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        seeds = ",".join(map(str, range(self.jobs)))
        command = [
            sys.executable,
            str(ROOT / "train.py"),
            "-m",
            f"seed={seeds}",
            *TINY,
            f"trainer.max_epochs={self.epochs}",
        ]
        environment = self.cluster.environment | {"OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)}
        with (self.folder / "output.txt").open("w") as log:
            return subprocess.Popen(
                [*command, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def submit(self, blows: Sequence[Blow] = (), *overrides: str, lost_node: str = "") -> tuple[int, str, list[str]]:
        """Submit it and wait: the exit status, the output, and the number in the table of each job that was struck.

        Each blow goes to another job that is in the middle of its run; those on the ``lost_node`` lose their node.
        """
        waiting, struck, lost, is_lost = list(blows), dict[str, str](), set[str](), not lost_node
        submission = self.start(*PRESET, *overrides, f"runs_dir={self.folder / 'slurm'}")
        deadline = time.monotonic() + PATIENCE
        while submission.poll() is None:
            if time.monotonic() > deadline:
                submission.terminate()
                raise TimeoutError(self.output)
            lines = self.cluster.command("squeue", "--noheader", "--states=RUNNING", "--format=%i %K %N %o")
            for job, index, node, script in (line.split(maxsplit=3) for line in lines.splitlines()):
                path = task_keys(Path(script).parent).get(index, "")  # none for the job that preempts
                lost |= {job} if node == lost_node else set()
                if not path or job in struck or not 2 <= len(Run(path).metrics()) < self.epochs // 2:
                    continue
                if node == lost_node and not is_lost:
                    is_lost = True
                    self.cluster.lose_node(node)
                elif waiting and job not in lost:
                    waiting.pop(0)(self.cluster, job)
                    struck[job] = re.findall(r"-seed(\d+)-", path)[0]
            time.sleep(0.1)
        assert is_lost, "the jobs ended before their node was lost"
        assert not waiting, "a job ended before it was struck"
        return submission.returncode, (self.folder / "output.txt").read_text(), [*struck.values()]

    @property
    def finished(self) -> int:
        return len(list(self.folder.glob("slurm/*/summary.json")))

    def log(self, job: str) -> str:
        """What a job has printed in all its submissions."""
        keys = {folder: task_keys(folder) for folder in self.folder.glob("slurm/.slurm-*/*")}
        places = [(f, i) for f, tasks in sorted(keys.items()) for i, key in tasks.items() if f"-seed{job}-" in key]
        return "".join(log_file(*place).read_text() for place in places if log_file(*place).exists())

    @property
    def output(self) -> str:
        """What the last submission and all jobs have printed."""
        logs = [f"== job {job}\n{self.log(str(job))}" for job in range(self.jobs)]
        return "\n".join([(self.folder / "output.txt").read_text(), *logs])


def assert_all_finished(sweep: Sweep) -> None:
    """With the bits of a sweep without a launcher."""
    assert sweep.finished == sweep.jobs, sweep.output
    undisturbed = sweep.folder / "undisturbed"
    assert sweep.start(f"runs_dir={undisturbed}").wait(PATIENCE) == 0
    for path in sweep.folder.glob("slurm/*-seed*"):
        assert_same(Run(undisturbed / path.name), Run(path))


def test_struck_jobs_end_no_other_and_the_second_command_submits_only_those_that_ended(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Of twelve jobs three are ended, three put back into the queue, and some lose their node."""
    sweep = Sweep(tmp_path, 12, cluster)
    blows = (
        scancel(),
        scancel("--signal=TERM"),
        Cluster.kill,
        scancel("--signal=USR1"),
        scancel("--signal=USR2"),
        requeue,
    )
    status, printed, struck = sweep.submit(blows, "hydra.launcher.tasks_per_node=null", lost_node="n2")
    assert (status, sweep.finished) == (1, 9), sweep.output
    assert [printed.count(f"submitted {number} jobs") for number in (10, 2)] == [1, 1], printed  # MaxArraySize
    for job, state in zip(struck, ("CANCELLED", "FAILED", "FAILED"), strict=False):
        assert re.search(rf"^job {job}: {state}; log: \S+_log.txt$", printed, re.MULTILINE), printed
    for job, saves in zip(struck, (True, True, False, True, True), strict=False):
        assert sweep.log(job).count("stopped; the same command continues") == saves, sweep.output
    assert [sweep.log(job).count(": requeueing") for job in struck] == [0, 0, 0, 1, 1, 0], sweep.output
    status, printed, _ = sweep.submit()
    assert status == 0, sweep.output
    assert "submitted 3 jobs" in printed
    assert len(re.findall(r"^\d+ +skipped ", printed, re.MULTILINE)) == 9, printed
    for job in struck:
        assert sweep.log(job).count("resuming from epoch") == 1, sweep.output
    assert_all_finished(sweep)


def test_node_lacking_a_requirement_is_named_in_the_table(tmp_path: Path, cluster: Cluster) -> None:
    sweep = Sweep(tmp_path, 2, cluster)
    status, table, _ = sweep.submit([], "trainer.accelerator=gpu")
    assert status == 1, sweep.output
    for job in range(2):
        assert f"job {job}: trainer.accelerator=gpu: expected cpu or auto" in table
    assert sweep.finished == 0


@pytest.mark.parametrize("attempt", range(PREEMPTIONS))
@pytest.mark.parametrize("partition", ["debug", "scavenge"])  # Slurm would requeue, or cancel, what outstays its grace
def test_preempted_job_saves_within_its_grace_and_resumes(
    tmp_path: Path, cluster: Cluster, partition: str, attempt: int
) -> None:
    sweep = Sweep(tmp_path, 1, cluster)
    status, _, _ = sweep.submit([preempt], f"hydra.launcher.partition={partition}")
    assert status == 0, sweep.output
    for word in ("stopped; the same command continues", "requeueing", "resuming from epoch"):
        assert sweep.log("0").count(word) == 1, sweep.output
    assert_all_finished(sweep)
