"""Sweeps under a real Slurm: jobs are killed, preempted and timed out, and nothing is lost.

These run as root where Slurm's programs and the launcher's plugin are installed.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.slurm import one_node
from tests.clusters.slurm.sweep import Sweep, kills, preempt, slurm_command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def conf() -> Iterator[str]:
    """A cluster of one node; the value of ``SLURM_CONF``."""
    if reason := one_node.missing():
        pytest.skip(reason)
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("no submitit: pip install -c requirements.lock -e '.[slurm]'")
    with one_node.slurm() as path:
        yield path


def test_killed_jobs_finish_at_the_second_submission(conf: str, tmp_path: Path) -> None:
    sweep = Sweep(conf, tmp_path, packs=3)
    assert sweep.submit(kills(2)) == 1, sweep.output
    assert sweep.finished == 1
    assert sweep.output.count("not finished") == 2
    assert sweep.submit() == 0, sweep.output
    assert sweep.output.count("resuming from epoch") == 2
    assert sweep.equal_to_local() == 3
    assert sweep.devices == {"0", "1"}
    assert not sweep.shared


def test_jobs_that_are_asked_to_leave_requeue_themselves(conf: str, tmp_path: Path) -> None:
    """SIGUSR1 is the program's to answer; with SIGUSR2 submitit tells of a time limit; preemption comes as SIGTERM."""
    sweep = Sweep(conf, tmp_path, packs=3)
    usr1, usr2 = (slurm_command("scancel", f"--signal={name}") for name in ("USR1", "USR2"))
    assert sweep.submit([usr1, usr2, preempt]) == 0, sweep.output
    assert sweep.finished == 3
    assert sweep.output.count("resuming from epoch") == 3
    assert "not requeued" not in sweep.output


@pytest.mark.parametrize("packs", [1, 2])  # a single job is no array
def test_node_lacking_a_requirement_is_named_in_the_table(conf: str, tmp_path: Path, packs: int) -> None:
    sweep = Sweep(conf, tmp_path, packs)
    assert sweep.submit(overrides=["trainer.accelerator=gpu"]) == 1, sweep.output
    table = (tmp_path / "output.txt").read_text()
    assert table.count(" failed ") == packs
    for job in range(packs):
        assert f"job {job}: trainer.accelerator=gpu, trainer.precision=32-true: No supported gpu" in table
    assert sweep.finished == 0
