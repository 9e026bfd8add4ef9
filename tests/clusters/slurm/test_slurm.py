"""Sweeps under a Slurm of this machine's own: what the command submits, for what it waits, and what it says.

Jobs are killed, preempted and asked to leave in the middle of a run. Nothing is lost, and every run ends with the bits
of a run that nobody disturbed. Jobs of `COUNTING` train nothing.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from arith_erd.launch.task_folder import log_file, task_keys
from arith_erd.runs.directory import Run
from tests.behaviour.interruption import assert_same
from tests.clusters.slurm.cluster import NODES, Cluster, NoSlurmError, slurm
from tests.tiny import TINY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
TRAIN, COUNTING = ROOT / "train.py", Path(__file__).with_name("program.py")
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1.5")
PATIENCE = 600  # seconds for a submission, on a busy machine
PREEMPTIONS = int(os.environ.get("PREEMPTIONS", "1"))  # how often the test of them is repeated

Blow = Callable[[Cluster, str], object]
"""What happens to a job that runs, by its id."""


def scancel(*options: str) -> Blow:
    return lambda cluster, job: cluster.command("scancel", *options, job)


def requeue(cluster: Cluster, job: str) -> None:
    cluster.command("scontrol", "requeue", job)


def preempt(cluster: Cluster, job: str) -> None:
    """Urgent jobs take both nodes."""
    urgent = ("--partition=urgent", f"--nodes={len(NODES)}", "--exclusive", "--mem=100", "--output=/dev/null")
    cluster.command("sbatch", *urgent, "--wrap=true")


class Sweep:
    """A sweep over seeds, each a job of so many epochs, or steps of `COUNTING`; all that it writes is in ``folder``.

    The fewer jobs share the machine, the more epochs they need: a preemption takes a second to arrive, and the job
    must still train then.
    """

    def __init__(self, folder: Path, cluster: Cluster, jobs: int, epochs: int, program: Path = COUNTING) -> None:
        self.folder, self.cluster, self.jobs, self.epochs = folder, cluster, jobs, epochs
        settings = (f"seed={','.join(map(str, range(jobs)))}", *TINY, f"trainer.max_epochs={epochs}")
        self.command = [sys.executable, str(program), "-m", *settings]
        self.printed = ""  # by the last submission

    def start(self, *overrides: str, runs: str = "slurm", **variables: str) -> "subprocess.Popen[str]":
        environment = self.cluster.environment | {"OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)} | variables
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [*self.command, *overrides, f"runs_dir={self.folder / runs}"]
        return subprocess.Popen(command, env=environment, text=True, **pipes)

    def submit(self, blows: Sequence[Blow] = (), *overrides: str, lost_node: str = "") -> tuple[int, list[str]]:
        """Submit it and wait: the exit status, and the number in the table of each job that was struck.

        Each blow goes to another job that is in the middle of its run; those on the ``lost_node`` lose their node.
        """
        waiting, struck, lost, is_lost = list(blows), dict[str, str](), set[str](), not lost_node
        submission = self.start(*PRESET, *overrides)
        deadline = time.monotonic() + PATIENCE
        while submission.poll() is None:
            if time.monotonic() > deadline:
                submission.terminate()
                raise TimeoutError(self.output)
            for job, index, node, script in self.running():
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
        self.printed = submission.stdout.read()
        return submission.returncode, [*struck.values()]

    def running(self) -> list[list[str]]:
        """Id, index, node and script of each job that runs. The first submission numbers jobs as the sweep does."""
        lines = self.cluster.command("squeue", "--noheader", "--states=RUNNING", "--format=%i %K %N %o").splitlines()
        return [line.split(maxsplit=3) for line in lines]

    @property
    def ids(self) -> dict[str, str]:
        return {index: job for job, index, *_ in self.running()}

    @property
    def finished(self) -> int:
        return len(list(self.folder.glob("slurm/*/summary.json")))

    def steps(self, job: int) -> int:
        return sum(len(path.read_text()) for path in self.folder.glob(f"slurm/*-seed{job}-*/steps"))

    def log(self, job: str) -> str:
        """What a job has printed in all its submissions."""
        keys = {folder: task_keys(folder) for folder in self.folder.glob("slurm/.slurm-*/*")}
        places = [(f, i) for f, tasks in sorted(keys.items()) for i, key in tasks.items() if f"-seed{job}-" in key]
        return "".join(log_file(*place).read_text() for place in places if log_file(*place).exists())

    @property
    def output(self) -> str:
        """What the last submission and all jobs have printed."""
        return "\n".join([self.printed, *(f"== job {job}\n{self.log(str(job))}" for job in range(self.jobs))])


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def ended(command: "subprocess.Popen[str]", status: int) -> str:
    """Wait until a command ends with this exit status, and return what it printed."""
    output, _ = command.communicate(timeout=PATIENCE)
    assert command.returncode == status, output
    return output


def rows(output: str, status: str) -> int:
    """How many jobs have this status in the table."""
    return len(re.findall(rf"^\d+ +{status} ", output, re.MULTILINE))


def assert_all_finished(sweep: Sweep) -> None:
    """All jobs have the bits of a sweep without a launcher."""
    assert sweep.finished == sweep.jobs, sweep.output
    ended(sweep.start(runs="undisturbed"), 0)
    for path in sweep.folder.glob("slurm/*-seed*"):
        assert_same(Run(sweep.folder / "undisturbed" / path.name), Run(path))


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With accounting or without, for all tests in a row that want the same; they skip where none can be started."""
    try:
        with slurm(accounting=getattr(request, "param", True)) as running:
            yield running
    except NoSlurmError as error:
        pytest.skip(f"no Slurm here: {error}")


