"""Jobs: configurations as typed objects. No folder above this one reads a configuration itself.

`read_job` and `read_probe_job` turn a resolved configuration into a `Job` or a `ProbeJob`, once. The task and the
split are built here, since that is quick and checks their options; what needs torch is a `Factory`, built later.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from ..errors import UserError, bad_value
from ..runs import Keep, Run, find_run, require_name
from ..runs.kept import NOTHING
from ..runs.plan import plan_packs
from ..seeds import format_seeds, parse_seeds
from ..splits import Split
from ..tasks import Task
from .build import Factory, factory
from .rules import (
    ACCURACY,
    FOLDER,
    LOGGER,
    LOSS,
    NETWORK,
    OPTIMIZER,
    POSITIVE,
    SWITCH,
    accepting,
    count,
    is_count,
    leaves,
    nullable,
    one_of,
    read_group,
    require_keys,
)

if TYPE_CHECKING:
    from ..models.network import Network


@dataclass(frozen=True)
class Ablation:
    """The name of an ablation; its effect is in the model's own options."""

    name: Annotated[str, require_name]


CROSS_ENTROPY = Factory("arith_erd.losses.CrossEntropy")


@dataclass(frozen=True)
class Schedule:
    """How the optimizer's rate changes."""

    scheduler: Factory
    interval: str
    """After each of what: ``step`` or ``epoch``."""

    @classmethod
    def read(cls, key: str, group: Any) -> "Schedule | None":
        if group is None:
            return None
        scheduler = Factory.read(key, group, metadata=("interval",))
        return cls(scheduler, one_of("step", "epoch")(f"{key}.interval", group.get("interval")))


@dataclass(frozen=True)
class Model:
    """A network and its recipe."""

    name: Annotated[str, require_name]
    net: Annotated[Factory, factory(NETWORK)]
    optimizer: Annotated[Factory, factory(OPTIMIZER)]
    gradient_clip: Annotated[float | None, nullable(POSITIVE)]
    """Largest norm of one replica's gradient."""
    scheduler: Annotated[Schedule | None, Schedule.read] = None
    loss: Annotated[Factory, factory(LOSS)] = CROSS_ENTROPY


@dataclass(frozen=True)
class Data:
    batch_size: Annotated[int, count()]
    """Examples that one replica sees in a step."""


@dataclass(frozen=True)
class Training:
    """The group ``trainer``."""

    max_epochs: Annotated[int, count()]
    stop_at: Annotated[float | None, nullable(ACCURACY)]
    """Validation sequence accuracy of every replica that ends the run early."""
    precision: Annotated[str, one_of("32-true", "64-true", "bf16-mixed")]
    accelerator: Annotated[str, one_of("auto", "cpu", "gpu", "cuda", "mps")] = "auto"
    compile: Annotated[bool | str, accepting("auto, true or false", lambda x: x == "auto" or isinstance(x, bool))] = (
        "auto"
    )
    cuda_graphs: Annotated[bool, SWITCH] = False


@dataclass(frozen=True)
class Packing:
    """The group ``pack``."""

    max_replicas: Annotated[
        int | str, accepting("auto, or an integer of at least 1", lambda x: x == "auto" or is_count(x))
    ] = "auto"
    part_of: Annotated[str | None, nullable(accepting("seeds", lambda x: isinstance(x, str)))] = None
    """All seeds of the job of which this run trains some; written by us, never typed."""


@dataclass(frozen=True)
class Checkpointing:
    """The group ``checkpoint``."""

    every_n_epochs: Annotated[int, count()] = 1
    keep_last: Annotated[bool, SWITCH] = True
    """Whether ``last.ckpt`` of a finished run stays, so that a longer run can continue from its end."""
    keep: Annotated[Keep, Keep.read] = NOTHING
    """After which epochs the weights are kept for good."""


