"""Hostile weights: fake safetensors, fake resume checkpoints, fake models of the authors."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save

from arith_erd.interp.loading import load_checkpoint
from arith_erd.tasks import Add

from .world import Attack, Cause, Program, World, pick

Tensors = dict[str, torch.Tensor]
WEIGHTS = "weights/seed=0.safetensors"


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
        "exec": Gadget(exec, code),
        "torch.load, of another file": Gadget(torch.load, str(canary)),
        "torch.save": Gadget(torch.save, 1, str(canary)),
        "an import": Gadget(__import__, "this"),
    }


def header(entries: dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file whose header says ``entries``, and says that it is ``length`` bytes long."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


SAFETENSORS: dict[str, tuple[Callable[[Tensors], bytes], str]] = {
    "a pickle": (lambda state: pickle.dumps(Gadget(os.mkdir, "canary")), "cannot be read"),
    "nothing": (lambda state: b"", "cannot be read"),
    "a header longer than the file": (lambda state: header({}, length=2**63), "cannot be read"),
    "a header of brackets": (lambda state: struct.pack("<Q", 90_000) + b"[" * 90_000, "cannot be read"),
    "tensors beyond the end": (lambda state: header({"x": tensor([2**40], 0, 2**42)}), "cannot be read"),
    "tensors that overlap": (
        lambda state: header({"x": tensor([2], 0, 8), "y": tensor([2], 4, 12)}, bytes(12)),
        "cannot be read",
    ),
    "a tensor too many": (lambda state: save(state | {"evil": torch.ones(1)}), "do not fit its config.yaml: evil"),
    "another shape": (lambda state: save(state | {"norm.weight": torch.ones(5, 1)}), "norm.weight"),
    "integers": (lambda state: save(state | {"norm.weight": torch.ones(5, dtype=torch.int64)}), "norm.weight"),
    "cut off": (lambda state: save(state)[:-100], "cannot be read"),
    "a name flipped": (lambda state: save(state).replace(b"norm.weight", b"norm.weigh\x00"), ""),
}


def expanded(shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of any size in four bytes."""
    return torch.zeros(1).expand(shape)


CHECKPOINTS: dict[str, tuple[Callable[[World], Any], str]] = {
    "no weights in it": (lambda world: {"epoch": 1}, "cannot be read (KeyError)"),
    "an array of a petabyte": (lambda world: {"state_dict": Gadget(bytearray, 2**50)}, "cannot be read"),
    "weights that are text": (lambda world: {"state_dict": {"pack.stacked.norm.weight": "x"}}, "do not fit"),
    "terabytes in four bytes": (
        lambda world: {"state_dict": {"pack.stacked.norm.weight": expanded((2, 10**12))}},
        "do not fit",
    ),
    "sparse weights": (
        lambda world: {"state_dict": {k: x.to_sparse() for k, x in world.checkpoint["state_dict"].items()}},
        "do not fit",
    ),
    "more than weights": (lambda world: {**world.checkpoint, "_target_": "os.system", "epoch": 10**30}, ""),
}


def foreign_weights(n: int, random: Random) -> Attack:
    name, (content, says) = pick(SAFETENSORS, n)

    def prepare(world: World) -> Program:
        world.file(WEIGHTS).write_bytes(content(world.state))
        return world.load

    return Attack(name, prepare, says or None)


def foreign_checkpoint(n: int, random: Random) -> Attack:
    """Of a run in progress, read for a probe; or resumed from, with the previous one as bad."""
    name, (content, says) = pick(CHECKPOINTS, n)
    resumed = random.random() < 0.5

    def prepare(world: World) -> Program:
        world.interrupted()
        torch.save(content(world), world.run.checkpoint)
        if resumed:
            world.run.previous_checkpoint.write_bytes(world.run.checkpoint.read_bytes())
        return world.resume if resumed else world.load

    return Attack(name, prepare, None if resumed else says or None)


def gadget(n: int, random: Random) -> Attack:
    """Code that runs when it is unpickled without care."""
    name, _ = pick(gadgets(Path("canary")), n)
    place = ("beside the weights", "among the counters", "alone", "checkpoint=")[n // len(gadgets(Path())) % 4]

    def prepare(world: World) -> Program:
        evil, model = gadgets(world.canary)[name], world.folder / "model"
        if place == "checkpoint=":
            torch.save({"fc.weight": torch.ones(5, 64), "fc.bias": evil}, model)
            return lambda: load_checkpoint(model, Add(3))
        world.interrupted()
        saved = world.checkpoint
        if place == "alone":
            world.run.checkpoint.write_bytes(pickle.dumps(evil))
            return world.load
        torch.save({**saved, ("more" if place == "beside the weights" else "loops"): evil}, world.run.checkpoint)
        return random.choice((world.load, world.resume))

    return Attack(
        f"{name}, {place}", prepare, {"checkpoint=": "none of it was run", "alone": "cannot be read"}.get(place)
    )


OFFICIAL: dict[str, tuple[Callable[[], Any], str]] = {
    "hundreds of layers": (
        lambda: {f"encoder_layers.{i}.fc": torch.ones(1) for i in range(300)},
        "not the authors' state dict",
    ),
    "terabytes in four bytes": (lambda: {"fc.weight": expanded((5, 8 * 10**6))}, "missing: "),
    "a name that rewrites the terminal": (lambda: {"\x1b[2J\nok": torch.ones(5, 64)}, "foreign: \\x1b[2J ok"),
}


def foreign_model(n: int, random: Random) -> Attack:
    """A file with the authors' parameter names, or not."""
    name, (content, says) = pick(OFFICIAL, n)

    def prepare(world: World) -> Program:
        model = world.folder / "model"
        torch.save(content(), model)
        return lambda: load_checkpoint(model, Add(3))

    return Attack(name, prepare, says)


CAUSES: dict[str, Cause] = {
    cause.__name__: cause for cause in (foreign_weights, foreign_checkpoint, gadget, foreign_model)
}
