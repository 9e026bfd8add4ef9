"""Hostile configurations: what is typed, and ``config.yaml`` files of runs from anywhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

from arith_erd.probes.__main__ import main as probe_main
from arith_erd.training.__main__ import main as train_main

from .world import Attack, Cause, Program, World, pick, put, typed

# Values that no key of a kind takes. The message starts with KEY=VALUE.
COUNT = ("0", "-1", "1.5", "12.0", "null", "true", "many", "inf", "nan", "[5]", "''", "1e3", "9" * 400)
NUMBER = ("0", "-1", "1e300", "null", "true", "fast", "inf", "nan", "[0.001]", "''", "9" * 400)
FRACTION = ("-0.1", "1e300", "1.0001", "95", "true", "soon", "inf", "nan", "95%", "[0.5]")
SWITCH = ("null", "1", "0", "maybe", "yes_please", "[true]", "''")
WORD = ("null", "1", "Reverse", "''", "[plain]", "true")
FOLDER = ("''", "null", "3", "true", "[runs]")
SEEDS = ("4-0", "-1", "[0,0]", "[]", "1.5", "null", "'0-4,2'", "''", "true", "zero", "0-", "-", "0-4-7", "[a]", "inf")
BETAS = ("null", "0.9", "[0.9]", "[0.9,1]", "[0.9,high]", "[0.9,-0.1]", "[0.9,0.98,0.99]", "[0.9,nan]", "[true,0.98]")
NET, ADAM = "model.net", "model.optimizer"
VALUES = {
    **dict.fromkeys(("data.batch_size", "trainer.max_epochs", "checkpoint.every_n_epochs"), COUNT),
    "pack.max_replicas": COUNT[:-1],
    **dict.fromkeys((f"{NET}.d_model", f"{NET}.num_heads", f"{NET}.num_layers"), COUNT),
    "task.bits": (*COUNT, "1", "10"),
    "split.seed": COUNT[1:-1],
    **dict.fromkeys((f"{ADAM}.lr", f"{ADAM}.eps"), NUMBER),
    f"{ADAM}.weight_decay": NUMBER[1:],
    "model.gradient_clip": tuple(value for value in NUMBER if value != "null"),
    "trainer.stop_at": FRACTION,
    "split.fraction": (*FRACTION, "0", "1", "null"),
    f"{NET}.dropout": (*FRACTION, "1", "null"),
    **dict.fromkeys((f"{NET}.attention", f"{NET}.feed_forward", f"{NET}.positional_encoding", "fail_fast"), SWITCH),
    **dict.fromkeys((f"{NET}.encoder", "trainer.cuda_graphs"), SWITCH),
    **dict.fromkeys(("trainer.compile", "checkpoint.keep_last"), SWITCH),
    "model.loss.label_smoothing": (*FRACTION, "1", "null"),
    **dict.fromkeys(("task.prompt_order", "task.completion_order", "trainer.precision", "trainer.accelerator"), WORD),
    "runs_dir": FOLDER,
    "seed": (*SEEDS, "2147483648", "0-4096", "[0,-1]", "[0.5]"),
    f"{ADAM}.betas": BETAS,
    "checkpoint.keep": ("every:0", "every:x", "some", "null", "1", "[all]"),
}

# Anything else: what is typed, and the key that the message has to name.
OTHERS = (
    ("task=subtract", "task"),
    ("task=null", "task"),
    ("task=Add", "task"),
    ("split=vs_x", "split"),
    ("model=gpt5", "model"),
    ("ablation=no_brain", "ablation"),
    ("logger=mlflow", "logger"),
    ("experiment=fig99", "experiment"),
    ("model=nanogpt ablation=squeezed_encoder", "ablation"),
    ("model=nanogpt model.net.encoder=false", "model.net.encoder"),
    ("model.net.d_model=36", "model.net.d_model"),
    ("model.net.num_heads=3", "model.net.d_model"),
    ("ablation=d_model_32 model.net.num_heads=5", "model.net.d_model"),
    ("task=random_output task.seed=-1", "task.seed"),
    ("task=random_output task.seed=1.5", "task.seed"),
    ("task=random_output task.seed=null", "task.seed"),
    ("task.seed=0", "task.seed"),
    ("split=vs_t split.fraction=0.5", "split.fraction"),
    ("optimizer=sgdd", "optimizer"),
    ("optimizer=null", "optimizer"),
    ("optimizer=sgd model.optimizer.betas=[0,0]", "model.optimizer.betas"),
    ("scheduler=cosine", "scheduler"),
    ("shceduler=step", "did you mean scheduler"),
    ("scheduler=step model.scheduler.interval=day", "model.scheduler.interval"),
    ("scheduler=step model.scheduler.gama=1", "model.scheduler.gamma"),
    ("model.scheduler=3", "model.scheduler"),
    ("model.scheduler._target_=torch.optim.lr_scheduler.StepLR", "model.scheduler._target_"),
    ("loss=mse", "loss"),
    ("loss=cross_entropy_and_value model.loss.weight=0", "model.loss.weight"),
    ("loss=cross_entropy_and_value model.loss.site=3", "model.loss.site"),
    ("loss=cross_entropy_and_value model.loss.target=''", "model.loss.target"),
    ("overwrite=1", "overwrite"),
    ("trust=3", "trust"),
    ("trust=[a/b]", "trust"),
    ("task._target_=my_package.tasks.Gcd", "trust=[my_package]"),
    ("logger=wandb logger.mode=on", "logger.mode"),
    ("logger=wandb logger.mode=null", "logger.mode"),
    ("logger=wandb logger.timeout=0", "logger.timeout"),
    ("logger=wandb logger.timeout=soon", "logger.timeout"),
    ("logger=wandb logger.timeout=inf", "logger.timeout"),
    ("logger=wandb logger.artifacts=maybe", "logger.artifacts"),
    ("logger.mode=online", "logger.mode"),
    ("trainer.epochs=3", "trainer.epochs"),
    ("lr=1", "lr"),
    ("+model.net.dropuot=0", "model.net.dropuot"),
    ("optimizer=sgd model.optimizer.momentum=5", "model.optimizer.momentum"),
    ("+seeds=3", "seeds"),
    ("epochs.sub=3", "epochs.sub"),
    ("~seed", "seed"),
    ("~task.bits", "task.bits"),
    ("~trainer.stop_at", "trainer.stop_at"),
    ("~data", "data"),
    ("trainer.max_epochs=${epochs.sub}", "trainer.max_epochs"),
    ("trainer.max_epochs=${nowhere}", "trainer.max_epochs"),
    ("trainer.max_epochs=${trainer.max_epochs}", "trainer.max_epochs"),
    ("seed=${oc.env:NO_SUCH_VARIABLE}", "seed"),
    ("task._target_=os.system", "_target_"),
    ("split._target_=arith_erd.splits.Nothing", "_target_"),
    ("trainer.max_epochs=???", "trainer.max_epochs"),
    ("optimizer={lr:1}", "optimizer={...}"),
    ("loss={a:1}", "loss={...}"),
    ("scheduler={_target_:x.Y}", "scheduler={...}"),
    ("data={x:1}", "data.batch_size"),
    ("seed={a:1}", "seed"),
)


ELASTIC = "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"


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


REST = "seed: 0, split: {}, model: {}, data: {}, trainer: {}, ablation: {}"
FILES = {  # config.yaml -> what is said of it
    "a Python object": ("task: !!python/object/apply:os.mkdir [CANARY]\n", "not a run directory"),
    "a Python name": ("task: !!python/name:os.system\n", "not a run directory"),
    "brackets without end": ("task: " + "[" * 100_000, "not a run directory"),
    "braces, closed again": ("task: " + "{a: " * 3000 + "1" + "}" * 3000, "not a run directory"),
    "an empty integer": ('seed: !!int ""\n', "not a run directory"),
    "no truth value": ("seed: !!bool perhaps\n", "not a run directory"),
    "no day": ("seed: 2026-99-99\n", "not a run directory"),
    "an integer of 5000 digits": (f"seed: {'9' * 5000}\n", "not a run directory"),
    "a megabyte": ("# " + "x" * 2**20, "not a run directory"),
    "bytes that are no text": (b"seed: \xff\xfe\x00", "not a run directory"),
    "nothing": ("", "expected a mapping"),
    "a list": ("- seed\n", "expected a mapping"),
    "keys that are numbers": ("{0: 1, 1: 2}", "config.yaml: 0: no such key"),
    "groups that are text": (f"{{task: add, {REST}}}", "task=add: expected a group"),
    "a group that is empty": (f"{{task: {{}}, {REST}}}", "task._target_=None: expected a class"),
    "groups that are missing": ("{seed: 0, task: {}, split: {}, model: {}}", "task._target_=None: expected a class"),
}
FOREIGN: dict[str, tuple[str, Any, str]] = {  # key, value in config.yaml -> what is said of it
    "a gigabyte of bits": ("task.bits", 10**9, "task.bits=1000000000: expected an integer from 2 to 9"),
    "a billion channels": (
        "model.net.d_model",
        10**9,
        "model.net.d_model=1000000000: expected an integer of at least 1 and at most",
    ),
    "a billion layers": (
        "model.net.num_layers",
        10**9,
        "model.net.num_layers=1000000000: expected an integer of at least 1 and at most",
    ),
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


MORE = (
    ("task.name=../../x", "task.name=../../x: expected a name"),
    ("ablation.name=..", "ablation.name=..: expected a name"),
    ("task=../model/transformer", "task=../model/transformer: expected one of the files in conf/task/"),
    ("experiment=../ablation/none", "experiment=../ablation/none: expected one of the files"),
    ("runs_dir='a\0b'", "runs_dir="),
    ("runs_dir=/proc/nowhere", "runs_dir=/proc/nowhere: cannot be written"),
    (f"runs_dir={'x' * 300}", "name too long"),
    (f"task.prompt_order={'x' * 20_000}", "task.prompt_order=xxx"),
    (f"{'x' * 20_000}=1", "xxx"),
    ("hydra.run.dir=victim", "victim: File exists"),
    ("trainer.max_epochs=${oc.decode:'[1'}", "trainer.max_epochs"),
    ("--config-dir=nowhere", "nowhere"),
    ("'", "'"),
)


ASKED = (
    *("probe=dataste", "probe.name=../x", "probe=dataset run=runs/none", "run='['", "probe=dataset out=victim/x"),
    *("checkpoint=/dev/zero task=add probe=errors", "probe=errors checkpoint=victim task=add", "probe=errors run=here"),
    *("probe=errors run=/proc/self", "probe=errors reference=magic", f"probe=errors run={'x' * 300}"),
)


def malformed() -> Iterator[tuple[list[str], str]]:
    """Every typing mistake: overrides for ``train.py``, and the key to be named."""
    yield from (([f"{key}={value}"], key) for key, values in VALUES.items() for value in values)
    yield from ((words.split(), key) for words, key in OTHERS)


MALFORMED = {" ".join(words): (words, key) for words, key in malformed()}


def typing_mistake(n: int, random: Random) -> Attack:
    """Alone, or as the second job of a sweep, whose first one must not start then."""
    name, (words, key) = random.choice(list(MALFORMED.items()))
    if n % 3 and "," not in name and "~" not in name and key not in ("runs_dir", "experiment"):
        words = ["-m", "ablation=none,one_head", *words]
    return Attack(name, lambda world: _train(world, *words), key, lines=3)


def typed_path(n: int, random: Random) -> Attack:
    """What leads elsewhere: names that climb, folders that are files, interpolations that lead nowhere."""
    words, says = MORE[n % len(MORE)]

    def prepare(world: World) -> Program:
        (world.folder / "here" / "victim").write_text("precious")
        return _train(world, *words.split(" "))

    return Attack(words, prepare, says)


def own_ablation(n: int, random: Random) -> Attack:
    """An ablation of somebody's own, in a folder that ``--config-dir`` names."""
    key, value = random.choice(
        [("model.net.nothing", "1"), ("nothing", "1"), ("model.net.d_model", "0"), ("seed", "x")]
    )

    def prepare(world: World) -> Program:
        folder = world.folder / "here" / "own" / "ablation"
        folder.mkdir(parents=True)
        text: Any = value
        for part in reversed(key.split(".")):
            text = {part: text}
        (folder / "mine.yaml").write_text(f"# @package _global_\n{json.dumps(text | {'ablation': {'name': 'mine'}})}\n")
        return _train(world, f"--config-dir={folder.parent}", "ablation=mine")

    return Attack(f"{key}={value}", prepare, key)