@dataclass(frozen=True)
class Job:
    """One run, or the several that its seeds become (`packs`)."""

    seeds: tuple[int, ...]
    task: Task = field(compare=False)
    split: Split = field(compare=False)
    model: Model
    ablation: Ablation
    data: Data
    trainer: Training
    pack: Packing
    checkpoint: Checkpointing
    logger: Factory
    runs_dir: Path
    fail_fast: bool
    resolved: dict[str, Any] = field(repr=False)
    """The configuration itself: what ``config.yaml`` holds and the name of the run directory hashes."""
    overwrite: bool = False
    """Train anew what has been trained; the old run is kept until the new one has finished."""
    at: Run | None = None
    """Where it is trained, if not in the directory of its name."""

    @cached_property
    def run(self) -> Run:
        """The directory of the run, whether it is there or not."""
        return self.at or find_run(self.runs_dir, self.resolved)

    @property
    def name(self) -> str:
        """Of the run, wherever it is trained."""
        return find_run(self.runs_dir, self.resolved).name

    @property
    def title(self) -> str:
        """``add, random, transformer``."""
        return ", ".join(self.resolved[group]["name"] for group in ("task", "split", "model"))

    def network(self) -> "Network":
        """A new network, with initial weights from PyTorch's global generator. Loads torch."""
        from ..models.network import Network

        return self.model.net.build(Network, **_sizes(self.task))

    def packs(self, capacity: "Callable[[Job], int] | None" = None) -> "list[Job]":
        """A job for each pack that the seeds are trained in, at most ``pack.max_replicas`` seeds in each.

        Args:
            capacity: how many replicas the device holds; asked only where ``max_replicas`` is ``auto`` and no run
                that began earlier decides. Without it, the device is taken to hold all of them.
        """
        asked = None if capacity is None else partial(capacity, self)
        return [self._part(seeds) for seeds in plan_packs(self.seeds, self.pack.max_replicas, self._begun, asked)]

    def runs(self) -> list[Run]:
        """The directories of all packs, as far as that can be told without asking the device."""
        return [pack.run for pack in self.packs()]

    def with_seeds(self, seeds: tuple[int, ...]) -> "Job":
        """The same job for other seeds."""
        return replace(self, seeds=seeds, resolved=self.resolved | {"seed": format_seeds(seeds)})

    def _part(self, seeds: tuple[int, ...]) -> "Job":
        if seeds == self.seeds:
            return self
        pack = replace(self.pack, part_of=format_seeds(self.seeds))
        part = self.with_seeds(seeds)
        return replace(
            part, pack=pack, resolved=part.resolved | {"pack": self.resolved["pack"] | {"part_of": pack.part_of}}
        )

    def _begun(self, seeds: tuple[int, ...]) -> bool:
        """Whether these seeds, as a part of ours, have an epoch behind them."""
        part = self._part(seeds)
        if not (part.run.finished or part.run.checkpoint.is_file()):
            return False
        try:
            return bool(part.run.config().get("pack", {}).get("part_of") == part.pack.part_of)
        except (UserError, AttributeError):  # a configuration that cannot be read is refused later
            return False


@dataclass(frozen=True)
class ProbeJob:
    """One question: a probe, and the task or the networks it is about."""

    probe: Factory
    needs: tuple[str, ...]
    """Of `NEEDS`: what the probe is built with."""
    task: Task = field(compare=False)
    split: Split = field(compare=False)
    names: Mapping[str, str]
    """Of the chosen task and split."""
    typed: tuple[str, ...]
    """Overrides of ``task``, ``split``, ``model`` and ``seed`` that were typed: ``("task=mul", "task.bits=5")``."""
    run: str | None
    """A run directory, or a glob."""
    epochs: Literal["all"] | tuple[int, ...] | None
    """Of the run whose weights were kept: None for the last ones."""
    checkpoint: str | None
    reference: str | None
    """The name of a network written by hand."""
    seeds: tuple[int, ...]
    """Seeds of the reference networks."""
    model: Model | None
    """The model of a checkpoint with our parameter names."""
    out: Path | None
    runs_dir: Path
    logger: Factory
    fail_fast: bool
    resolved: dict[str, Any] = field(repr=False)

    def network(self) -> "Network":
        """A new network of ``model``, for the task. Loads torch."""
        from ..models.network import Network

        assert self.model is not None
        return self.model.net.build(Network, **_sizes(self.task))

    def runs(self) -> list[Run]:
        """No runs: a probe trains nothing."""
        return []


NEEDS = ("task", "split", "subjects")
TYPED = ("trust", "overwrite")  # for one command; never read from a run
COMMON = ("task", "split", "logger", "runs_dir", "item", "fail_fast")
JOB = ("seed", "data", "epochs", "trainer", "pack", "checkpoint", "model", "ablation", *COMMON)
LEFT_OUT = ("epochs", "pack", "checkpoint", "logger", "runs_dir", "item", "fail_fast")  # by runs of other versions
PROBE_JOB = ("run", "epoch", "checkpoint", "reference", "seed", "out", "probe", *COMMON)
CSV = {"_target_": "arith_erd.loggers.Csv", "name": "csv"}


