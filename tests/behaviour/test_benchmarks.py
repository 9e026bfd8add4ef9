"""Benchmarks run at toy sizes."""

import csv
import importlib
import os
import runpy
import subprocess
import sys

import pytest

from arith_erd.config.compose import compose
from tests.tiny import NETWORK


@pytest.mark.slow
def test_checks_pass_on_a_machine_without_a_gpu(root, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["correctness.py", *NETWORK])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(root / "benchmarks" / "correctness.py"), run_name="__main__")
    assert not end.value.code
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [" ok " in line for line in lines] == [True] * 8 + [False] * 2
    assert all("bf16-mixed" in line and " for the record " in line for line in lines[8:])


BUSY = """
import signal, time
from epoch import run_in_fresh_process

def work():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a trainer that saves first
    print("at work", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    run_in_fresh_process("busy.work")
"""


def test_worker_leaves_when_its_parent_is_killed(root, tmp_path):
    """Otherwise a reader of its output, such as gpu.sh, waits until the work ends, or for ever."""
    (tmp_path / "busy.py").write_text(BUSY)
    search = os.pathsep.join([str(tmp_path), str(root / "benchmarks")])
    command = [sys.executable, str(tmp_path / "busy.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": search}) as process:
        assert process.stdout.readline() == b"at work\n"
        process.kill()
        assert process.communicate(timeout=20)[0] == b""


@pytest.fixture
def profile_gpu(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module("profile_gpu")


def test_work_of_a_step_equals_a_count_by_hand(profile_gpu):
    """5.0 GFLOP; and 40 bytes a weight, and 20 a channel of 23 tokens in five blocks and 8 in the last."""
    operations, num_bytes = profile_gpu.work_of_a_step(compose("train", ["model=nanogpt", "seed=0-2"]))
    assert operations / 3 == pytest.approx(5.0e9, rel=0.02)
    assert num_bytes == 3 * (40 * 297_600 + 20 * 128 * 64 * (5 * 23 + 8))


def test_idle_time_counts_gaps_between_kernels_once(profile_gpu):
    assert profile_gpu.idle_time([(0, 2), (1, 5), (2, 3), (7, 8), (10, 11)]) == 4


@pytest.mark.slow
def test_profile_names_kernels_and_appends_a_row(root, tmp_path):
    command = [sys.executable, "benchmarks/profile_gpu.py", "--packs", "1", "--steps", "2", "--csv", tmp_path / "a.csv"]
    for what in ("one", "two"):
        options = ["--what", what, *NETWORK, "trainer.compile=false", "trainer.accelerator=cpu"]
        done = subprocess.run([*command, *options], cwd=root, capture_output=True, text=True, check=True)
        assert f"{what}, a pack of 1: " in done.stdout
        assert "times aten::" in done.stdout
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["what"] for row in rows] == ["one", "two"]
    assert all(float(row["ms"]) > 0 for row in rows)
    assert all(0 <= float(row["percent_of_bound"]) < 100 for row in rows)  # on a busy machine it rounds to 0