@pytest.fixture(autouse=True)
def _restored(cluster: Cluster) -> Iterator[None]:
    """Each test begins on an idle cluster, whatever the test before it did."""
    yield
    cluster.restore()


def test_struck_jobs_end_no_other_and_the_second_command_submits_only_those_that_ended(
    tmp_path: Path, cluster: Cluster
) -> None:
    """We end three of twelve jobs, put three back into the queue, and take the node of some."""
    sweep = Sweep(tmp_path, cluster, 12, 30, TRAIN)
    terminate, *leave = (scancel(f"--signal={name}") for name in ("TERM", "USR1", "USR2"))
    blows = (scancel(), terminate, Cluster.kill, *leave, requeue)
    status, struck = sweep.submit(blows, "hydra.launcher.tasks_per_node=null", lost_node="n2")
    assert (status, sweep.finished) == (1, 9), sweep.output
    for number in (10, 2):  # MaxArraySize
        assert sweep.printed.count(f"submitted {number} jobs") == 1, sweep.output
    for job, state in zip(struck, ("CANCELLED", "FAILED", "FAILED"), strict=False):
        assert re.search(rf"^job {job}: {state}; log: \S+_log.txt$", sweep.printed, re.MULTILINE), sweep.output
    for job, saves in zip(struck, (True, True, False, True, True), strict=False):
        assert sweep.log(job).count("stopped; the same command continues") == saves, sweep.output
    assert [sweep.log(job).count(": requeueing") for job in struck] == [0, 0, 0, 1, 1, 0], sweep.output
    status, _ = sweep.submit()
    assert status == 0, sweep.output
    assert "submitted 3 jobs" in sweep.printed
    assert rows(sweep.printed, "skipped") == 9, sweep.output
    for job in struck:
        assert sweep.log(job).count("resuming from epoch") == 1, sweep.output
    assert_all_finished(sweep)


def test_node_lacking_a_requirement_is_named_in_the_table(tmp_path: Path, cluster: Cluster) -> None:
    sweep = Sweep(tmp_path, cluster, 2, 60, TRAIN)
    table = ended(sweep.start(*PRESET, "trainer.accelerator=gpu"), 1)
    for job in range(2):
        assert f"job {job}: trainer.accelerator=gpu: expected cpu or auto" in table
    assert sweep.finished == 0


@pytest.mark.parametrize("attempt", range(PREEMPTIONS))
@pytest.mark.parametrize("partition", ["debug", "scavenge"])  # Slurm would requeue, or cancel, what outstays its grace
def test_preempted_job_saves_within_its_grace_and_resumes(
    tmp_path: Path, cluster: Cluster, partition: str, attempt: int
) -> None:
    sweep = Sweep(tmp_path, cluster, 1, 60, TRAIN)
    status, _ = sweep.submit([preempt], f"hydra.launcher.partition={partition}")
    assert status == 0, sweep.output
    for word in ("stopped; the same command continues", "requeueing", "resuming from epoch"):
        assert sweep.log("0").count(word) == 1, sweep.output
    assert_all_finished(sweep)


def test_same_command_waits_for_jobs_that_are_under_way_and_submits_none_twice(tmp_path, cluster):
    three = Sweep(tmp_path, cluster, 3, 240)
    lost = three.start(*PRESET)
    until(lambda: all(map(three.steps, range(3))))
    lost.kill()
    lost.communicate()
    looks, waits = three.start(*PRESET, "wait=false"), three.start(*PRESET)
    output = ended(looks, 0)
    assert "3 jobs under way" in output
    assert rows(output, "running") == 3, output
    output = ended(waits, 0)
    assert "submitted" not in output
    assert rows(output, "finished") == 3, output


def test_signal_before_the_program_can_handle_it_is_not_lost(tmp_path, cluster):
    """USR1 comes while Python starts; the job is requeued, and finishes."""
    starts = tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, pathlib, time
if "SLURM_STEP_ID" in os.environ and os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    pathlib.Path({str(starts)!r}).touch()
    time.sleep(3)
""")
    sweep = Sweep(tmp_path, cluster, 1, 1)
    command = sweep.start(*PRESET, PYTHONPATH=str(tmp_path))
    until(starts.exists)
    cluster.command("scancel", "--signal=USR1", sweep.ids["0"])
    assert rows(ended(command, 0), "finished") == 1
    assert sweep.log("0").count("requeueing") == 1


@pytest.mark.parametrize("cluster", [False], indirect=True)
def test_command_ends_without_accounting_too(tmp_path, cluster):
    two = Sweep(tmp_path, cluster, 2, 1000)
    command = two.start(*PRESET)
    until(lambda: all(map(two.steps, range(2))))
    cluster.command("scancel", two.ids["0"])
    cluster.kill(two.ids["1"])
    start = time.monotonic()
    output = ended(command, 1)
    assert time.monotonic() - start < 60
    assert "job 0: CANCELLED; log: " in output
    assert "job 1: FAILED; log: " in output