HYDRA = (  # what an experiment of somebody else says, and the key to be named
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
    ('hydra: {overrides: {task: ["trust=[json]"]}}', "hydra.overrides"),
    ("defaults: [/task@hydra.callbacks: add]", "hydra.callbacks"),
    ("trust: [json]", "trust"),
    ("hydra: CANARY", "sets hydra"),
)


def hydra_node(n: int, random: Random) -> Attack:
    """An experiment from anywhere that configures Hydra itself, alone or as a sweep."""
    text, key = HYDRA[n % len(HYDRA)]

    def prepare(world: World) -> Program:
        folder = world.folder / "here" / "own" / "experiment"
        folder.mkdir(parents=True)
        (folder / "theirs.yaml").write_text(f"# @package _global_\n{text.replace('CANARY', str(world.canary))}\n")
        return _train(world, *random.choice(([], ["-m"])), f"--config-dir={folder.parent}", "experiment=theirs")

    return Attack(text, prepare, key, lines=2)


def probe_mistake(n: int, random: Random) -> Attack:
    text = ASKED[n % len(ASKED)]

    def prepare(world: World) -> Program:
        (world.folder / "here" / "victim").write_text("precious")
        return typed(probe_main, *text.split(), f"runs_dir={world.folder / 'runs'}")

    return Attack(text, prepare, "")


