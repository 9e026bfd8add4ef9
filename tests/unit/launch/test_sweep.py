"""Sweeps of jobs that do what a test wants instead of training."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from arith_erd.config.compose import compose
from arith_erd.config.job import Job as TrainJob
from arith_erd.errors import UserError
from arith_erd.launch import slurm
from arith_erd.launch.cli import entry_point
from arith_erd.launch.sweep import SweepJob
from arith_erd.stats import Estimate, Moments
from arith_erd.system import signals
from arith_erd.system.cli_errors import EXIT_BUSY, EXIT_FAILED
from arith_erd.system.files import InUseError
from arith_erd.system.signals import Interrupted
from arith_erd.system.slurm_commands import ArrayTask
from tests.rows import finish as finish_run
from tests.rows import row, write_metrics

pytestmark = pytest.mark.slow_after(3)

Job = Callable[[TrainJob], None]


@pytest.fixture
def ran() -> list[str]:
    """The seeds of the jobs that started, in order."""
    return []


@pytest.fixture
def command(monkeypatch, tmp_path, ran):
    """``command(job, "-m", "seed=0,1")`` runs a program whose jobs are calls of ``job``; gives its exit status."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(job: Job, *arguments: str, program: str = "train") -> int:
        def started(accepted: TrainJob) -> None:
            ran.append(",".join(map(str, accepted.seeds)))
            job(accepted)

        monkeypatch.setattr(sys, "argv", [f"{program}.py", *arguments, f"runs_dir={tmp_path / 'runs'}"])
        try:
            entry_point(program)(started)()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return run


def table(printed: str) -> dict[str, str]:
    """Overrides -> status."""
    states = "finished|skipped|failed|not finished|pending|running"
    rows = re.findall(rf"^\d+ +({states}) +(\S.*?) *$", printed, re.MULTILINE)
    return {overrides: status for status, overrides in rows}


def finish(job: TrainJob) -> None:
    job.run.create(job.resolved)
    for seed in job.seeds:
        job.run.weights_file(seed).touch()
    finish_run(job.run, job.seeds)


def test_closing_table_has_the_mean_accuracy_of_each_job_with_its_interval(command, capsys):
    def trained(job: TrainJob) -> None:
        finish(job)
        write_metrics(job.run, (row(1, seed, val_seq_acc=0.8 + seed / 10) for seed in job.seeds))

    assert command(trained, "-m", "task=add,mul", "seed=0-2") == 0
    rows = re.findall(r"^\d .*$", capsys.readouterr().out, re.MULTILINE)
    low, _ = Estimate.of_means([Moments.from_values([0.8, 0.9, 1.0])]).interval
    assert [row.strip() for row in rows] == [
        f"{number}    finished  90.00% [{100 * low:.2f}, 100]  task={task}"
        for number, task in enumerate(("add", "mul"))
    ]


def fails_for(*seeds: int, error: Exception) -> Job:
    def run(job: TrainJob) -> None:
        if job.seeds[0] in seeds:
            raise error
        finish(job)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("no such thing"), EXIT_FAILED, "no such thing"),
        (InUseError("in use by process 7"), EXIT_BUSY, "in use by process 7"),
    ],
)
def test_failed_job_leaves_the_others_running_and_the_same_command_runs_what_is_missing(
    command, ran, capsys, error, status, line
):
    assert command(fails_for(1, error=error), "-m", "seed=0,1,2") == status
    assert ran == ["0", "1", "2"]
    said = capsys.readouterr()
    assert table(said.out) == {"seed=0": "finished", "seed=1": "failed", "seed=2": "finished"}
    assert re.search(rf"^job 1: {line}$", said.out, re.M)
    assert re.fullmatch(rf"error: job 1 \(seed=1\): {line}\n", said.err)

    def only_what_is_missing(job: TrainJob) -> None:
        if not job.run.finished:
            assert job.seeds == (1,)
            finish(job)

    assert command(only_what_is_missing, "-m", "seed=0,1,2") == 0
    assert table(capsys.readouterr().out) == {"seed=0": "skipped", "seed=1": "finished", "seed=2": "skipped"}


