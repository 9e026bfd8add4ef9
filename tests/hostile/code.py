"""Cause 1: what comes from others runs no code and configures no program: experiments, run directories, weights."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from arith_erd.interp.loading import load_checkpoint
from arith_erd.tasks import Add

from .world import Attack, Program, World, pick, process

HYDRA = (  # what an experiment of somebody else says, and what the message names
    ("hydra: {callbacks: {x: {_target_: pathlib.Path.touch, self: CANARY}}}", "hydra.callbacks"),
    ("hydra: {hydra_logging: {handlers: {f: {class: logging.FileHandler, filename: CANARY}}}}", "hydra.hydra_logging"),
    ("hydra: {job_logging: {handlers: {f: {(): pathlib.Path.touch, self: CANARY}}}}", "hydra.job_logging"),
    ("hydra: {job: {chdir: true, env_set: {PATH: CANARY}}, run: {dir: CANARY}}", "hydra.job"),
    ("hydra: {run: {dir: CANARY}, output_subdir: x}", "hydra.run"),
    ("hydra: {sweep: {dir: CANARY}}", "hydra.sweep"),
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
    ("hydra: {mode: MULTIRUN}", "hydra.mode"),
    ("hydra: {help: {app_name: x}}", "hydra.help"),
    ("defaults: [/task@hydra.callbacks: add]", "hydra.callbacks"),
    ("defaults: [{override /hydra/launcher: submitit_slurm}]", ""),
    ("defaults: [{override /hydra/job_logging: stdout}]", ""),
    ("trust: [json]", "trust"),
    ("overwrite: '${oc.env:SECRET}'", "overwrite"),
    ("task: {_target_: os.system, command: touch CANARY}", "task"),
    ("hydra: CANARY", "sets hydra"),
)


def others_experiment(n: int, random: Random) -> Attack:
    """An experiment of somebody else, alone or as a sweep; its folder is named in one of two ways."""
    text, says = HYDRA[n % len(HYDRA)]
    named = random.choice(("--config-dir={}", "hydra.searchpath=[file://{}]"))
    words = random.choice(([], ["-m"]))

    def prepare(world: World) -> Program:
        folder = world.folder / "here" / "own" / "experiment"
        folder.mkdir(parents=True)
        (folder / "theirs.yaml").write_text(f"# @package _global_\n{text.replace('CANARY', str(world.canary))}\n")
        return world.typed(*words, named.format(folder.parent), "experiment=theirs")

    return Attack(text, prepare, says, lines=3)


def in_the_current_folder(n: int, random: Random) -> Attack:
    """A module of a common name where a program is started, in a process of its own: it is not imported."""
    module = ("yaml", "torch", "matplotlib", "json", "arith_erd", "sitecustomize")[n % 6]
    program = (["-m", "arith_erd.runs", "../runs"], ["-m", "arith_erd.report", "../runs", "--out=../report"])[n // 2 % 2]

    def prepare(world: World) -> Program:
        code = f"open({str(world.canary)!r}, 'w')\n"
        (world.folder / "here" / f"{module}.py").write_text(code)
        return process("-P", *program)

    return Attack(f"{module}.py, {program[1]}", prepare)


ELASTIC = "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"


def targets(canary: Path) -> dict[str, dict[str, Any]]:
    """Nodes that do harm when Hydra's ``instantiate``, or a looser allow-list, makes them."""
    touch, path = f"touch {canary}", str(canary)
    decode = "${oc.decode:'{_target_: os.mkdir, path: " + path + "}'}"
    program = {"entrypoint": "touch", "args": [path], "env": {}, "stdout": None, "stderr": None, "local_rank_id": 0}
    add = "arith_erd.tasks.Add"
    return {
        "os.system": {"_target_": "os.system", "command": touch},
        "builtins.eval": {"_target_": "builtins.eval", "_args_": [f"open({path!r}, 'w')"]},
        "os by way of torch": {"_target_": "torch.os.system", "command": touch},
        "subprocess, ours": {"_target_": "arith_erd.system.machine.subprocess.run", "args": ["touch", path]},
        "os, ours": {"_target_": "arith_erd.system.files.os.mkdir", "path": path},
        "a function, ours": {"_target_": "arith_erd.system.files.write_atomically", "path": path, "text": ""},
        "trust, ours": {"_target_": "arith_erd.config.build.trust", "_args_": ["os"]},
        "a class of ours that writes": {"_target_": "arith_erd.system.boundary.LastingStream", "stream": path},
        "a run, ours": {"_target_": "arith_erd.runs.Run", "path": path},
        "a wheel's module": {"_target_": "torch.optim.lr_scheduler.os.mkdir", "path": path},
        "an optimizer's module": {"_target_": "torch.optim.optimizer.torch.hub.load", "repo_or_dir": "evil/evil"},
        "torch starts programs": {"_target_": ELASTIC, **program},
        "torch writes files": {"_target_": "torch.PyTorchFileWriter", "_args_": [path]},
        "torch.load": {"_target_": "torch.load", "f": path, "weights_only": False},
        "a logger of Lightning": {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": path},
        "nested in lists": {"_target_": add, "bits": [[{"_target_": "os.mkdir", "path": path}]]},
        "decoded from text": {"_target_": add, "bits": decode},
        "positional arguments": {"_target_": add, "_args_": [3]},
        "a deferred call": {"_target_": add, "_partial_": True},
        "the environment": {"_target_": add, "prompt_order": "${oc.env:SECRET}"},
        "a class of another kind": {"_target_": "arith_erd.splits.RandomSplit"},
        "a target that is a list": {"_target_": ["os.system"], "command": touch},
        "dots and no name": {"_target_": "arith_erd..tasks.Add"},
        "a dunder": {"_target_": "arith_erd.tasks.Add.__init__.__globals__"},
        "no target": {"bits": 3},
    }


def others_class(n: int, random: Random) -> Attack:
    """A ``_target_`` in any group of a run's ``config.yaml``."""
    name, _ = pick(targets(Path("canary")), n)
    place = random.choice(("task", "split", "model.net", "model.optimizer", "model.loss", "logger"))

    def prepare(world: World) -> Program:
        world.configure(place, {"name": "x", **targets(world.canary)[name]})
        return world.load

    return Attack(f"{name} in {place}", prepare, "" if place != "logger" else None)


def others_run_that_trusts(n: int, random: Random) -> Attack:
    """``trust`` and Hydra's own node in a run's ``config.yaml``."""
    key, value = (("trust", ["os"]), ("trust", "os"), ("hydra", {"job": {"chdir": True}}), ("overwrite", True),
                  ("defaults", ["/task@hydra.callbacks: add"]), ("_target_", "os.system"))[n % 6]  # fmt: skip

    def prepare(world: World) -> Program:
        world.configure("task", {"name": "x", "_target_": "os.mkdir", "path": str(world.canary)})
        world.config = world.run.config()
        world.configure(key, value)
        return (world.load, world.probe)[n // 6 % 2]

    return Attack(f"{key}={value}", prepare, "")


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


PLACES = ("beside the weights", "among the counters", "alone", "checkpoint=", "safetensors")


def gadget(n: int, random: Random) -> Attack:
    """Code that runs when it is unpickled without care."""
    name, _ = pick(gadgets(Path("canary")), n)
    place = PLACES[n % len(PLACES)]

    def prepare(world: World) -> Program:
        evil, model = gadgets(world.canary)[name], world.folder / "model"
        if place == "checkpoint=":
            torch.save({"fc.weight": torch.ones(5, 64), "fc.bias": evil}, model)
            return lambda: load_checkpoint(model, Add(3))
        if place == "safetensors":
            world.run.weights(0).write_bytes(pickle.dumps(evil))
            return world.load
        world.interrupted()
        saved = world.checkpoint
        if place == "alone":
            world.run.checkpoint.write_bytes(pickle.dumps(evil))
            return world.load
        torch.save({**saved, ("more" if place == "beside the weights" else "loops"): evil}, world.run.checkpoint)
        return random.choice((world.load, world.resume_whole))

    return Attack(f"{name}, {place}", prepare, "" if place in PLACES[2:] else None)
