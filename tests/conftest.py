"""Fixtures: a configuration that trains in a second, and the programs as people run them."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra.core.singleton import Singleton
from hypothesis import settings
from matplotlib.figure import Figure

from arith_erd.config.compose import compose
from arith_erd.runs.directory import Run
from tests.tiny import FOUR_EPOCHS, TINY

ROOT = Path(__file__).parents[1]

Cli = Callable[..., subprocess.CompletedProcess[str]]

# A background job of a shell ignores Ctrl-C, and one under nohup SIGHUP; so would the programs that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Else tests would requeue the Slurm job in which they run, commit to the repository of a Git hook, or meet colours.
for name in [*os.environ]:
    if name.startswith(("SLURM_", "GIT_", "TTY_")) or name in ("FORCE_COLOR", "NETRC", "COLUMNS", "LINES"):
        del os.environ[name]

# Products this small only wait for each other on more threads, and sums on two threads have other bits.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the programs that the tests start

yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Hydra parses 17 files each time

settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        mark = item.get_closest_marker("slow_after")
        if mark and hasattr(item, "callspec") and max(item.callspec.indices.values()) >= mark.args[0]:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    gc.freeze()  # the collector would look at all modules again and again: a tenth of the time
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """Where this test's runs go; not made yet."""
    return tmp_path / "runs"


Train = Callable[..., Run]


@pytest.fixture(scope="session")
def train_in() -> Iterator[Train]:
    """``train_in(folder, "seed=0-1", ...)`` trains the tiny configuration in this process and returns its run."""
    from arith_erd.training import run_pack
    from arith_erd.training.train import train

    def trained(folder: Path, *overrides: str) -> Run:
        (run,) = train(compose("train", [*TINY, *overrides, f"runs_dir={folder}"]))
        return run

    with pytest.MonkeyPatch.context() as patch:  # curves would take half of the time
        patch.setattr(run_pack, "draw_learning_curves", lambda *_: Figure((0.1, 0.1)))
        yield trained


@pytest.fixture
def train(runs_dir: Path, train_in: Train) -> Train:
    """``train("seed=0-1", ...)``, into `runs_dir`."""
    return partial(train_in, runs_dir)


@pytest.fixture(scope="session")
def trained_pack(tmp_path_factory: pytest.TempPathFactory, train_in: Train) -> Run:
    """A finished run of seeds 3 and 5, four epochs: far from perfect. For reading only."""
    overrides = ("seed=[3,5]", "trainer.max_epochs=4", "model.optimizer.lr=0.01")
    return train_in(tmp_path_factory.mktemp("runs"), *overrides)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, train_in: Train) -> Run:
    """Two seeds, four epochs, never interrupted, weights of all epochs kept. For reading only."""
    return train_in(tmp_path_factory.mktemp("whole"), *FOUR_EPOCHS, "checkpoint.keep=all")


@cache
def _default() -> dict[str, Any]:
    return compose("train").resolved


@pytest.fixture
def config() -> dict[str, Any]:
    """The default training configuration, resolved; each test has its own."""
    return deepcopy(_default())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """``package("mine", parts="...")`` writes a package of these modules, which Python finds and nobody trusts yet."""
    made: list[str] = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("arith_erd.config.class_spec._trusted_packages", set())

    def write(name: str, **modules: str) -> None:
        made.append(name)
        (tmp_path / name).mkdir()
        for module, text in ({"__init__": ""} | modules).items():
            (tmp_path / name / f"{module}.py").write_text(text)

    yield write
    for module in [module for module in sys.modules if module.split(".")[0] in made]:
        del sys.modules[module]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@cache
def _environment() -> dict[str, str]:
    hidden = ("WANDB", "HYDRA", "PYTEST")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)}


@pytest.fixture
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """``cli("train.py", "seed=0", cwd=..., timeout=...)`` runs a program as people do; nobody is at the terminal.

    Arguments that start with ``-c`` or ``-m`` instead of a file name go to Python itself.
    """

    def run(
        program: str, *arguments: str, cwd: Path = ROOT, timeout: float = 180, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        command = [program] if program.startswith("-") else [str(ROOT / program)]
        return subprocess.run(
            [sys.executable, *command, *arguments],
            cwd=cwd,
            env=_environment() | {"TMPDIR": str(tmp_path_factory.mktemp("tmp"))} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """As `cli`, within this process: a tenth of the time, for whatever ends before it trains."""

    def run(program: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        from arith_erd.probes.__main__ import main as probe
        from arith_erd.training.__main__ import main as train

        capfd.readouterr()
        hydra_state, status = Singleton.get_state(), 0
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", [str(ROOT / program), *arguments])
            patch.setenv("HYDRA_FULL_ERROR", "1")
            try:
                {"train.py": train, "probe.py": probe}[program]()
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            finally:
                Singleton.set_state(hydra_state)
        printed, complained = capfd.readouterr()
        return subprocess.CompletedProcess([program, *arguments], status, printed, complained)

    return run
