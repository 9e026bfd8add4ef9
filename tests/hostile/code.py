"""Cause 1: what comes from others runs no code and configures no program: experiments, run directories, weights."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from arith_erd.interp.loading import load_authors_weights
from arith_erd.tasks import Add

from .world import Attack, Case, World, process

HYDRA = (  # what an experiment of somebody else says, and what the message names
    ("hydra: {callbacks: {x: {_target_: pathlib.Path.touch, self: CANARY}}}", "hydra.callbacks"),
    ("hydra: {job_logging: {handlers: {f: {(): pathlib.Path.touch, self: CANARY}}}}", "hydra.job_logging"),
    ("hydra: {job: {chdir: true, env_set: {PATH: CANARY}}, run: {dir: CANARY}}", "hydra.job"),
    ("hydra: {launcher: {_target_: pathlib.Path.touch, self: CANARY}}", "hydra.launcher"),
    ("hydra: {sweeper: {_target_: pathlib.Path.touch, self: CANARY}}", "hydra.sweeper._target_"),
    ("hydra: {sweeper: {params: {hydra.run.dir: CANARY}}}", "hydra.sweeper.params.hydra.run.dir"),
    ('hydra: {sweeper: {params: {trust: "[json]"}}}', "hydra.sweeper.params.trust"),
    ('hydra: {sweeper: {params: {"++trust": "[json]"}}}', "hydra.sweeper.params.++trust"),
    ('hydra: {sweeper: {params: {"trust@x": "[json]"}}}', "hydra.sweeper.params.trust@x"),
    ('hydra: {sweeper: {params: {"task@hydra.callbacks": add}}}', "hydra.callbacks"),
    ('hydra: {sweeper: {params: {task: "add,mul\\ntrust=[json]"}}}', ""),
    ('hydra: {sweeper: {params: {seed: "0 trust=[json]"}}}', ""),
    ('hydra: {overrides: {task: ["trust=[json]"]}}', "hydra.overrides"),
    ("hydra: {searchpath: [file://CANARY]}", "hydra.searchpath"),
    ("defaults: [/task@hydra.callbacks: add]", "hydra.callbacks"),
    ("defaults: [{override /hydra/launcher: submitit_slurm}]", ""),
    ("trust: [json]", "trust"),
    ("overwrite: true", "overwrite"),
    ("task: {_target_: os.system, command: touch CANARY}", "task"),
    ("hydra: CANARY", "sets hydra"),
    ("{hydra: '${task}', task: {callbacks: {x: {_target_: os.getcwd}}}}", "sets hydra;"),
    ("hydra: {sweeper: {params: '${task}'}}", "hydra.sweeper.params"),
    ("hydra: [1]", "experiment/theirs.yaml"),
    ("# @package hydra.callbacks\nx: {_target_: os.getcwd}", "experiment/theirs.yaml: sets hydra.callbacks; expected"),
)


def others_experiment(world: World, n: int, random: Random) -> Case:
    """An experiment of somebody else, alone or as a sweep; its folder is named in one of two ways."""
    text, says = HYDRA[n % len(HYDRA)]
    folder = world.folder / "here" / "own" / "experiment"
    folder.mkdir(parents=True)
    header = "" if text.startswith("#") else "# @package _global_\n"
    (folder / "theirs.yaml").write_text(f"{header}{text.replace('CANARY', str(world.canary))}\n")
    named = random.choice(("--config-dir={}", "hydra.searchpath=[file://{}]")).format(folder.parent)
    yield Attack(text, says, lines=3)
    world.type(*random.choice(([], ["-m"])), named, "experiment=theirs")


def in_the_current_folder(world: World, n: int, random: Random) -> Case:
    """A module of a common name where a program is started, in a process of its own: it is not imported."""
    module = ("yaml", "torch", "matplotlib", "json", "arith_erd")[n % 5]
    program = ("arith_erd.runs", "arith_erd.report")[n % 2]
    (world.folder / "here" / f"{module}.py").write_text(f"open({str(world.canary)!r}, 'w')\n")
    yield Attack(f"{module}.py, {program}")
    process("-P", "-m", program, "../runs", *["--out=../report"] * (n % 2))


ADD, ELASTIC = "arith_erd.tasks.Add", "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"


def targets(canary: Path) -> dict[str, dict[str, Any]]:
    """Nodes that do harm when Hydra's ``instantiate``, or a looser allow-list, makes them."""
    touch, path = f"touch {canary}", str(canary)
    decode = "${oc.decode:'{_target_: os.mkdir, path: " + path + "}'}"
    program = {"entrypoint": "touch", "args": [path], "env": {}, "stdout": None, "stderr": None, "local_rank_id": 0}
    return {
        "os.system": {"_target_": "os.system", "command": touch},
        "builtins.eval": {"_target_": "builtins.eval", "_args_": [f"open({path!r}, 'w')"]},
        "subprocess, ours": {"_target_": "arith_erd.system.machine.subprocess.run", "args": ["touch", path]},
        "os, ours": {"_target_": "arith_erd.system.files.os.mkdir", "path": path},
        "a function, ours": {"_target_": "arith_erd.system.files.write_atomically", "path": path, "text": ""},
        "trust, ours": {"_target_": "arith_erd.config.build.trust", "_args_": ["os"]},
        "a class of ours that writes": {"_target_": "arith_erd.system.cli_errors.LastingStream", "stream": path},
        "an optimizer's module": {"_target_": "torch.optim.optimizer.torch.hub.load", "repo_or_dir": "evil/evil"},
        "torch starts programs": {"_target_": ELASTIC, **program},
        "torch writes files": {"_target_": "torch.PyTorchFileWriter", "_args_": [path]},
        "torch.load": {"_target_": "torch.load", "f": path, "weights_only": False},
        "nested in lists": {"_target_": ADD, "bits": [[{"_target_": "os.mkdir", "path": path}]]},
        "decoded from text": {"_target_": ADD, "bits": decode},
        "the environment": {"_target_": ADD, "prompt_order": "${oc.env:SECRET}"},
        "a target that is a list": {"_target_": ["os.system"], "command": touch},
        "dots and no name": {"_target_": "arith_erd..tasks.Add"},
        "a dunder": {"_target_": "arith_erd.tasks.Add.__init__.__globals__"},
        "a package whose name begins as ours": {"_target_": "arith_erdevil.run"},
    }


