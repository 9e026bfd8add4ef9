"""Sweeps of jobs that do what a test wants instead of training."""

import gc
import os
import re
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from arith_erd.config.job import Job as TrainJob
from arith_erd.errors import UserError
from arith_erd.launch.cli import entry_point
from arith_erd.runs import Run

Job = Callable[[TrainJob], None]


@pytest.fixture
def ran() -> list[str]:
    """What each job that started has for a seed, in order."""
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


def verdicts(printed: str) -> dict[str, str]:
    """The table, as overrides -> verdict."""
    rows = re.findall(r"^\d+ +(finished|skipped|failed|not finished) +(\S.*?) *$", printed, re.MULTILINE)
    return {overrides: verdict for verdict, overrides in rows}


def finish(job: TrainJob) -> None:
    finish_run(job.run, job.resolved)


def finish_run(run: Run, resolved: dict) -> None:
    run.create(resolved)
    run.weights(0).touch()
    run.finish({"seeds": [{"seed": 0}]})


def fails_for(*seeds: int, error: Exception) -> Job:
    def run(job: TrainJob) -> None:
        if job.seeds[0] in seeds:
            raise error
        finish(job)

    return run


def test_one_failed_job_leaves_the_others_running(command, ran, capsys):
    assert command(fails_for(1, error=UserError("no such thing")), "-m", "seed=0,1,2") == 1
    assert ran == ["0", "1", "2"]
    said = capsys.readouterr()
    assert verdicts(said.out) == {"seed=0": "finished", "seed=1": "failed", "seed=2": "finished"}
    assert "job 1: no such thing" in said.out
    assert said.err == "error: job 1 (seed=1): no such thing\n"


def test_bug_in_one_job_is_one_line_that_names_the_file_with_its_traceback(command, ran, capsys):
    assert command(fails_for(0, error=ZeroDivisionError("by zero\nand more")), "-m", "seed=0,1") == 1
    assert ran == ["0", "1"]
    said = capsys.readouterr()
    assert said.err.startswith("error: job 0 (seed=0): internal error: ZeroDivisionError: by zero; the traceback")
    file = Path(said.err.split()[-1])
    assert "Traceback" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert f"job 0: internal error: ZeroDivisionError: by zero; the traceback is in {file}\n" in said.out


def test_table_names_the_traceback_file(command, capsys, tmp_path):
    error = RuntimeError("on fire")
    error.add_note(f"see {tmp_path}/error.txt")
    assert command(fails_for(0, error=error), "-m", "seed=0,1") == 1
    said = capsys.readouterr()
    assert f"job 0: internal error: RuntimeError: on fire; the traceback is in {tmp_path}/error.txt\n" in said.out


def test_same_command_again_runs_what_is_missing(command, ran, capsys):
    command(fails_for(1, error=UserError("not yet")), "-m", "seed=0,1,2")
    ran.clear()
    capsys.readouterr()

    def only_what_is_missing(job: TrainJob) -> None:
        if not job.run.finished:
            assert job.seeds == (1,)
            finish(job)

    assert command(only_what_is_missing, "-m", "seed=0,1,2") == 0
    assert verdicts(capsys.readouterr().out) == {"seed=0": "skipped", "seed=1": "finished", "seed=2": "skipped"}


def test_fail_fast_stops_at_the_first_failure(command, ran, capsys):
    assert command(fails_for(1, error=UserError("no")), "-m", "seed=0,1,2,3", "fail_fast=true") == 1
    assert ran == ["0", "1"]
    expected = {"seed=0": "finished", "seed=1": "failed", "seed=2": "not finished", "seed=3": "not finished"}
    assert verdicts(capsys.readouterr().out) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_ends_the_whole_sweep(command, ran, capsys, number):
    def run(job: TrainJob) -> None:
        if job.seeds == (1,):
            os.kill(os.getpid(), number)
        finish(job)

    assert command(run, "-m", "seed=0,1,2") == 128 + number
    assert ran == ["0", "1"]
    said = capsys.readouterr()
    assert verdicts(said.out) == {"seed=0": "finished", "seed=1": "not finished", "seed=2": "not finished"}
    assert said.err == f"{number.name}: stopped; the same command continues from here\n"