def read_job(config: dict[str, Any]) -> Job:
    """The job of a resolved configuration, from the command line or from the ``config.yaml`` of a run.

    Raises:
        UserError: naming a key that nothing reads, or that is missing, or whose value could not be trained with.
    """
    config = {key: value for key, value in config.items() if key not in TYPED}
    require_keys("", config, JOB, set(JOB) - set(LEFT_OUT))
    _require_printable(config)
    task = _task(config["task"])
    job = Job(
        seeds=parse_seeds(config["seed"]),
        task=task,
        split=_split(config["split"], task),
        model=read_group(Model, "model", config["model"]),
        ablation=read_group(Ablation, "ablation", config["ablation"]),
        data=read_group(Data, "data", config["data"]),
        trainer=read_group(Training, "trainer", config["trainer"]),
        pack=read_group(Packing, "pack", config.get("pack", {})),
        checkpoint=read_group(Checkpointing, "checkpoint", config.get("checkpoint", {})),
        logger=Factory.read("logger", config.get("logger", CSV), LOGGER),
        runs_dir=Path(FOLDER("runs_dir", config.get("runs_dir", "runs"))),
        fail_fast=SWITCH("fail_fast", config.get("fail_fast", False)),
        resolved=config,
    )
    for name, epochs in _group("epochs", config.get("epochs", {})).items():
        count()(f"epochs.{name}", epochs)
    net = job.model.net.arguments
    if net.get("d_model", 0) % net.get("num_heads", 1):
        raise bad_value("model.net.d_model", net["d_model"], f"a multiple of model.net.num_heads={net['num_heads']}")
    return job


def read_probe_job(config: dict[str, Any], overrides: tuple[str, ...] = ()) -> ProbeJob:
    """The job of a resolved configuration of ``probe.py``.

    Args:
        config: resolved.
        overrides: what was typed.

    Raises:
        UserError: as `read_job`.
    """
    require_keys("", config, (*PROBE_JOB, "model", "trust"), PROBE_JOB)
    _require_printable(config)
    needs = _group("probe", config["probe"]).get("needs", [])
    if not isinstance(needs, list) or any(need not in NEEDS for need in needs):
        raise bad_value("probe.needs", needs, f"a list of {', '.join(NEEDS)}")
    task = _task(config["task"])
    out = nullable(FOLDER)("out", config["out"])
    typed = [
        o for o in overrides if o.lstrip("+~").replace("=", ".").split(".")[0] in ("task", "split", "model", "seed")
    ]
    return ProbeJob(
        probe=_named("probe", config["probe"], "needs"),
        needs=tuple(needs),
        task=task,
        split=_split(config["split"], task),
        names={group: config[group]["name"] for group in ("task", "split")},
        typed=tuple(typed),
        run=_text("run", config["run"], "a run directory, a glob of them in quotes, or null"),
        epochs=nullable(_epochs)("epoch", config["epoch"]),
        checkpoint=_text("checkpoint", config["checkpoint"], "a file, or null"),
        reference=_text("reference", config["reference"], "the name of a network written by hand, or null"),
        seeds=parse_seeds(config["seed"]),
        model=read_group(Model, "model", config["model"]) if "model" in config else None,
        out=None if out is None else Path(out),
        runs_dir=Path(FOLDER("runs_dir", config["runs_dir"])),
        logger=Factory.read("logger", config["logger"], LOGGER),
        fail_fast=SWITCH("fail_fast", config["fail_fast"]),
        resolved=config,
    )


def read_run(run: Run) -> Job:
    """The job that a run directory was made by.

    Raises:
        UserError: if there is no such run, or its ``config.yaml`` is not one that could have been trained.
    """
    config = run.config()
    try:
        return read_job(config)
    except UserError as error:
        raise UserError(f"{run.path / 'config.yaml'}: {error}") from error


def _sizes(task: Task) -> dict[str, int]:
    """The arguments that every network takes from its task."""
    return {"prompt_length": task.prompt_length, "answer_length": task.width, "vocab_size": task.vocab_size}


def _task(group: Any) -> Task:
    return _named("task", group).build(Task)


def _split(group: Any, task: Task) -> Split:
    """The split, after a trial call."""
    made = _named("split", group)
    split: Split = made.build(Split)
    try:
        held_out = np.asarray(split(task.examples(*[[0]] * task.operands)))
    except UserError:
        raise
    except Exception as error:  # a class of another kind that can be called with examples may raise anything
        raise UserError(f"split._target_={made.target}: {error}") from error
    if held_out.dtype != bool or held_out.shape != (1,):
        raise bad_value("split._target_", made.target, "a split: True or False for each example")
    return split


def _named(name: str, group: Any, *metadata: str) -> Factory:
    made = Factory.read(name, group, metadata=metadata)
    if made.name is None:
        raise UserError(f"{name}.name: missing; expected a value for it")
    return made


def _group(name: str, group: Any) -> dict[str, Any]:
    if not isinstance(group, dict):
        raise bad_value(name, group, "a group of keys")
    return group


def _epochs(name: str, value: Any) -> Literal["all"] | tuple[int, ...]:
    if value == "all":
        return "all"
    try:
        return parse_seeds(value)  # the same grammar
    except UserError as error:
        raise bad_value(name, value, "all, or distinct epochs as 3, 0-10, '1,5,20' (quoted) or [1,5,20]") from error


def _text(name: str, value: Any, accepted: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise bad_value(name, value, accepted)
    return value


def _require_printable(config: dict[str, Any]) -> None:
    for name, value in leaves(config):
        if isinstance(value, str) and not value.isprintable():
            raise bad_value(name, value, "text without control characters")
