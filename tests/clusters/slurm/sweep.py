"""A sweep under a real Slurm whose jobs are killed, and the same sweep without Slurm."""

import csv
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.tiny import TINY

ROOT = Path(__file__).parents[3]
EPOCHS = 40
SETTINGS = (*TINY, f"trainer.max_epochs={EPOCHS}")
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2")
PATIENCE = 1800  # seconds for a submission, on a busy machine


@dataclass
class Job:
    """A job that runs: its place in the sweep, its process, and that process's environment."""

    index: int
    pid: int
    environment: dict[str, str]

    @property
    def id(self) -> str:
        """``17_3``: `scancel` does nothing about the plain id of a job in an array."""
        return f"{self.environment['SLURM_ARRAY_JOB_ID']}_{self.index}"

    @property
    def device(self) -> str:
        return self.environment["CUDA_VISIBLE_DEVICES"]


Blow = Callable[[Job], object]


@dataclass
class Sweep:
    """A sweep over packs of two seeds, under the Slurm of ``conf``; everything it writes goes into ``folder``."""

    conf: str
    folder: Path
    packs: int
    devices: set[str] = field(default_factory=set)
    """``CUDA_VISIBLE_DEVICES`` of the jobs that were seen running."""
    shared: bool = False
    """Whether two jobs were ever seen on one device at the same time."""

    @property
    def runs(self) -> Path:
        return self.folder / "slurm"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        seeds = ",".join(f"{2 * pack}-{2 * pack + 1}" for pack in range(self.packs))
        command = [sys.executable, str(ROOT / "train.py"), "-m", f"seed={seeds}", *SETTINGS, *arguments]
        environment = os.environ | {"SLURM_CONF": self.conf, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)}
        with (self.folder / "output.txt").open("a") as log:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def submit(self, blows: Iterable[Blow] = (), overrides: Iterable[str] = ()) -> int:
        """Submit it and wait; the exit status. Each blow goes to another job that is in the middle of its run."""
        waiting = list(blows)
        struck: set[int] = set()
        submission = self.start(*PRESET, *overrides, f"runs_dir={self.runs}")
        deadline = time.monotonic() + PATIENCE
        while submission.poll() is None:
            if time.monotonic() > deadline:
                submission.terminate()
                raise TimeoutError(self.output)
            jobs = running(self.conf)
            self.devices |= {job.device for job in jobs}
            self.shared |= len({job.device for job in jobs}) < len(jobs)
            for job in jobs:
                if waiting and job.index not in struck and 1 <= self.epochs(job.index) < EPOCHS // 2:
                    waiting.pop(0)(job)
                    struck.add(job.index)
            time.sleep(0.1)
        assert not waiting, "a job ended before it was struck"
        return submission.returncode

    def epochs(self, index: int) -> int:
        """How many epochs a run has behind it."""
        for metrics in self.runs.glob(f"*-seed{2 * index}-{2 * index + 1}-*/metrics.csv"):
            return len(metrics.read_text().splitlines()) // 2  # a header, then two rows an epoch
        return 0

    @property
    def finished(self) -> int:
        return len(list(self.runs.glob("*/summary.json")))

    @property
    def output(self) -> str:
        """What the submissions and their jobs have printed."""
        logs = [self.folder / "output.txt", *sorted(self.runs.glob(".slurm/*/*/*_log.*"))]
        return "\n".join(f"== {log.relative_to(self.folder)}\n{log.read_text()}" for log in logs)

    def equal_to_local(self) -> int:
        """How many runs are bit for bit those of the same sweep without Slurm."""
        local = self.folder / "local"
        assert self.start(f"runs_dir={local}").wait(PATIENCE) == 0
        return sum(equal(run, self.runs / run.name) for run in local.iterdir())


def running(conf: str) -> list[Job]:
    """The jobs that have a process on this machine."""
    jobs: dict[int, Job] = {}
    for pid in sorted(int(path.name) for path in Path("/proc").glob("[0-9]*")):
        try:
            text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
        except OSError:
            continue  # it has just ended
        variables = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
        if variables.get("SLURM_CONF") == conf and {"SLURM_PROCID", "SLURM_ARRAY_TASK_ID"} <= variables.keys():
            index = int(variables["SLURM_ARRAY_TASK_ID"])
            jobs.setdefault(index, Job(index, pid, variables))  # children have higher numbers
    return list(jobs.values())


def equal(run: Path, other: Path) -> bool:
    """Whether two runs have the same weights, and the same metrics apart from the seconds that they took."""
    weights = sorted(path.name for path in (run / "weights").glob("*.safetensors"))
    return (
        len(weights) == 2
        and weights == sorted(path.name for path in (other / "weights").glob("*.safetensors"))
        and all((run / "weights" / w).read_bytes() == (other / "weights" / w).read_bytes() for w in weights)
        and measured(run) == measured(other)
    )


def measured(run: Path) -> list[list[str]]:
    with (run / "metrics.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    seconds = header.index("seconds")
    return [row[:seconds] + row[seconds + 1 :] for row in rows]


def slurm_command(*command: str) -> Blow:
    """A blow by a command of Slurm's, with the job's id at its end."""
    return lambda job: subprocess.run(
        [*command, job.id], env=os.environ | {"SLURM_CONF": job.environment["SLURM_CONF"]}, check=True
    )


def sigkill(job: Job) -> None:
    os.kill(job.pid, signal.SIGKILL)


def preempt(job: Job) -> None:
    """Submit a job for the whole node to a partition that goes before."""
    command = ["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true"]
    environment = os.environ | {"SLURM_CONF": job.environment["SLURM_CONF"]}
    subprocess.run(command, env=environment, check=True, capture_output=True)


def kills(number: int) -> list[Blow]:
    return list(itertools.islice(itertools.cycle((slurm_command("scancel"), sigkill)), number))
