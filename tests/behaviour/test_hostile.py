"""What comes from somebody else runs no code, reveals nothing and is read or refused in one line: see ``SECURITY.md``.

What a report passes on is in ``tests/unit/report/test_strangers.py``.
"""

import contextlib
import os
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import yaml

from arith_erd.catalog.loading import load_authors_weights, load_run
from arith_erd.errors import UserError
from arith_erd.report.collect import collect
from arith_erd.report.paper import load_paper
from arith_erd.runs.directory import Run, flatten
from arith_erd.tasks import Add
from tests.tiny import FOUR_EPOCHS
from tests.values import put

pytestmark = pytest.mark.slow_after(5)

SECRET = "s3cr3t-of-the-environment"

HYDRA = (  # what an experiment says, and what the message names
    ("hydra: {callbacks: {x: {_target_: pathlib.Path.touch, self: CANARY}}}", "hydra.callbacks"),
    ("hydra: {job_logging: {handlers: {f: {(): pathlib.Path.touch, self: CANARY}}}}", "hydra.job_logging"),
    ("hydra: {job: {chdir: true, env_set: {PATH: CANARY}}, run: {dir: CANARY}}", "hydra.job"),
    ("hydra: {launcher: {_target_: pathlib.Path.touch, self: CANARY}}", "hydra.launcher"),
    ("hydra: {sweeper: {_target_: pathlib.Path.touch, self: CANARY}}", "hydra.sweeper._target_"),
    ("hydra: {sweeper: {params: {hydra.run.dir: CANARY}}}", "hydra.sweeper.params.hydra.run.dir"),
    ('hydra: {sweeper: {params: {trust: "[json]"}}}', "hydra.sweeper.params.trust"),
    ('hydra: {sweeper: {params: {task: "add,mul\\ntrust=[json]"}}}', ""),
    ("hydra: {searchpath: [file://CANARY]}", "hydra.searchpath"),
    ("trust: [json]", "trust"),
    ("overwrite: true", "overwrite"),
    ("task: {_target_: os.system, command: touch CANARY}", "task"),
    ("hydra: CANARY", "sets hydra"),
    ("{hydra: '${task}', task: {callbacks: {x: {_target_: os.getcwd}}}}", "sets hydra;"),
    ("# @package hydra.callbacks\nx: {_target_: os.getcwd}", "experiment/theirs.yaml: sets hydra.callbacks"),
    ("a: [", 'experiment/theirs.yaml", line 3'),
)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that nothing may make."""
    yield tmp_path / "canary"
    assert not (tmp_path / "canary").exists()


@pytest.fixture
def run(whole: Run, tmp_path: Path) -> Run:
    """A copy of a finished run, to be made hostile."""
    return Run(shutil.copytree(whole.path, tmp_path / "runs" / whole.name))


@pytest.mark.parametrize("n", range(len(HYDRA)))
def test_experiment_of_somebody_else_configures_no_program(n, canary, main, tmp_path):
    """Alone, or as a sweep where it sets one; its folder is named in one of two ways."""
    text, says = HYDRA[n]
    folder = tmp_path / "own" / "experiment"
    folder.mkdir(parents=True)
    header = "" if text.startswith("#") else "# @package _global_\n"
    (folder / "theirs.yaml").write_text(f"{header}{text.replace('CANARY', str(canary))}\n")
    words = ["-m"] * ("sweeper" in text), ("--config-dir={}", "hydra.searchpath=[file://{}]")[n % 2]
    for only_print in ([], ["--help"], ["--cfg=job"]) if "logging" in text else ([],):  # Hydra logs before it prints
        typed = *words[0], words[1].format(folder.parent), "experiment=theirs", *only_print
        refused = main("train.py", *typed, cwd=tmp_path)
        assert refused.returncode in (1, 2)
        assert says in refused.stderr
        assert len(refused.stderr.splitlines()) <= 3
        assert "Traceback" not in refused.stderr
    assert os.listdir(tmp_path) == ["own"]


ADD = "arith_erd.tasks.Add"
TARGETS: tuple[dict[str, Any], ...] = (  # nodes that do harm when Hydra's `instantiate` makes them
    {"_target_": "os.system", "command": "touch CANARY"},
    {"_target_": "builtins.eval", "_args_": ["open('CANARY', 'w')"]},
    {"_target_": "arith_erd.system.machine.subprocess.run", "args": ["touch", "CANARY"]},
    {"_target_": "arith_erd.system.files.write_atomically", "path": "CANARY", "text": ""},
    {"_target_": "arith_erd.config.class_spec.trust", "_args_": ["os"]},
    {"_target_": "torch.optim.optimizer.torch.hub.load", "repo_or_dir": "evil/evil"},
    {"_target_": "torch.load", "f": "CANARY", "weights_only": False},
    {"_target_": ADD, "bits": [[{"_target_": "os.mkdir", "path": "CANARY"}]]},
    {"_target_": ADD, "bits": "${oc.decode:'{_target_: os.mkdir, path: CANARY}'}"},
    {"_target_": ADD, "prompt_order": "${oc.env:SECRET}"},
    {"_target_": ["os.system"], "command": "touch CANARY"},
    {"_target_": "arith_erd..tasks.Add"},
    {"_target_": "arith_erd.tasks.Add.__init__.__globals__"},
    {"_target_": "arith_erdevil.run"},
)


@pytest.mark.parametrize("node", TARGETS, ids=lambda node: str(node["_target_"]))
def test_run_of_somebody_else_makes_no_other_class(node, canary, run, monkeypatch):
    """Whatever group names it, and whatever else its ``config.yaml`` says."""
    monkeypatch.setenv("SECRET", SECRET)
    text = run.config_file.read_text()
    for group in ("task", "split", "model.net"):  # what is made when it is loaded
        config = yaml.safe_load(text) | {"trust": ["os"], "overwrite": True}
        config = put(config, group, {"name": "x", **node})
        run.config_file.write_text(yaml.safe_dump(config).replace("CANARY", str(canary)))
        with pytest.raises(UserError) as refused:
            load_run(run.path)
        assert SECRET not in str(refused.value)


class Gadget:
    """Calls a function when it is unpickled without care."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("place", ["more", "loops", "alone", "safetensors", "checkpoint="])
