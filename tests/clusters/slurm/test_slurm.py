"""Sweeps under a Slurm of this machine's own: jobs are killed, preempted and asked to leave in the middle of a
run. Nothing is lost, and every run ends with the bits of a run that nobody disturbed."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arith_erd.runs.directory import Run
from tests.behaviour.interruption import assert_same
from tests.clusters.slurm.cluster import NODES, Cluster
from tests.tiny import TINY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EPOCHS = 40
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2")
PATIENCE = 600  # seconds for a submission, on a busy machine

Blow = Callable[[Cluster, str], object]
"""What happens to a job that runs, by its id."""


def scancel(*options: str) -> Blow:
    return lambda cluster, job: cluster.command("scancel", *options, job)


def preempt(cluster: Cluster, job: str) -> None:
    """Jobs that matter more take both nodes."""
    urgent = ("--partition=urgent", f"--nodes={len(NODES)}", "--exclusive", "--mem=100", "--output=/dev/null")
    cluster.command("sbatch", *urgent, "--wrap=true")


class Sweep:
    """A sweep over packs of two seeds; everything it writes goes into ``folder``."""

    def __init__(self, folder: Path, packs: int, cluster: Cluster) -> None:
        self.folder, self.packs, self.cluster = folder, packs, cluster

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        seeds = ",".join(f"{2 * pack}-{2 * pack + 1}" for pack in range(self.packs))
        command = [sys.executable, str(ROOT / "train.py"), "-m", f"seed={seeds}", *TINY, f"trainer.max_epochs={EPOCHS}"]
        environment = self.cluster.environment | {"OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)}
        with (self.folder / "output.txt").open("a") as log:
            return subprocess.Popen(
                [*command, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def submit(self, blows: Sequence[Blow] = (), *overrides: str) -> int:
        """Submit it and wait; the exit status. Each blow goes to another job that is in the middle of its run."""
        waiting, struck = list(blows), set[str]()
        submission = self.start(*PRESET, *overrides, f"runs_dir={self.folder / 'slurm'}")
        deadline = time.monotonic() + PATIENCE
        while submission.poll() is None:
            if time.monotonic() > deadline:
                submission.terminate()
                raise TimeoutError(self.output)
            running = self.cluster.command("squeue", "--noheader", "--states=RUNNING", "--format=%i").split()
            for job in running:  # as 17_3
                index = int(job.partition("_")[2] or 0)  # none for the job that preempts
                if waiting and job not in struck and 2 <= self.epochs(index) < EPOCHS // 2:
                    waiting.pop(0)(self.cluster, job)
                    struck.add(job)
            time.sleep(0.1)
        assert not waiting, "a job ended before it was struck"
        return submission.returncode

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
        logs = [self.folder / "output.txt", *sorted(self.folder.glob("slurm/.slurm/*/logs/*"))]
        return "\n".join(f"== {log.relative_to(self.folder)}\n{log.read_text()}" for log in logs)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the largest sweep without a launcher."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert Sweep(folder, 5, cluster).start(f"runs_dir={folder}").wait(PATIENCE) == 0
    return folder


def assert_all_finished(sweep: Sweep, undisturbed: Path) -> None:
    assert sweep.finished == sweep.packs, sweep.output
    for path in sweep.folder.glob("slurm/*-seed*"):
        assert_same(Run(undisturbed / path.name), Run(path))


def test_struck_jobs_requeue_themselves_or_finish_at_the_second_submission(
    tmp_path: Path, cluster: Cluster, undisturbed: Path
) -> None:
    sweep = Sweep(tmp_path, 5, cluster)
    requeued = [scancel("--signal=USR1"), scancel("--signal=USR2")]
    stopped = [scancel(), scancel("--signal=TERM"), Cluster.kill]
    assert sweep.submit([*requeued, *stopped]) == 1, sweep.output
    assert sweep.finished == 2, sweep.output
    assert sweep.output.count("stopped; the same command continues") == 4, sweep.output  # all but one could save
    assert "not requeued" not in sweep.output
    assert sweep.submit() == 0, sweep.output
    assert sweep.output.count("resuming from epoch") == 5, sweep.output
    assert_all_finished(sweep, undisturbed)


@pytest.mark.parametrize("partition", ["debug", "scavenge"])  # Slurm would requeue, or cancel, what outstays its grace
def test_preempted_job_saves_within_its_grace_and_resumes(
    tmp_path: Path, cluster: Cluster, undisturbed: Path, partition: str
) -> None:
    sweep = Sweep(tmp_path, 1, cluster)
    assert sweep.submit([preempt], f"hydra.launcher.partition={partition}") == 0, sweep.output
    for word in ("stopped; the same command continues", "requeueing", "resuming from epoch"):
        assert sweep.output.count(word) == 1, sweep.output
    assert_all_finished(sweep, undisturbed)


def test_node_lacking_a_requirement_is_named_in_the_table(tmp_path: Path, cluster: Cluster) -> None:
    sweep = Sweep(tmp_path, 2, cluster)
    assert sweep.submit([], "trainer.accelerator=gpu") == 1, sweep.output
    table = (tmp_path / "output.txt").read_text()
    for job in range(2):
        assert f"job {job}: trainer.accelerator=gpu: expected cpu or auto" in table
    assert sweep.finished == 0