BAD_LATER = [
    (("seed=0,4-0",), r"job 1 \(seed=4-0\): seed=4-0: expected"),
    (("task=add,subtract",), r"job 1 \(task=subtract\): .*subtract"),
    (("model=transformer,nanogpt", "ablation=squeezed_encoder"), r"job 1 \(model=nanogpt\): ablation=squeezed_encoder"),
    (("trainer.max_epochs=5,0",), r"job 1 \(trainer\.max_epochs=0\): trainer\.max_epochs=0: expected"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_LATER)
def test_bad_later_job_is_refused_before_the_first_one(command, ran, capsys, tmp_path, arguments, message):
    assert command(finish, "-m", *arguments) == 1
    assert not ran
    said = capsys.readouterr()
    assert re.search(message, said.err)
    assert said.err.endswith("none of the 2 jobs was started\n")
    assert not verdicts(said.out)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (("probe=errors,prefix", "run=R", "out=D"), "D"),
        (("probe=amnesic", "probe.method=inlp,leace", "run=R"), "R/probes/amnesic"),
        (("probe=errors", "run=R,R", "epoch=3"), "R/probes/errors-epoch=3"),
        (("probe=errors", "run=R", "epoch=all,0-5"), "R/probes/errors-epochs"),
    ],
)
def test_answers_that_would_overwrite_one_another_are_refused(command, ran, capsys, arguments, folder):
    assert command(finish, "-m", *arguments, program="probe") == 1
    assert not ran
    assert re.search(rf"out=\S+: expected a folder for each job, .*; {folder} would get", capsys.readouterr().err)


@pytest.mark.parametrize("out", ["out='D/${probe.name}'", "out=null"])
def test_answers_in_folders_of_their_own_are_accepted(command, ran, out):
    assert command(lambda job: None, "-m", "probe=errors,prefix", "run=R", out, program="probe") == 0
    assert len(ran) == 2


@pytest.mark.parametrize(
    ("runs", "clash"),
    [
        ("run='a*','b*' out=D", ""),
        ("run=a1,'b*' out=D", ""),
        ("run=a1,'a*'", "a1/probes/errors"),
        ("run=a1,b1 out=D", "D"),
    ],
)
def test_folders_of_answers_are_those_of_the_runs_that_a_glob_names(
    command, ran, tmp_path, monkeypatch, capsys, runs, clash
):
    monkeypatch.chdir(tmp_path)
    for name in ("a1", "a2", "b1", "b2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    assert command(lambda job: None, "-m", "probe=errors", *runs.split(), program="probe") == bool(clash)
    assert (f"; {clash} would get" in capsys.readouterr().err) == bool(clash)


def test_presets_are_checked_with_their_sweep(command, ran, capsys):
    assert command(finish, "-m", "experiment=fig3", "seed=0,-1") == 1
    assert capsys.readouterr().err.count("seed=-1: expected") == 6
    assert not ran


def test_single_run_prints_no_sweep_table(command, capsys):
    assert command(finish, "seed=3") == 0
    assert not capsys.readouterr().out
    assert command(fails_for(3, error=UserError("no such thing")), "seed=3") == 1
    assert capsys.readouterr().err == "error: no such thing\n"


def test_bug_in_single_run_is_one_line_and_exit_status_70(command, capsys):
    assert command(fails_for(3, error=ZeroDivisionError("x")), "seed=3") == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: internal error: ZeroDivisionError: x; the traceback is in \S+", line)


def test_job_that_is_killed_each_time_does_not_keep_the_others_from_running(command, tmp_path):
    """The second command takes it last, and is killed when the others have finished."""

    def out_of_memory(job: TrainJob) -> None:
        job.run.path.mkdir(parents=True, exist_ok=True)
        with job.run.attempted():
            if job.seeds == (0,):
                os.kill(os.getpid(), signal.SIGKILL)
            finish(job)

    for finished in (0, 2):
        child = os.fork()
        if child == 0:
            command(out_of_memory, "-m", "seed=0,1,2")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert sum(Run(path).finished for path in (tmp_path / "runs").iterdir()) == finished


def test_sweep_leaves_no_temporary_file(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(finish, "-m", "seed=0,1") == 0
    assert {path.name for path in tmp_path.iterdir()} <= {"runs"}


def test_table_fits_80_columns(command, capsys):
    long = "the loss became nan in epoch 31, seed 4; the checkpoint is kept; a lower model.optimizer.lr may help"
    axes = ("split=random,vs_t", "model.optimizer.lr=0.001,0.0001", "trainer.max_epochs=10,20")
    assert command(fails_for(4, error=UserError(long)), "-m", *axes, "seed=4") == 1
    table = capsys.readouterr().out.partition("\njob     ")[2].partition("\njob ")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("lr=0.0001") == 4  # folded, never cut off


def test_failed_job_leaves_no_process_alive(command):
    """Its exception would hold every frame, and a model in one of them."""

    class Model:
        pass

    alive: list[weakref.ref] = []

    def job(job: TrainJob) -> None:
        gc.collect()
        assert not any(reference() for reference in alive)
        model = Model()
        alive.append(weakref.ref(model))
        raise UserError("no")

    assert command(job, "-m", "seed=0,1") == 1
    assert len(alive) == 2