@pytest.mark.parametrize(
    ("error", "status"), [(UserError("no"), 1), (InUseError("no"), 75), (ZeroDivisionError("x"), 70)]
)
def test_single_run_prints_no_table_and_its_exit_status_tells_failed_busy_and_internal_apart(
    command, capsys, error, status
):
    assert command(finish, "seed=3") == 0
    assert not capsys.readouterr().out
    assert command(fails_for(3, error=error), "seed=3") == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


def test_internal_error_names_a_private_file_with_its_traceback(command, capsys):
    command(fails_for(0, error=RuntimeError("on fire")), "seed=0")
    file = Path(capsys.readouterr().err.split()[-1])
    assert "Traceback" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_fail_fast_stops_at_the_first_failure(command, ran, capsys):
    assert command(fails_for(1, error=UserError("no")), "-m", "seed=0,1,2", "fail_fast=true") == EXIT_FAILED
    assert ran == ["0", "1"]
    expected = {"seed=0": "finished", "seed=1": "failed", "seed=2": "not finished"}
    assert table(capsys.readouterr().out) == expected


@pytest.mark.parametrize(("number", "replaced"), [(signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_signal_ends_the_whole_sweep(command, ran, capsys, monkeypatch, number, replaced):
    """Even if an exception in a user's clean-up replaces ours."""
    requeued = []
    monkeypatch.setattr(signals, "requeue", requeued.append)

    def run(job: TrainJob) -> None:
        try:
            if job.seeds == (1,):
                os.kill(os.getpid(), number)
        except Interrupted:
            if replaced:
                raise ValueError("half-made") from None
            raise
        finish(job)

    assert command(run, "-m", "seed=0,1,2") == 128 + number
    assert ran == ["0", "1"]
    said = capsys.readouterr()
    assert table(said.out) == {"seed=0": "finished", "seed=1": "not finished", "seed=2": "not finished"}
    assert said.err == f"{number.name}: stopped\n"
    assert requeued == [number]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("seed=0,4-0",), r"job 1 \(seed=4-0\): seed=4-0: expected"),
        (("model=transformer,nanogpt", "ablation=squeezed_encoder"), r"job 1 \(model=nanogpt\): ablation=squeezed_enc"),
    ],
)
def test_bad_job_is_refused_before_the_first_one(command, ran, capsys, tmp_path, arguments, message):
    assert command(finish, "-m", *arguments) == EXIT_FAILED
    assert not ran
    said = capsys.readouterr()
    assert re.search(message, said.err)
    assert said.err.endswith("none of the 2 jobs was started\n")
    assert not table(said.out)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ("probe=errors,attention run=R out=D", "D"),
        ("probe=amnesic probe.method=inlp,leace run=R", ""),
        ("probe=errors run=R epoch=0-2,[0,2,1]", "R/probes/errors-epochs-0-2"),
        ("probe=errors run=R epoch=all,0-5,[0,1,5],[0,2,4]", ""),
        ("probe=errors run=a1,'a*'", "a1/probes/errors"),
        ("probe=errors run='a*','b*' out=D", ""),
        ("probe=errors run=a1,'b*' out=D", ""),
        ("probe=errors,attention run=R out='D/${probe.name}'", ""),
    ],
)
def test_results_that_would_overwrite_one_another_are_refused(
    command, ran, tmp_path, monkeypatch, capsys, arguments, folder
):
    monkeypatch.chdir(tmp_path)
    for name in ("a1", "a2", "b1", "b2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    assert command(lambda job: None, "-m", *arguments.split(), program="probe") == bool(folder)
    assert bool(ran) != bool(folder)
    refused = re.search(r"out=\S+: expected a folder for each job, .*; (\S+) would get", capsys.readouterr().err)
    assert (refused[1] if refused else "") == folder


@pytest.mark.parametrize(
    "arguments",
    [
        "optimizer=sgd,rmsprop model.optimizer.momentum=0.9",
        "scheduler=warmup_cosine,warmup_linear model.scheduler.pct_start=0.2 experiment=first",
        "task=mod_add task.modulus=5 seed=0,1",
    ],
)
def test_a_key_may_exist_in_the_swept_options_only(command, ran, capsys, arguments):
    assert command(lambda job: None, "-m", *arguments.split()) == 0, capsys.readouterr().err
    assert len(ran) == 2


@pytest.mark.parametrize("index", ["0", "1", "2", "x"])
def test_job_index_selects_one_job_of_a_sweep(command, ran, capsys, index):
    status = command(lambda job: None, "-m", "seed=0,1", f"job_index={index}")
    if index in ("0", "1"):
        assert ran == [index]
        assert capsys.readouterr().out.startswith(f"job {index} (")
    else:
        assert (status, ran) == (EXIT_FAILED, [])
        assert f"job_index={index}: expected an integer from 0 to 1, for one of 2 jobs" in capsys.readouterr().err


def test_launcher_gets_a_command_line_for_each_pack_that_is_missing(command, monkeypatch, tmp_path, capsys):
    sent = []
    monkeypatch.setattr("arith_erd.launch.gpus.run", lambda jobs, *_: sent.extend(jobs))
    words = ("-m", "hydra/launcher=gpus", "seed=0-127", "task=add,mul", "pack.max_replicas=64")
    assert command(finish, *words) == EXIT_FAILED  # none is run
    assert len(sent) == 4
    assert {" ".join(job.varying_overrides) for job in sent[:2]} == {"task=add seed=0-63", "task=add seed=64-127"}
    for job in sent:
        composed = compose("train", job.overrides)
        assert composed.run.path == job.checked.run.path
        assert len(composed.packs()) == 1
    finish(sent[0].checked)
    sent.clear()
    command(finish, *words)
    assert len(sent) == 3
    assert table(capsys.readouterr().out)["task=add seed=0-63"] == "skipped"
    sent.clear()
    command(finish, "-m", "hydra/launcher=gpus", "seed=0-1,0-3", "pack.max_replicas=2")  # 0-1 is asked for twice
    assert [job.checked.seeds for job in sent] == [(0, 1), (2, 3)]
    assert [job.number for job in sent] == [0, 1]


class FakeSlurm:
    """A Slurm whose queue moves when the test says so, and whose arrays have one task."""

    def __init__(self) -> None:
        self.queue: dict[tuple[Path, str], ArrayTask] = {}
        self.accounted: list[str] = []  # what the accounting answers, in order
        self.refuses = False
        self.omits = False  # whether a submitted job never shows in the queue

    def submit(self, script: Path, options: dict[str, object]) -> str:
        if self.refuses:
            raise subprocess.CalledProcessError(1, "sbatch", stderr="sbatch: error: no")
        tasks = json.loads((script.parent / "tasks.json").read_text())
        assert options["array"] == f"0-{len(tasks) - 1}%64"
        assert not any("overwrite" in word for task in tasks.values() for word in task["command"])
        if not self.omits:
            self.queue |= {(script.parent, index): ArrayTask(f"7_{index}", "PENDING", "Priority") for index in tasks}
        return "7"


@pytest.fixture
def fake_slurm(monkeypatch) -> FakeSlurm:
    fake = FakeSlurm()
    monkeypatch.setattr(slurm.shutil, "which", lambda program: program)
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(slurm, "max_array_size", lambda: 1)
    monkeypatch.setattr(slurm, "array_tasks", lambda: dict(fake.queue))
    monkeypatch.setattr(slurm, "accounted_state", lambda task: fake.accounted.pop(0))
    monkeypatch.setattr(slurm, "submit", fake.submit)
    return fake


@pytest.mark.slow
def test_overwriting_sweep_trains_each_run_anew_once_however_often_it_is_attached_to(
    command, fake_slurm, tmp_path, capsys
):
    sweep = ("-m", "hydra/launcher=slurm", "task=add,sub", "seed=0", "overwrite=true", "wait=false")
    add, sub = (compose("train", [f"task={task}", f"runs_dir={tmp_path}/runs"]) for task in ("add", "sub"))
    finish(add)  # sub has no old run
    old = add.run.config_file.stat().st_ino

    def submitted() -> int:
        before = len(fake_slurm.queue)
        command(finish, *sweep)
        return len(fake_slurm.queue) - before

    fake_slurm.refuses = True
    assert submitted() == 0
    assert add.run.config_file.stat().st_ino == old
    assert {path.name for path in add.runs_dir.glob("*add*")} == {add.run.name}
    assert not [*add.runs_dir.glob("*sub*")]
    fake_slurm.refuses = False
    assert submitted() == 2
    assert not add.run.path.exists()
    assert add.run.backup.finished
    finish(add)
    add.run.delete_backup()
    fake_slurm.queue.pop(next(iter(fake_slurm.queue)))
    capsys.readouterr()
    assert submitted() == 0
    assert table(capsys.readouterr().out) == {"task=add": "skipped", "task=sub": "pending"}
    fake_slurm.queue.clear()
    assert submitted() == 1  # sub was cancelled
    finish(sub)
    sub.run.delete_backup()
    fake_slurm.queue.clear()
    assert submitted() == 2  # both have been trained anew, and the command begins once more


def test_job_that_the_queue_omits_is_under_way_while_the_accounting_says_so(command, fake_slurm, capsys):
    fake_slurm.omits, fake_slurm.accounted = True, ["RUNNING", "PENDING", "CANCELLED"]
    assert command(finish, "-m", "hydra/launcher=slurm", "seed=0") == EXIT_FAILED
    assert fake_slurm.accounted == []
    assert "job 0: CANCELLED; log: " in capsys.readouterr().out


def test_job_of_a_probe_is_that_of_its_folder_whether_the_command_waits_or_not(monkeypatch, tmp_path):
    waits, looks = (SweepJob(0, ["probe=errors", "run=runs/a", wait], []) for wait in ("wait=true", "++wait=false"))
    here = waits.key
    assert here == looks.key
    monkeypatch.chdir(tmp_path)
    assert waits.key != here  # runs/a is another run


def test_links_out_of_the_folder_of_a_launcher_are_refused(command, monkeypatch, tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs" / f".gpus-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert command(finish, "-m", "hydra/launcher=gpus", "seed=0,1") == EXIT_FAILED
    assert "a link out of the run directory" in capsys.readouterr().err
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.slow
def test_every_run_of_the_paper_is_accepted(command, ran, root):
    script, echo = [root / "paper" / "scripts" / "paper.sh", "seed=0"], os.environ | {"TRAIN": "echo"}
    lines = subprocess.run(script, env=echo, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) > 10
    for line in lines:
        assert command(lambda job: None, "-m", *shlex.split(line)) == 0
    assert len(ran) > 40


def test_script_goes_on_after_a_failed_run_and_stops_with_a_signal(root, tmp_path):
    train, log = tmp_path / "train", tmp_path / "log"
    for does, seconds, status in (("exit 1", 60, 0), ("exec sleep 60", 3, 124)):
        log.write_text("")
        train.write_text(f"#!/bin/sh\necho started >>{log}\n{does}\n")
        train.chmod(0o755)
        script = ["timeout", str(seconds), root / "paper" / "scripts" / "paper.sh"]
        assert subprocess.run(script, env=os.environ | {"TRAIN": str(train)}, check=False).returncode == status
        time.sleep(0.5)
        started = log.read_text().count("started")
        assert started == 1 if status else started > 10
