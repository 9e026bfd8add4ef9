"""Kill jobs of a sweep under a real Slurm, submit the same command again, and compare with a sweep that had peace.

    python -m tests.slurm.kill_and_resubmit --packs 12 --kills 4

The first victim is taken away by ``scancel``, the next by SIGKILL, and so on in turn, each in the middle of its run.
"""

import argparse
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .one_node import missing, slurm

ROOT = Path(__file__).parents[2]
EPOCHS = 40
TINY = (
    "task.bits=3",
    "data.batch_size=20",
    "model.net.d_model=16",
    "model.net.num_heads=2",
    "model.net.num_layers=1",
    "trainer.accelerator=cpu",
    "trainer.compile=false",
    f"trainer.max_epochs={EPOCHS}",
)
PRESET = ("hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2")
PATIENCE = 1800  # seconds for a submission, on a busy machine


@dataclass
class Observed:
    """What the sweep did."""

    killed: set[int] = field(default_factory=set)
    finished_at_first: int = 0
    finished: int = 0
    equal: int = 0
    """Runs whose weights and metrics are bit for bit those of a local run."""
    statuses: list[int] = field(default_factory=list)
    """Exit statuses of the submissions."""
    devices: dict[int, str] = field(default_factory=dict)
    """``CUDA_VISIBLE_DEVICES`` of each job that was seen running."""
    shared: bool = False
    """Whether two jobs that ran at the same time were ever seen on the same device."""
    output: str = ""
    """What the submissions printed."""


def kill_and_resubmit(conf: str, folder: Path, packs: int, kills: int) -> Observed:
    """Sweep over ``packs`` packs of two seeds, with ``kills`` jobs killed, then again, then once more locally."""
    seeds = [f"{2 * pack}-{2 * pack + 1}" for pack in range(packs)]
    sweep = ["-m", f"seed={','.join(seeds)}", *TINY]
    far, near = folder / "slurm", folder / "local"
    seen = Observed()
    environment = os.environ | {"SLURM_CONF": conf, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}

    def train(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "train.py"), *sweep, *arguments]
        log = (folder / "output.txt").open("a")
        with log:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def slurm_says(*command: str) -> str:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    def run_of(pack: int) -> Path | None:
        return next(far.glob(f"*-seed{seeds[pack]}-*"), None)

    def in_the_middle(pack: int) -> bool:
        run = run_of(pack)
        return run is not None and 1 <= epochs(run) < EPOCHS // 2

    first = train(*PRESET, f"runs_dir={far}")
    deadline = time.monotonic() + PATIENCE
    while first.poll() is None or slurm_says("squeue", "--noheader"):
        if time.monotonic() > deadline:
            raise TimeoutError((folder / "output.txt").read_text())
        running = dict(processes(conf))
        devices = [job["CUDA_VISIBLE_DEVICES"] for _, job in running.values()]
        seen.shared |= len(set(devices)) < len(devices)
        for pack, (pid, job) in running.items():
            seen.devices[pack] = job["CUDA_VISIBLE_DEVICES"]
            if len(seen.killed) < kills and pack not in seen.killed and in_the_middle(pack):
                if len(seen.killed) % 2:
                    os.kill(pid, signal.SIGKILL)
                else:
                    slurm_says("scancel", f"{job['SLURM_ARRAY_JOB_ID']}_{pack}")
                seen.killed.add(pack)
        time.sleep(0.05)
    seen.finished_at_first = finished(far)
    seen.statuses = [first.returncode, train(*PRESET, f"runs_dir={far}").wait(PATIENCE)]
    seen.output = (folder / "output.txt").read_text()
    seen.finished = finished(far)
    assert train(f"runs_dir={near}").wait(PATIENCE) == 0
    seen.equal = sum(equal(run, far / run.name) for run in near.iterdir())
    return seen


def processes(conf: str) -> Iterator[tuple[int, tuple[int, dict[str, str]]]]:
    """(index in the sweep, (process, environment)) of the jobs that are running on a cluster."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = dict(line.split("=", 1) for line in path.read_text(errors="replace").split("\0") if "=" in line)
        except OSError:
            continue  # it has just ended
        if variables.get("SLURM_CONF") == conf and {"SLURM_PROCID", "SLURM_ARRAY_TASK_ID"} <= variables.keys():
            yield int(variables["SLURM_ARRAY_TASK_ID"]), (int(path.parent.name), variables)


def epochs(run: Path) -> int:
    """How many epochs stand in ``metrics.csv``."""
    try:
        return len((run / "metrics.csv").read_text().splitlines()) // 2  # a header, then two rows an epoch
    except FileNotFoundError:
        return 0


def finished(folder: Path) -> int:
    return len(list(folder.glob("*/summary.json")))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packs", type=int, default=12)
    parser.add_argument("--kills", type=int, default=4)
    arguments = parser.parse_args()
    if reason := missing():
        sys.exit(f"error: {reason}")
    started = time.monotonic()
    with slurm() as conf, tempfile.TemporaryDirectory() as folder:
        seen = kill_and_resubmit(conf, Path(folder), arguments.packs, arguments.kills)
    print(seen.output)
    print(
        f"{arguments.packs} packs, {len(seen.killed)} killed: {seen.finished_at_first} finished after the first "
        f"submission, {seen.finished} after the second, {seen.equal} equal to a local run; "
        f"{time.monotonic() - started:.0f} s"
    )
    sys.exit(seen.equal != arguments.packs or len(seen.killed) != arguments.kills)


if __name__ == "__main__":
    main()
