"""Two users sweep on one machine at the same time: neither stops nor reads the other's sweep."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from arith_erd.config.job import Job
from arith_erd.launch import cli
from arith_erd.runs import Run

ALICE, BOB = 65533, 65534


def open_to_others(folder: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users"),
    pytest.mark.skipif(
        not all(map(open_to_others, (Path(__file__).resolve().parent, Path(sys.prefix).resolve()))),
        reason="other users cannot read this checkout or its environment",
    ),
]


def sweep(home: Path) -> int:
    """Three jobs, of which one meets a fault of ours; the exit status."""

    def train(job: Job) -> None:
        if job.seeds == (1,):
            raise ZeroDivisionError("secret")
        job.run.create(job.resolved)
        job.run.weights(job.seeds[0]).touch()
        job.run.finish({"seeds": [{"seed": job.seeds[0]}]})

    sys.argv = ["train.py", "-m", "seed=0,1,2", f"runs_dir={home / 'runs'}"]
    with pytest.raises(SystemExit) as end:
        cli.entry_point("train")(train)()
    return int(end.value.code or 0)


def start(user: int, function: Callable[[], int]) -> int:
    """A process of a user; its exit status will be what the function returns."""
    child = os.fork()
    if child == 0:
        status = 9
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            status = function()
        finally:
            os._exit(status)
    return child


def ended(*children: int) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_two_users_sweep_at_once(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="two-users-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shared, homes = folder / "tmp", {user: folder / str(user) for user in (0, ALICE, BOB)}
        shared.mkdir()
        shared.chmod(0o1777)
        for user, home in homes.items():
            home.mkdir()
            os.chown(home, user, user)
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
        monkeypatch.setattr(sys, "argv", sys.argv)

        assert sweep(homes[0]) == 1  # imports everything, which another user may not be able to
        children = [start(user, lambda user=user: sweep(homes[user])) for user in (ALICE, BOB)]
        assert ended(*children) == [1, 1]
        for user in (ALICE, BOB):
            finished = [run for path in (homes[user] / "runs").iterdir() if (run := Run(path)).finished]
            assert len(finished) == 2
            assert all(run.path.stat().st_uid == user for run in finished)

        left = {path: path.stat() for path in shared.iterdir()}
        assert sorted(about.st_uid for about in left.values()) == [0, ALICE, BOB]  # a traceback each, and nothing else
        assert all(stat.S_IMODE(about.st_mode) == 0o600 for about in left.values())
        alices = next(path for path, about in left.items() if about.st_uid == ALICE)

        def read_and_remove() -> int:
            for deed in (alices.read_text, alices.unlink):
                with pytest.raises(PermissionError):
                    deed()
            return 0

        assert ended(start(BOB, read_and_remove)) == [0]
