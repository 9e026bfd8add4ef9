"""Causes 3 and 4: too large is refused before anything is allocated, and no input is an internal error."""

import json
import os
import re
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import torch
import yaml

from arith_erd.config.compose import compose
from arith_erd.interp.loading import load_pretrained, load_run
from arith_erd.probes.__main__ import main as probe_main
from arith_erd.probes.run_probe import probe
from arith_erd.report.__main__ import main as report_main
from arith_erd.runs import leaves
from arith_erd.runs.__main__ import main as runs_main
from arith_erd.tasks import Add
from arith_erd.training.__main__ import main as train_main

from .damage import FILES, paths, spoil
from .world import ROOT, WORDS, Attack, Case, World, process, put, typed

# Cause 3: every attack is allowed a gigabyte

LARGE = """model.net.d_model=4096 model.net.num_layers=400
model.net.d_model=4096 model.net.num_layers=8 seed=0-9
model=nanogpt model.net.d_model=4096 model.net.num_layers=400 model.net.num_heads=1
model.net.d_model=4096 model.net.num_layers=300 trainer.precision=64-true pack.max_replicas=1 seed=0-7
task=mul task.bits=9 data.batch_size=262144 model.net.d_model=1024 seed=0-4095 pack.max_replicas=4096
seed=0-99999999999
task=mod_add task.modulus=1000000007""".splitlines()