def foreign_class(n: int, random: Random) -> Attack:
    """A ``_target_`` in any group of a run's ``config.yaml``."""
    name, _ = pick(targets(Path("canary")), n)
    place = random.choice(("task", "split", "model.net", "model.optimizer", "logger", "data"))

    def prepare(world: World) -> Program:
        world.configure(place, {"name": "x", **targets(world.canary)[name]})
        return random.choice((world.load, world.collect))

    return Attack(f"{name} in {place}", prepare)


def foreign_text(n: int, random: Random) -> Attack:
    name, (text, says) = pick(FILES, n)

    def prepare(world: World) -> Program:
        data = text if isinstance(text, bytes) else text.replace("CANARY", str(world.canary)).encode()
        world.file("config.yaml").write_bytes(data)
        return world.load

    return Attack(name, prepare, says)


def foreign_value(n: int, random: Random) -> Attack:
    name, (key, value, says) = pick(FOREIGN, n)

    def prepare(world: World) -> Program:
        world.configure(key, value)
        return world.load

    return Attack(name, prepare, says)


WORDS = ("add", "../x", "${oc.env:SECRET}", "${task}", "_target_", "arith_erd.tasks.Add", "os.system", "0-4", "\0", "")
LEAVES = (None, True, 0, -1, 10**40, 10**400, 0.5, -0.0, float("nan"), float("inf"), *WORDS, "\ud800", "\u202e")


