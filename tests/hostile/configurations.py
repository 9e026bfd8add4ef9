"""Hostile ``config.yaml`` files, command lines and names."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arith_erd.config.compose import compose
from arith_erd.runs import run_name

from .world import Case, World

Reader = Callable[[], object]
ELASTIC = "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{','.join([f'*{old}'] * 9)}]}}\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def targets(path: Path) -> dict[str, dict[str, Any]]:
    """Nodes that do harm when Hydra's ``instantiate``, or a looser allow-list, makes them."""
    canary = str(path)
    touch = f"touch {canary}"
    decode = "${oc.decode:'{_target_: os.mkdir, path: " + canary + "}'}"
    program = {"entrypoint": "touch", "args": [canary], "env": {}, "stdout": None, "stderr": None, "local_rank_id": 0}
    return {
        "os.system": {"_target_": "os.system", "command": touch},
        "builtins.eval": {"_target_": "builtins.eval", "_args_": [f"open({canary!r}, 'w')"]},
        "subprocess.Popen": {"_target_": "subprocess.Popen", "args": ["touch", canary]},
        "pathlib.Path.touch": {"_target_": "pathlib.Path.touch", "self": canary},
        "os by way of torch": {"_target_": "torch.os.system", "command": touch},
        "subprocess by way of this package": {
            "_target_": "arith_erd.system.machine.subprocess.run",
            "args": ["touch", canary],
        },
        "a class of torch that starts programs": {"_target_": ELASTIC, **program},
        "a class of torch that loads libraries": {
            "_target_": "torch.cuda.memory.CUDAPluggableAllocator",
            "path_to_so_file": canary,
            "alloc_fn_name": "a",
            "free_fn_name": "b",
        },
        "a class of torch that writes files": {"_target_": "torch.PyTorchFileWriter", "_args_": [canary]},
        "a class of torch that shares files": {"_target_": "torch.distributed.FileStore", "_args_": [canary, 1]},
        "a class of torch that reads packages": {"_target_": "torch.package.PackageExporter", "f": canary},
        "torch.hub.load": {"_target_": "torch.hub.load", "repo_or_dir": "evil/evil", "model": "evil"},
        "torch.load": {"_target_": "torch.load", "f": canary, "weights_only": False},
        "torch.utils.cpp_extension": {
            "_target_": "torch.utils.cpp_extension.load_inline",
            "name": "x",
            "cpp_sources": "",
        },
        "a logger of Lightning": {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": canary},
        "Lightning's command line": {"_target_": "lightning.pytorch.cli.LightningCLI"},
        "nested in an argument": {"_target_": "arith_erd.tasks.Add", "bits": {"_target_": "os.mkdir", "path": canary}},
        "nested in lists": {"_target_": "arith_erd.tasks.Add", "bits": [[{"_target_": "os.mkdir", "path": canary}]]},
        "decoded from text": {"_target_": "arith_erd.tasks.Add", "bits": decode},
        "created from text": {"_target_": "arith_erd.tasks.Add", "bits": decode.replace("decode", "create")},
        "positional arguments": {"_target_": "arith_erd.tasks.Add", "_args_": [3]},
        "a deferred call": {"_target_": "arith_erd.tasks.Add", "_partial_": True},
        "a resolver of the environment": {"_target_": "arith_erd.tasks.Add", "prompt_order": "${oc.env:SECRET}"},
        "a class of another kind": {"_target_": "arith_erd.splits.RandomSplit"},
        "a target that is a list": {"_target_": ["os.system"], "command": touch},
        "no target": {"bits": 3},
    }


SAYS = {
    "decoded from text": "task.bits=$",
    "created from text": "task.bits=$",
    "positional arguments": "unexpected keyword",
    "a deferred call": "unexpected keyword",
    "a resolver of the environment": "task.prompt_order=${oc.env:SECRET}: expected",
}
REST = "seed: 0, split: {}, model: {}, data: {}, trainer: {}, ablation: {}"
FILES = {  # config.yaml -> what is said of it
    "aliases that stand for billions": (BOMB, "no run directory"),
    "merges that stand for billions": (MERGES, "no run directory"),
    "an alias of itself": ("task: &task [*task]\n", "no run directory"),
    "a Python object": ("task: !!python/object/apply:os.mkdir [CANARY]\n", "no run directory"),
    "a Python name": ("task: !!python/name:os.system\n", "no run directory"),
    "brackets without end": ("task: " + "[" * 100_000, "no run directory"),
    "braces, closed again": ("task: " + "{a: " * 3000 + "1" + "}" * 3000, "no run directory"),
    "an empty integer": ('seed: !!int ""\n', "no run directory"),
    "no truth value": ("seed: !!bool perhaps\n", "no run directory"),
    "no day": ("seed: 2026-99-99\n", "no run directory"),
    "an integer of 5000 digits": (f"seed: {'9' * 5000}\n", "no run directory"),
    "a megabyte": ("# " + "x" * 2**20, "no run directory"),
    "bytes that are no text": (b"seed: \xff\xfe\x00", "no run directory"),
    "nothing": ("", "expected a mapping"),
    "a list": ("- seed\n", "expected a mapping"),
    "keys that are numbers": ("{0: 1, 1: 2}", "config.yaml: 0: no such key"),
    "groups that are text": (f"{{task: add, {REST}}}", "task=add: expected a group"),
    "a group that is empty": (f"{{task: {{}}, {REST}}}", "task._target_=None: expected a class"),
    "groups that are missing": ("{seed: 0, task: {}, split: {}, model: {}}", "data: missing"),
}
VALUES: dict[str, tuple[str, Any, str]] = {  # key, value in config.yaml -> what is said of it
    "a gigabyte of bits": ("task.bits", 10**9, "task.bits=1000000000: expected an integer from 2 to 9"),
    "a billion channels": ("model.net.d_model", 10**9, "model.net.d_model=1000000000: expected at most"),
    "a billion layers": ("model.net.num_layers", 10**9, "model.net.num_layers=1000000000: expected at most"),
    "channels beyond the weights": ("model.net.d_model", 32, "weights do not fit"),
    "a trillion seeds": ("seed", "0-999999999999", "seed=0-999999999999: expected"),
    "two billion seeds": ("seed", "0-2000000000", "at most 4096 seeds"),
    "seeds that are a path": ("seed", "../../etc/passwd", "seed=../../etc/passwd: expected"),
    "a dropout that is no number": ("model.net.dropout", float("nan"), "model.net.dropout=nan: expected"),
    "a name that climbs": ("task.name", "../../x", "task.name=../../x: expected a name"),
    "a name that is a script": ("split.name", "<script>alert(1)</script>", "expected a name"),
    "a name with a zero": ("model.name", "a\0b", "model.name=a\\x00b: expected text without control characters"),
    "a name with a new line": ("ablation.name", "x\nerror: all is lost", "expected text without control characters"),
    "a name that rewrites the terminal": ("task.name", "\x1b]0;owned\x07", "task.name=\\x1b]0;owned\\x07: expected"),
    "a name of a megabyte's length": ("task.name", "x" * 200_000, "expected a name"),
}


def cases() -> Iterator[Case]:
    for name in targets(Path("canary")):

        def attack(world: World, name: str = name) -> Reader:
            node = {"name": "add", **targets(world.canary)[name]}
            world.configure("task", node)
            return world.load

        yield Case(f"target: {name}", attack, SAYS.get(name, "_target_="))
    for place in ("split", "model.net"):

        def attack(world: World, place: str = place) -> Reader:
            world.configure(place, {"name": "x", **targets(world.canary)["a class of torch that starts programs"]})
            return world.load

        yield Case(f"target: in {place}", attack, f"_target_={ELASTIC}")
    for name, (text, says) in FILES.items():

        def attack(world: World, text: str | bytes = text) -> Reader:
            data = text if isinstance(text, bytes) else text.replace("CANARY", str(world.canary)).encode()
            world.file("config.yaml").write_bytes(data)
            return world.load

        yield Case(f"config.yaml: {name}", attack, says)
    for name, (key, value, says) in VALUES.items():

        def attack(world: World, key: str = key, value: Any = value) -> Reader:
            world.configure(key, value)
            return world.load

        yield Case(f"value: {name}", attack, says)
    for typed, says in (
        ("task.name=../../x", "task.name=../../x: expected a name"),
        ("ablation.name=..", "ablation.name=..: expected a name"),
        ("task=../model/transformer", "task=../model/transformer: expected one of the files in conf/task/"),
        ("experiment=../ablation/none", "experiment=../ablation/none: expected one of the files"),
        ("runs_dir='a\0b'", "runs_dir="),
        ("data.batch_size=999999999999999999999", "data.batch_size="),
    ):
        yield Case(f"typed: {typed!r}", lambda world, typed=typed: lambda: compose("train", [typed]), says)
    yield Case("typed: a probe that climbs", lambda world: lambda: compose("probe", ["probe.name=../x"]), "probe.name=")
    yield Case(
        "a name that climbs, not checked before",
        lambda world: lambda: run_name(world.data | {"task": {"name": "../../x"}}),
        "task.name=../../x",
    )