def typed_sizes(world: World, n: int, random: Random) -> Case:
    """Sizes that no machine holds, typed alone, as a sweep, and as one job of it."""
    text, how = LARGE[n % len(LARGE)], ("", "-m", "-m item=0")[n // len(LARGE) % 3]
    yield Attack(f"{how} {text}", "", lines=3)
    world.type(*how.split(), "trainer.accelerator=cpu", "trainer.compile=false", *text.split())


def others_sizes(world: World, n: int, random: Random) -> Case:
    """The same in a run's ``config.yaml``."""
    key = ("task.bits", "model.net.d_model", "model.net.num_layers", "model.net.num_heads", "seed")[n % 5]
    value = (4095, 4096, 10**9, 10**400, "0-999999999999", list(range(5000)))[n % 6]
    world.configure(key, value)
    yield Attack(f"{key}={str(value)[:20]}", "")
    world.load()


def another_size(world: World, n: int, random: Random) -> Case:
    """Files of another size: a terabyte that takes no room, a tensor of one number, a header without end."""
    name, asked = FILES[n % 5], ("load", "report", "resume")[n % 3]
    world.interrupted()
    if name == "last.ckpt":
        tensors = {"pack.stacked.norm.weight": torch.zeros(1).expand(2, 10**12)}
        torch.save({**world.checkpoint, "state_dict": tensors}, world.run.checkpoint)
    else:
        texts = (b"", struct.pack("<Q", 2**62), struct.pack("<Q", 90_000) + b"[" * 90_000)
        world.file(name).write_bytes(texts[n // 15 % 3])
        os.truncate(world.file(name), random.choice((7, 2**31, 2**40)) if name.startswith("weights") else 7)
    yield Attack(f"{name}, {asked}")
    getattr(world, asked)()


# Cause 4

VALUES = r"""null true -1 0 1.5 1e300 inf nan [] [1] {a:1} '' text ../x é ${nowhere} ${seed} ??? -0.0
0x1F [[1],[2]] 1,2 '1,2' {_target_:os.system} '\n' 1e-400 ${oc.decode:'[1'}"""
ODD = ("9" * 400, "x" * 20_000, "'a\0b'", "'\u202e'", "a b", "")
GROUPS = ("task", "split", "model", "ablation", "logger", "optimizer", "scheduler", "loss", "hydra.run.dir", "trust")


def typed_value(world: World, n: int, random: Random) -> Case:
    """Any value for any key, typed: a job, or a line that says what is wrong."""
    name = ("train", "train", "probe")[n % 3]
    keys = [key for key, _ in leaves(compose(name).resolved)]
    key, value = random.choice((*keys, *GROUPS)), random.choice((*VALUES.split(), *ODD))
    word = f"{random.choice(('', '', '', '+', '++', '~'))}{key}={value}"
    yield Attack(word)
    compose(name, [word])


TRAIN = """task=null|~seed|~data|'|--config-dir=nowhere|--config-name=x|hydra.run.dir=victim|-m seed=glob(*)
-m hydra.sweep.dir=victim/x seed=0,1|runs_dir=/proc/nowhere|seed=x -m|-m task=add,add3 item=7|hydra/launcher=joblib
hydra/launcher=submitit_slurm|-m experiment=fig1,fig2|fail_fast=1 -m|optimizer={lr:1}|loss={a:1}|runs_dir=victim"""
PROBE = """probe=dataste|probe=dataset run=runs/none|run='['|probe=dataset out=victim/x|probe=errors run=here|probe=card
checkpoint=/dev/zero task=add probe=errors|probe=errors checkpoint=victim task=add|probe=errors run=..|probe=errors
probe=errors run=/proc/self|probe=errors reference=magic|probe=errors run=../runs/* epoch=3|probe=errors run=x seed=9"""
PROGRAMS = {
    "train": (train_main, TRAIN),
    "probe": (probe_main, PROBE),
    "runs": (runs_main, "nowhere|victim|'['|--sort=x ."),
    "report": (report_main, "nowhere|victim|../runs --out=victim"),
}
COMMANDS = [(main, name, text) for name, (main, texts) in PROGRAMS.items() for text in re.split(r"[|\n]", texts)]


def command(world: World, n: int, random: Random) -> Case:
    """A whole command line of a program."""
    main, name, text = COMMANDS[n % len(COMMANDS)]
    yield Attack(f"{name} {text}", "", lines=3)
    if name in ("train", "probe"):
        tiny = [*WORDS[:-1], "trainer.max_epochs=1"] if name == "train" else []
        world.type(*text.split(), *tiny, main=main)  # options first: argparse takes no positional words after them
    else:
        typed(main, *text.split())


CALLS: tuple[Callable[[World], object], ...] = (
    lambda world: load_run(world.run.path, seed=0.5),
    lambda world: load_run(world.run.path, seed=0.0),
    lambda world: load_run(world.run.path, seed=True),
    lambda world: load_run(world.run.path, epoch="all"),
    lambda world: load_run(world.victim),
    lambda world: load_run("a\0b"),
    lambda world: load_pretrained("add-transformer", seed=99),
    lambda world: probe("errors"),
    lambda world: Add(3.5),
)


def call(world: World, n: int, random: Random) -> Case:
    """The public functions with arguments that they do not take."""
    yield Attack(f"number {n % len(CALLS)}", "")
    CALLS[n % len(CALLS)](world)


TEXTS = ("add", "../x", "${oc.env:SECRET}", "${task}", "arith_erd.tasks.Add", "0-4", "\0", "", "<script>", "\x1b[2J")
LEAVES = (None, True, 0, -1, 10**40, 10**400, 0.5, -0.0, float("nan"), float("inf"), *TEXTS, "\ud800", "\u202e")


def anything(random: Random, depth: int = 3) -> Any:
    """A tree of values that nobody expects."""
    kind = random.random() if depth else 0
    if kind < 0.6:
        return random.choice(LEAVES)
    items = [anything(random, depth - 1) for _ in range(random.randrange(4))]
    return items if kind < 0.8 else {random.choice((*TEXTS, 3)): item for item in items}


def any_value(world: World, n: int, random: Random) -> Case:
    """Any value at any place of a run's configuration, summary or checkpoint, read by whoever reads it."""
    name, value = ("config.yaml", "summary.json", "last.ckpt")[n % 3], anything(random)
    if name == "last.ckpt":
        world.interrupted()
    tree = {"config.yaml": world.config, "summary.json": world.summary, "last.ckpt": world.checkpoint}[name]
    put(tree, random.choice([*paths(tree)]), value)
    if name == "last.ckpt":
        torch.save(tree, world.run.checkpoint)
    else:
        text = json.dumps(tree, default=str) if name == "summary.json" else yaml.dump(tree, allow_unicode=True)
        world.file(name).write_text(text, errors="surrogatepass")
    asked = random.choice(("load", "report", "resume")) if name != "last.ckpt" else "resume"
    yield Attack(f"{asked}, {name} {value}")
    getattr(world, asked)()


def any_file(world: World, n: int, random: Random) -> Case:
    """Something else in the place of a file, or its bytes changed, met by whoever reads or writes it."""
    more = ("error.txt", "curves.png", ".attempt", "weights", "probes", "probes/errors", "probes/errors/rows.csv")
    name, asked = random.choice((*FILES, *more)), ("load", "resume_whole", "probe", "report")[n % 4]
    if asked == "resume_whole":
        world.interrupted()
    path = world.file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        spoil(path, n, random)
    yield Attack(f"{name}, {asked}")
    getattr(world, asked)()


LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}
NOWHERE = dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), "/proc/nowhere")
LIMITS = r"test -f matplotlibrc|ulimit -n 12|ulimit -v 800000|ulimit -f 0|exec >&-|exec >/dev/full"
SURROUNDINGS = [*((limit, {}) for limit in LIMITS.split("|")), (":", LATIN), (":", NOWHERE)]
IN_PROCESSES = (
    ("-P", "-m", "arith_erd.report", "../runs", "--out=../report"),
    ("-P", "-m", "arith_erd.runs", "../runs"),
    (str(ROOT / "train.py"), *WORDS, "runs_dir=../runs"),
)


def surroundings(world: World, n: int, random: Random) -> Case:
    """Another locale, settings of other programs, limits of the system: in processes of their own."""
    (limits, environment), words = SURROUNDINGS[n % 8], IN_PROCESSES[n % 3]
    if "matplotlibrc" in limits:
        (world.folder / "here" / "matplotlibrc").write_bytes(b"axes.titlesize: \xff")
    yield Attack(f"{limits} {environment} {words[2]}")
    process(*words, limits=limits, **environment)


TOO_LARGE = [typed_sizes, others_sizes, another_size]
INPUTS = [typed_value, typed_value, typed_value, command, call, any_value, any_value, any_file]
