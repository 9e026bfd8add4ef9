"""Causes 5 and 6: too large is refused before anything is allocated, and no input is an internal error."""

import json
import resource
import struct
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import torch
import yaml
from safetensors.torch import save

from arith_erd.config.compose import compose
from arith_erd.config.read import leaves
from arith_erd.errors import UserError
from arith_erd.interp.loading import load_checkpoint, load_pretrained, load_run
from arith_erd.probes.__main__ import main as probe_main
from arith_erd.probes.ask import probe
from arith_erd.report.__main__ import main as report_main
from arith_erd.runs.__main__ import main as runs_main
from arith_erd.tasks import Add
from arith_erd.training.__main__ import main as train_main

from .damage import FILES, spoil
from .world import ROOT, WORDS, Attack, Program, World, process, put, typed

# Cause 5

NET = "model.net"
LARGE = (
    *(f"{NET}.d_model=4096 {NET}.num_layers=4096", f"{NET}.d_model=4096 {NET}.num_layers=8 seed=0-9"),
    *("seed=0-4095 task.bits=7", f"model=nanogpt {NET}.d_model=4096 {NET}.num_layers=4096 {NET}.num_heads=1"),
    *("task.bits=9 data.batch_size=2147483647", "task=mul task.bits=9 data.batch_size=262144 seed=0-4095"),
    *(f"{NET}.num_heads=4096 {NET}.d_model=4096 {NET}.num_layers=9 pack.max_replicas=1 seed=0-7",),
    *(f"{NET}.d_model=4096 {NET}.num_layers=300 trainer.precision=64-true", "seed=0-4096", "seed=0-99999999999"),
    *("trainer.max_epochs=2147483648", "checkpoint.keep=every:9999999999", "task.bits=1000000000"),
    *("task=add3 task.bits=9 data.batch_size=99999999", "task=mod_add task.modulus=1000000007"),
)


def typed_sizes(n: int, random: Random) -> Attack:
    """Sizes that no machine holds, typed: refused within a gigabyte."""
    text = LARGE[n % len(LARGE)]
    sweep = ["-m"] if n // len(LARGE) % 2 else []

    def prepare(world: World) -> Program:
        words = ["trainer.accelerator=cpu", "trainer.compile=false", *text.split()]
        return within_a_gigabyte(world.typed(*sweep, *words))

    return Attack(text, prepare, "", lines=3)


def within_a_gigabyte(program: Program) -> Program:
    def run() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            program()
        finally:
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown < 2**20, f"it took {grown / 2**20:.1f} GiB"

    return run


def many_epochs(n: int, random: Random) -> Attack:
    """No list is as long as a run may be: all of these are composed, and the kept epochs counted."""
    text = f"trainer.max_epochs=2147483647 checkpoint.keep={random.choice(('all', 'log', 'every:1', 'every:7'))}"

    def run() -> None:
        job = compose("train", text.split())
        assert len(job.checkpoint.keep.until(job.trainer.max_epochs)) > 50
        assert 2**30 not in job.checkpoint.keep or job.checkpoint.keep.rule != "log"

    return Attack(text, lambda world: within_a_gigabyte(run))


OTHERS_SIZES = (("task.bits", 10**9), (f"{NET}.d_model", 10**9), (f"{NET}.d_model", 4096), (f"{NET}.num_layers", 4096),
                ("seed", "0-999999999999"), ("seed", "0-2000000000"), ("seed", list(range(5000))),
                ("data.batch_size", 10**30), ("trainer.max_epochs", 10**400), ("split.fraction", 1e308))  # fmt: skip


def others_sizes(n: int, random: Random) -> Attack:
    """The same in a run's ``config.yaml``."""
    key, value = OTHERS_SIZES[n % len(OTHERS_SIZES)]

    def prepare(world: World) -> Program:
        world.configure(key, value)
        return within_a_gigabyte(world.load)

    return Attack(f"{key}={str(value)[:20]}", prepare, "")


