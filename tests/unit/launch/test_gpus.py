"""Packs on several GPUs, which are only declared: ``trainer.accelerator=cpu`` uses none of them."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from arith_erd.launch.gpus import _gpus
from arith_erd.launch.task_folder import log_file, start_command, write_tasks
from arith_erd.runs.directory import Run
from tests.behaviour.interruption import assert_same
from tests.tiny import TINY

# Waits until so many have begun; then prints its device, and when it began and ended.
TASK = """
import os, pathlib, sys, time
status, folder, together = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
begin = time.monotonic()
(folder / str(os.getpid())).touch()
while len(list(folder.iterdir())) < together:
    time.sleep(0.05)
print(os.environ["CUDA_VISIBLE_DEVICES"], "SLURM_JOB_ID" in os.environ, begin, time.monotonic(), flush=True)
sys.exit(status)
"""


@pytest.mark.parametrize("per_gpu", [1, 2])
def test_24_tasks_on_eight_gpus_share_each_with_as_many_as_allowed(monkeypatch, tmp_path, per_gpu):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    monkeypatch.setenv("SLURM_JOB_ID", "42")  # a task must not requeue the job in which all of them run
    begun = tmp_path / "begun"
    begun.mkdir()
    words = ([sys.executable, "-ISc", TASK, str(i % 3), str(begun), str(8 * per_gpu)] for i in range(24))
    folder = write_tasks(tmp_path, [(str(i), command) for i, command in enumerate(words)])
    with _gpus(per_gpu) as submit:
        statuses = [future.result() for future in [submit(folder, index) for index in range(24)]]
    assert statuses == [index % 3 for index in range(24)]
    lines = [log_file(folder, index).read_text().split() for index in range(24)]
    assert {line[1] for line in lines} == {"False"}
    spans = [(gpu, float(begin), float(end)) for gpu, _, begin, end in lines]
    shared = [Counter(gpu for gpu, begin, end in spans if begin <= now < end) for _, now, _ in spans]
    assert max(max(count.values()) for count in shared) == per_gpu


def test_task_whose_launcher_was_killed_before_it_began_does_nothing(tmp_path):
    ran = tmp_path / "ran"
    folder = write_tasks(tmp_path, [("", [sys.executable, "-c", f"open({str(ran)!r}, 'w')"])])
    for launcher, status in (str(os.getppid()), 1), (str(os.getpid()), 0):
        ended = subprocess.run([*start_command(folder), "0", launcher], capture_output=True, check=False)
        assert (ended.returncode, ran.exists()) == (status, status == 0)


@pytest.mark.slow
def test_packs_on_gpus_survive_a_signal_and_end_as_those_of_one_process(cli, tmp_path, monkeypatch, root):
    """Three packs on two GPUs: two save and stop, the third does not start; the same command trains the rest."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    words = (*TINY, "trainer.max_epochs=40", "seed=0-2", "pack.max_replicas=1")
    launch = [sys.executable, str(root / "train.py"), "-m", "hydra/launcher=gpus", *words, f"runs_dir={tmp_path}/gpus"]
    first = subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while len([path for path in tmp_path.glob("gpus/*-seed*/metrics.csv") if path.read_text().count("\n") > 4]) < 2:
        assert first.poll() is None
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate()
    assert first.returncode == 128 + signal.SIGTERM, output
    second = cli(*launch[1:], CUDA_VISIBLE_DEVICES="0,1")
    assert second.returncode == 0, second.stdout + second.stderr
    logs = "".join(path.read_text() for path in tmp_path.glob("gpus/.gpus-*/*/logs/*"))
    assert logs.count("stopped; the same command continues") == logs.count("resuming from epoch") == 2, logs
    assert cli("train.py", *words, f"runs_dir={tmp_path}/one").returncode == 0
    for path in tmp_path.glob("one/*"):
        assert_same(Run(path), Run(tmp_path / "gpus" / path.name))
