"""What comes from somebody else runs no code, reveals nothing and is read or refused in one line: see ``SECURITY.md``.

What a report passes on is in ``tests/unit/report/test_untrusted_text.py``.
"""

import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from arith_erd.catalog.loading import load_run, load_weights
from arith_erd.errors import UserError
from arith_erd.report.claims_file import load_paper
from arith_erd.report.collect import collect
from arith_erd.runs.directory import Run
from arith_erd.tasks import Add
from tests.hostile.__main__ import Hostile, small_run
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
    ('hydra: {sweeper: {params: {task: "add,mul\\ntrust=[json]"}}}', "task=add,mul trust=[json]: expected KEY=VALUE"),
    ("hydra: {searchpath: [file://CANARY]}", "hydra.searchpath"),
    ("trust: [json]", "trust"),
    ("overwrite: true", "overwrite"),
    ("task: {_target_: os.system, command: touch CANARY}", "task"),
    ("hydra: CANARY", "sets hydra"),
    ("{hydra: '${task}', task: {callbacks: {x: {_target_: os.getcwd}}}}", "sets hydra;"),
    ("# @package hydra.callbacks\nx: {_target_: os.getcwd}", "experiment/theirs.yaml: sets hydra.callbacks"),
    ("# @package [hydra].launcher\nsetup: [x]", "experiment/theirs.yaml: sets [hydra].launcher"),
    ("defaults: [/more@hydra.launcher: x]", "experiment/theirs.yaml: sets hydra by its defaults"),
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
    """The experiment runs alone, or as a sweep if it sets one. Two options can name its folder."""
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


def test_folder_of_somebody_else_cannot_set_hydra_under_any_name(main, tmp_path):
    """A file's name, or a group's, may become the key that the file sets; a link may give it that name."""
    (tmp_path / "own" / "more").mkdir(parents=True)
    file = tmp_path / "own" / "more" / "x.yaml"
    file.write_text("# @package _name_\nlauncher: {setup: [x]}\n")
    link = tmp_path / "own" / "hydra"
    link.symlink_to("more")
    for _ in range(2):
        refused = main("train.py", f"--config-dir={tmp_path}/own", cwd=tmp_path).stderr
        assert refused == f"error: {link.name}: expected another name; only conf/ has options of Hydra\n"
        link.unlink()
        link = tmp_path / "own" / "hydra.yaml"
        link.symlink_to("more/x.yaml")


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
    """The class may stand in any group, whatever else ``config.yaml`` says."""
    monkeypatch.setenv("SECRET", SECRET)
    text = run.config_file.read_text()
    for group in ("task", "split", "model.net"):  # what is made when it is loaded
        config = yaml.safe_load(text) | {"trust": ["os"], "overwrite": True}
        config = put(config, group, {"name": "x", **node})
        run.config_file.write_text(yaml.safe_dump(config).replace("CANARY", str(canary)))
        with pytest.raises(UserError) as refused:
            load_run(run.path)
        assert SECRET not in str(refused.value)
        assert f": {group}." in f": {refused.value}"  # not refused for another key


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
            files = {"alone": run.checkpoint_file, "safetensors": run.weights_file(0), "checkpoint=": run.path / "w"}
            files[place].write_bytes(pickle.dumps(evil))
        with pytest.raises(UserError) if place in ("safetensors", "checkpoint=") else contextlib.suppress(UserError):
            if place == "checkpoint=":
                load_weights(run.path / "w", Add(3))
            elif place == "safetensors":
                load_run(run.path)
            else:
                train(*FOUR_EPOCHS, "checkpoint.keep=all")


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", sys.argv)
        yield small_run(tmp_path_factory.mktemp("probed") / "runs")


@pytest.mark.parametrize(
    ("place", "damage", "name"),
    [
        ("weights", "link to a folder", "train again"),
        ("metrics.csv", "pipe", "list"),
        ("x.csv", "link to a device", "continue"),
        *(("", "no permission", program) for program in ("continue", "probe of a glob")),
        *((f"{name}.json", "no permission", "report") for name in ("summary", "probes/attention/probe")),
        ("summary.json", "no permission", "list"),
        ("config.yaml", "no permission", "probe"),
        ("weights/seed=0.safetensors", "no permission", "probe"),
        ("last.ckpt", "no permission", "continue"),
        ("config.yaml", "aliases", "probe of a glob"),
        ("config.yaml", "megabyte of [", "load_table"),
        ("weights/epoch=3", "link to a folder", "train again"),
        ("probes", "link to a folder", "probe"),
        ("summary.json", "link to itself", "continue"),
        ("summary.json", "megabyte of [", "continue"),
    ],
)
def test_damaged_run_harms_nothing(place, damage, name, probed):
    """A few of the cases of ``python -m tests.hostile``, which says what counts as harm."""
    with tempfile.TemporaryDirectory() as folder:  # another user must reach it
        assert not Hostile(Path(folder), probed).tried(3, place, damage, name, seed=0)


def test_checkpoint_that_expands_is_refused(run):
    run.weights_file(0).unlink()
    with zipfile.ZipFile(run.checkpoint_file) as whole:
        entries = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(run.checkpoint_file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    with pytest.raises(UserError, match=r"last\.ckpt: cannot be read"):
        load_run(run.path, 0)


def test_run_and_folder_reached_by_links_are_read_and_written(run, train, tmp_path):
    """The run lies on another disk, and has links within it."""
    elsewhere = Run(run.path.rename(tmp_path / "elsewhere"))
    run.path.symlink_to(elsewhere.path)
    (elsewhere.path / "weights").rename(elsewhere.path / "more")
    (elsewhere.path / "weights").symlink_to("more")
    elsewhere.summary_file.unlink()
    before = load_run(run.path, 1).network.state_dict()
    assert train(*FOUR_EPOCHS, "checkpoint.keep=all").path == run.path
    assert all(torch.equal(x, before[name]) for name, x in load_run(run.path, 1).network.state_dict().items())
    assert [*collect([run.path.parent], load_paper().setup).replicas["run"]] == [run.name] * 2
    assert elsewhere.finished