def sparse_file(n: int, random: Random) -> Attack:
    """A file of a terabyte that takes no room on the disk."""
    name, read = FILES[n % len(FILES)], ("load", "collect", "resume")[n // len(FILES) % 3]

    def prepare(world: World) -> Program:
        world.interrupted() if name == "last.ckpt" else None
        with world.file(name).open("r+b") as file:
            file.truncate(2**40)
        return within_a_gigabyte(getattr(world, read))

    return Attack(f"{name}, {read}", prepare)


def header(entries: dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file whose header says ``entries``, and says that it is ``length`` bytes long."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


def expanded(*shape: int) -> torch.Tensor:
    """A tensor of any size in four bytes."""
    return torch.zeros(1).expand(shape)


SAFETENSORS: tuple[Callable[[dict[str, torch.Tensor]], bytes], ...] = (
    lambda state: b"",
    lambda state: header({}, length=2**63),
    lambda state: struct.pack("<Q", 90_000) + b"[" * 90_000,
    lambda state: header({"x": entry([2**40], 0, 2**42)}),
    lambda state: header({"x": entry([2**32, 2**32], 0, 0)}),
    lambda state: header({"x": entry([2], 0, 8), "y": entry([2], 4, 12)}, bytes(12)),
    lambda state: save(state | {"evil": torch.ones(1)}),
    lambda state: save(state | {"norm.weight": torch.ones(5, 1)}),
    lambda state: save(state | {"norm.weight": torch.ones(5, dtype=torch.int64)}),
    lambda state: save(state)[:-100],
    lambda state: save(state).replace(b"norm.weight", b"norm.weigh\x00"),
)
CHECKPOINTS: tuple[Any, ...] = (
    {"epoch": 1},
    {"state_dict": {"pack.stacked.norm.weight": "x"}},
    {"state_dict": {"pack.stacked.norm.weight": expanded(2, 10**12)}},
    {"fc.weight": expanded(5, 8 * 10**6)},
    {f"encoder_layers.{i}.fc": torch.ones(1) for i in range(300)},
    {"\x1b[2J\nok": torch.ones(5, 64)},
    torch.ones(3),
    [1, 2],
)


def others_tensors(n: int, random: Random) -> Attack:
    """Weights of shapes, sizes and names that do not fit, as a run's and as ``checkpoint=``."""

    def prepare(world: World) -> Program:
        if n % 2:
            world.run.weights(0).write_bytes(SAFETENSORS[n // 2 % len(SAFETENSORS)](world.state))
            return within_a_gigabyte(world.load)
        content, model = CHECKPOINTS[n // 2 % len(CHECKPOINTS)], world.folder / "model"
        if n // 2 % 3 == 0:
            world.interrupted()
            torch.save(content, world.run.checkpoint)
            return within_a_gigabyte(world.load)
        torch.save(content, model)
        return within_a_gigabyte(lambda: load_checkpoint(model, Add(3)))

    return Attack(f"{n // 2 % len(SAFETENSORS if n % 2 else CHECKPOINTS)}", prepare, "")


# Cause 6

VALUES = ("null", "true", "-1", "0", "1.5", "1e300", "9" * 400, "inf", "nan", "[]", "[1]", "{a:1}", "''", "text", "../x",
          "${nowhere}", "${oc.env:SECRET}", "${seed}", "???", "'a\0b'", "x" * 20_000, "'\u202e'", "[[1],[2]]", "0x1F",
          "{_target_:os.system}", "1,2", "'1,2'", "'\\n'", "1e-400", "${oc.decode:'[1'}", "é", "-0.0")  # fmt: skip


def typed_value(n: int, random: Random) -> Attack:
    """Any value for any key, typed: a job, or a line that says what is wrong."""
    name = ("train", "train", "probe")[n % 3]
    keys = [key for key, _ in leaves(compose(name).resolved)] + ["hydra.job.name", "hydra.run.dir", "overwrite", "trust"]
    group = random.choice(("task", "split", "model", "ablation", "logger", "optimizer", "scheduler", "loss", "figure"))
    key, value = random.choice((*keys, group)), random.choice(VALUES)
    word = f"{random.choice(('', '', '', '+', '++', '~'))}{key}={value}"
    return Attack(word, lambda world: lambda: (compose(name, [word]), None)[1])


WHOLE = ("task=null", "~seed", "~data", "'", "--config-dir=nowhere", "--config-name=x", "--cfg=job --resolve seed=${x}",
         "hydra.run.dir=victim", "-m hydra.sweep.dir=victim/x seed=0,1", "-m seed=glob(*)", "runs_dir=/proc/nowhere",
         "runs_dir=victim", "-m task=add,add3 item=7", "hydra/launcher=joblib", "hydra/launcher=submitit_slurm",
         "-m experiment=fig1,fig2", "model.optimizer.lr=1e300 model.gradient_clip=1e-300", "fail_fast=1 -m", "seed=x -m",
         "model.scheduler={_target_:torch.optim.lr_scheduler.StepLR}", "--multirun=3", "--unknown")  # fmt: skip
ASKED = ("probe=dataste", "probe=dataset run=runs/none", "run='['", "probe=dataset out=victim/x", "probe=errors run=here",
         "checkpoint=/dev/zero task=add probe=errors", "probe=errors checkpoint=victim task=add", "probe=errors run=..",
         "probe=errors run=/proc/self", "probe=errors reference=magic", f"probe=errors run={'x' * 300}",
         "probe=patching probe.pairs=2147483648 reference=erd", "probe=errors epoch=3 run=../runs/*", "probe=card",
         "probe=errors seed=9 reference=erd", "probe=amnesic probe.concepts=[x] reference=erd")  # fmt: skip


def whole_command(n: int, random: Random) -> Attack:
    """A whole command line of ``train.py``, ``probe.py``, ``arith-runs`` or ``arith-report``."""
    more = (("arith-runs", "nowhere"), ("arith-runs", "victim"), ("arith-runs", "'['"), ("arith-runs", "--sort=x ."),
            ("arith-report", "nowhere"), ("arith-report", "victim"), ("arith-report", "../runs --out=victim"))  # fmt: skip
    train, ask = (tuple((name, text) for text in texts) for name, texts in (("train", WHOLE), ("probe", ASKED)))
    program, text = (*train, *ask, *more)[n % (len(WHOLE) + len(ASKED) + len(more))]

    def prepare(world: World) -> Program:
        words = text.split()
        if program == "arith-runs":
            return typed(runs_main, *words)
        if program == "arith-report":
            return lambda: (report_main(words), None)[1]
        tiny = [*WORDS[:-1], "trainer.max_epochs=1"] if program == "train" else []
        return world.typed(*tiny, *words, main=probe_main if program == "probe" else train_main)

    return Attack(f"{program} {text}", prepare, "", lines=3)


CALLS: tuple[Callable[[World], object], ...] = (
    *(partial(lambda seed, world: load_run(world.run.path, seed=seed), seed) for seed in (0.5, "0", 7, -1, [0], True)),
    *(partial(lambda epoch, world: load_run(world.run.path, epoch=epoch), epoch) for epoch in (9, -1, "all", 1.0)),
    lambda world: load_run(world.folder / "nowhere"),
    lambda world: load_run(world.victim),
    lambda world: load_run("a\0b"),
    lambda world: load_pretrained("nothing"),
    lambda world: load_pretrained("add-transformer", seed=99),
    lambda world: probe("nothing"),
    lambda world: probe("errors"),
    lambda world: compose("train", ["seed"]),
    lambda world: Add(0),
    lambda world: Add(3.5),
)


def call(n: int, random: Random) -> Attack:
    """The public functions with arguments that they do not take."""
    return Attack(f"call {n % len(CALLS)}", lambda world: lambda: CALLS[n % len(CALLS)](world), "")


TEXTS = ("add", "../x", "${oc.env:SECRET}", "${task}", "arith_erd.tasks.Add", "0-4", "\0", "", "<script>", "\x1b[2J")
LEAVES = (None, True, 0, -1, 10**40, 10**400, 0.5, -0.0, float("nan"), float("inf"), *TEXTS, "\ud800", "\u202e")


def anything(random: Random, depth: int = 3) -> Any:
    """A tree of values that nobody expects."""
    kind = random.random() if depth else 0
    if kind < 0.6:
        return random.choice(LEAVES)
    items = [anything(random, depth - 1) for _ in range(random.randrange(4))]
    return items if kind < 0.8 else {random.choice((*TEXTS, 3)): item for item in items}


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a tree of dictionaries and lists."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


def any_value(n: int, random: Random) -> Attack:
    """Any value at any place of a run's configuration, summary or checkpoint, read by whoever reads it."""
    name, value = ("config.yaml", "summary.json", "last.ckpt")[n % 3], anything(random)

    def prepare(world: World) -> Program:
        if name == "last.ckpt":
            world.interrupted()
        tree = {"config.yaml": world.config, "summary.json": world.summary, "last.ckpt": world.checkpoint}[name]
        put(tree, random.choice([*paths(tree)]), value)
        if name == "last.ckpt":
            torch.save(tree, world.run.checkpoint)
            return world.resume
        text = json.dumps(tree, default=str) if name == "summary.json" else yaml.dump(tree, allow_unicode=True)
        world.file(name).write_text(text, errors="surrogatepass")
        return random.choice((world.load, world.collect, world.report, world.resume))

    return Attack(f"{name} {value}", prepare)


def any_file(n: int, random: Random) -> Attack:
    """Something else in the place of a file, or its bytes changed, met by whoever reads or writes it."""
    places = (*FILES, "error.txt", "curves.png", ".attempt", "weights", "probes", "probes/errors", "probes/errors/rows.csv")
    name, asked = random.choice(places), ("load", "collect", "resume_whole", "probe", "report")[n % 5]

    def prepare(world: World) -> Program:
        world.interrupted() if asked == "resume_whole" else None
        path = world.file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            spoil(path, random)
        return getattr(world, asked)

    return Attack(f"{name}, {asked}", prepare)


SURROUNDINGS: tuple[tuple[str, dict[str, str], str], ...] = (
    (":", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}, ""),
    ("echo 'axes.nothing: [' > matplotlibrc", {}, ""),
    ("ulimit -n 12", {}, ""),
    ("ulimit -v 400000", {}, ""),
    ("ulimit -f 0", {}, ""),
    ("exec >&-", {}, ""),
    ("exec 2>/dev/full >/dev/full", {}, ""),
    (":", {"HOME": "/proc/nowhere", "TMPDIR": "/proc/nowhere", "MPLCONFIGDIR": "/proc/nowhere"}, ""),
    (":", {"COLUMNS": "x", "OMP_NUM_THREADS": "many", "GOMP_SPINCOUNT": "x"}, ""),
)


def other_surroundings(n: int, random: Random) -> Attack:
    """Another locale, settings of other programs, limits of the system: in processes of their own."""
    limits, environment, _ = SURROUNDINGS[n % len(SURROUNDINGS)]
    programs = (["-P", "-m", "arith_erd.report", "../runs", "--out=../report"], ["-P", "-m", "arith_erd.runs", "../runs"],
                [str(ROOT / "train.py"), *WORDS, "runs_dir=../runs"])  # fmt: skip
    words = programs[n // len(SURROUNDINGS) % 3 if n >= len(SURROUNDINGS) else n % 3]

    def prepare(world: World) -> Program:
        (world.folder / "here" / "matplotlibrc").touch()
        return process(*words, limits=limits, **environment)

    return Attack(f"{limits} {environment}", prepare)


SIZES = [typed_sizes, others_sizes, others_tensors, sparse_file, many_epochs]
INPUTS = [typed_value, typed_value, typed_value, whole_command, call, any_value, any_value, any_file]
__all__ = ["INPUTS", "SIZES", "UserError", "other_surroundings"]