def test_code_in_weights_does_not_run(place, canary, run, train):
    harmful = Gadget(os.mkdir, str(canary)), Gadget(eval, f"open({str(canary)!r}, 'w')"), Gadget(torch.save, 1, canary)
    saved = torch.load(run.checkpoint_file, weights_only=True)
    run.summary_file.unlink()  # so that training reads the checkpoint
    for evil in (*harmful, Gadget(bytearray, 2**50)):
        if place in ("more", "loops"):
            torch.save({**saved, place: evil}, run.checkpoint_file)
        else:
            {"alone": run.checkpoint_file, "safetensors": run.weights_file(0)}.get(place, run.path / "w").write_bytes(
                pickle.dumps(evil)
            )
        with pytest.raises(UserError) if place in ("safetensors", "checkpoint=") else contextlib.suppress(UserError):
            if place == "checkpoint=":
                load_authors_weights(run.path / "w", Add(3))
            elif place == "safetensors":
                load_run(run.path)
            else:
                train(*FOUR_EPOCHS, "checkpoint.keep=all")


LEAVES = (None, True, -1, 10**40, 0.5, float("nan"), float("inf"), "add", "../x", "${task}", "\0", "", "\x1b[2J")


def anything(random: Random, depth: int = 3) -> Any:
    """A tree of values that nobody expects."""
    kind = random.random() if depth else 0
    if kind < 0.6:
        return random.choice(LEAVES)
    items = [anything(random, depth - 1) for _ in range(random.randrange(4))]
    return items if kind < 0.8 else {random.choice(("x", "name", 3)): item for item in items}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_any_value_and_any_byte_in_a_run_is_read_or_refused_in_one_line(seed, run, train):
    random = Random(seed)
    files = (run.config_file, run.summary_file, run.metrics_file, run.weights_file(0), run.checkpoint_file)
    path = random.choice(files)
    if path == run.config_file:
        config = run.config()
        path.write_text(
            yaml.safe_dump(put(config, random.choice([key for key, _ in flatten(config)]), anything(random)))
        )
    else:
        if path in (run.summary_file, run.metrics_file):  # offsets do not depend on how long it took
            path.write_text(re.sub(r"\d+\.\d+", "0.5", path.read_text()))
        data = path.read_bytes()
        at, length = random.randrange(len(data)), random.randint(1, 300)
        path.write_bytes(data[:at] + random.choice((b"\xff", b"", data[max(0, at - length) :])) + data[at + length :])
    for read in (lambda: load_run(run.path, 0), lambda: train(*FOUR_EPOCHS, "checkpoint.keep=all")):
        with contextlib.suppress(UserError, OSError):
            read()
    found = collect([run.path.parent], load_paper().setup)
    assert all(problem.isprintable() for problem in found.problems.values())