def anything(random: Random, depth: int = 3) -> Any:
    """A tree of values that nobody expects."""
    kind = random.random() if depth else 0
    if kind < 0.6:
        return random.choice(LEAVES)
    items = [anything(random, depth - 1) for _ in range(random.randrange(4))]
    return items if kind < 0.8 else {random.choice((*WORDS, 3)): item for item in items}


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a tree of dictionaries and lists."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


def any_value(n: int, random: Random) -> Attack:
    """Any value at any place of ``config.yaml`` or ``summary.json``, read by whoever reads it."""
    name, value = ("config.yaml", "summary.json")[n % 2], anything(random)

    def prepare(world: World) -> Program:
        tree = world.config if name == "config.yaml" else world.summary
        put(tree, random.choice([*paths(tree)]), value)
        text = json.dumps(tree, default=str) if name == "summary.json" else yaml.dump(tree, allow_unicode=True)
        world.file(name).write_text(text, errors="surrogatepass")
        return random.choice((world.load, world.collect, world.resume))

    return Attack(f"{name} {value}", prepare)


def _train(world: World, *words: str) -> Program:
    runs = [] if any(word.startswith("runs_dir") for word in words) else [f"runs_dir={world.folder / 'runs'}"]
    return typed(train_main, *words, *runs)


CAUSES: dict[str, Cause] = {
    cause.__name__: cause
    for cause in (
        typing_mistake,
        typed_path,
        own_ablation,
        hydra_node,
        probe_mistake,
        foreign_class,
        foreign_text,
        foreign_value,
    )
} | {"any_value": any_value}