TARGETS = len(targets(Path()))


def others_class(world: World, n: int, random: Random) -> Case:
    """A ``_target_`` in any group of a run's ``config.yaml``, which may say ``trust`` too."""
    name, node = list(targets(world.canary).items())[n % TARGETS]
    place = random.choice(("task", "split", "model.net", "model.optimizer", "model.loss"))
    world.config |= random.choice(({}, {"trust": ["os"]}, {"hydra": {"job": {"chdir": True}}}, {"overwrite": True}))
    world.configure(place, {"name": "x", **node})
    stays_text = place == "model.optimizer" and node["_target_"] == ADD  # loading makes no optimizer
    yield Attack(f"{name} in {place}", None if stays_text else "")
    world.load()


class Gadget:
    """Calls a function when it is unpickled without care."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def gadgets(canary: Path) -> dict[str, Gadget]:
    code = f"open({str(canary)!r}, 'w')"
    return {
        "os.mkdir": Gadget(os.mkdir, str(canary)),
        "os.system": Gadget(os.system, f"touch {canary}"),
        "eval": Gadget(eval, code),
        "torch.load, of another file": Gadget(torch.load, str(canary)),
        "torch.save": Gadget(torch.save, 1, str(canary)),
        "a petabyte": Gadget(bytearray, 2**50),
        "an import": Gadget(__import__, "this"),
    }


PLACES = ("more", "loops", "alone", "checkpoint=", "safetensors")


def gadget(world: World, n: int, random: Random) -> Case:
    """Code that runs when it is unpickled without care: in a checkpoint, in its place, as a file of weights."""
    name, evil = list(gadgets(world.canary).items())[n % len(gadgets(world.canary))]
    place, model = PLACES[n % len(PLACES)], world.folder / "model"
    if place == "checkpoint=":
        torch.save({"fc.weight": torch.ones(5, 64), "fc.bias": evil}, model)
    elif place == "safetensors":
        world.run.weights(0).write_bytes(pickle.dumps(evil))
    else:
        world.interrupted()
        if place == "alone":
            world.run.checkpoint.write_bytes(pickle.dumps(evil))
        else:
            torch.save({**world.checkpoint, place: evil}, world.run.checkpoint)
    yield Attack(f"{name}, {place}", "" if place in PLACES[2:] else None)
    if place == "checkpoint=":
        load_authors_weights(model, Add(3))
    elif place in PLACES[2:]:
        world.load()
    else:
        random.choice((world.load, world.resume_whole))()


CODE = [others_experiment, others_class, gadget]
