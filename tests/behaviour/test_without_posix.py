"""Where modules and signals of POSIX are missing, as on Windows, everything works but launchers."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tiny import TINY

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PYTHON = """
import arith_erd as ae
from pathlib import Path
model = ae.load_pretrained("add-nanogpt")
assert model.predict([3], [5]) == [8]
ae.probe("explorer", model).save("page")
(model,) = ae.fit(ae.Add(bits=3), ae.NanoGPT, seeds=[0], epochs=1, out="fit")
assert len(ae.probe("patching", model).rows)
"""


def start(*words: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.behaviour.without_posix", *words]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(
        command, cwd=folder, text=True, env={"PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1"}, **pipe
    )


def test_library_trains_probes_and_shows_a_network(tmp_path):
    (tmp_path / "own.py").write_text(PYTHON)
    process = start("own", folder=tmp_path)
    assert process.wait(300) == 0, process.stdout.read()
    assert (tmp_path / "page" / "explorer.html").is_file()


def test_commands_work_and_a_second_process_is_refused(tmp_path):
    train = ("train", *TINY, "runs_dir=runs", "trainer.max_epochs=200")
    first = start(*train, folder=tmp_path)
    while first.poll() is None and not list(tmp_path.glob("runs/*/metrics.csv")):
        time.sleep(0.1)
    second = start(*train, folder=tmp_path)
    assert (second.wait(300), first.wait(300)) == (75, 0), first.stdout.read() + second.stdout.read()
    assert f"in use by process {first.pid} on " in second.stdout.read()
    probe = start("probe", "probe=patching", "run=runs/*", folder=tmp_path)
    assert probe.wait(300) == 0, probe.stdout.read()
