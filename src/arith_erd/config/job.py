"""Jobs: whole configurations as typed, checked objects. Parts that need torch stay a `ClassSpec`.

`read_job`, `read_probe_job` and `job_of_run` report errors of a resolved configuration in one line.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from inspect import signature
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import PlainValidator, ValidationError, ValidationInfo
from pydantic.dataclasses import dataclass as validated_dataclass

from ..checks import explain_validation_error, user_path
from ..errors import UserError, bad_value, no_such_key
from ..runs.directory import Run, matching_runs
from ..runs.identity import DEFAULT_POSITIONS, flatten, short_hash
from ..seeds import format_ranges, parse_seeds
from ..splits import LengthSplit, Split
from ..tasks import Task
from . import schema
from .class_spec import ClassSpec
from .run_names import run_for_config, run_name
from .schema import STRICT, Count, Switch, accepts, class_group, parsed_by

if TYPE_CHECKING:
    from ..models.network import Network

PROBE_NEEDS = ("task", "split", "models")
MAX_EPOCHS_LENGTH = 40  # characters of the epochs in the name of a folder

OBSOLETE_KEYS = ("trust", "overwrite", "item")  # found in config.yaml of earlier versions
INTERNAL_FIELDS = ("resolved", "overrides", "non_default_options", "overwrite")  # fields that no file sets


def _parse_folder(key: str) -> PlainValidator:
    def read(value: Any) -> Path | None:
        if (value is None and key == "out") or (isinstance(value, str) and value):
            return None if value is None else user_path(value, key)
        example = f", such as ./{value}" if isinstance(value, int) and not isinstance(value, bool) else ""  # out=2024
        raise bad_value(key, value, f"a folder{example}" + ", or null" * (key == "out"))

    return parsed_by(read)


def _parse_named(key: str, group: Any, *metadata: str) -> ClassSpec:
    spec = ClassSpec.from_group(key, group, None, *metadata)
    if spec.name is None:
        raise UserError(f"{key}.name: missing; expected a value for it")
    return spec


def _parse_task(group: Any) -> Task:
    """Build the task and make one example, since a task of your own may raise anything."""
    spec = _parse_named("task", group)
    task = spec.build(Task)
    with spec.explain_errors():
        task.examples(*[0] * task.num_operands)
    return task


def _parse_split(group: Any, info: ValidationInfo) -> Any:
    """Build the split and ask it about two examples, since a class may be callable without being a split."""
    if callable(group):
        return group
    spec, task = _parse_named("split", group), info.data["task"]
    split: Split = spec.build(Split)
    if isinstance(split, LengthSplit) and task.min_bits is None:
        raise UserError("split=length: expected task.min_bits too, for operands of several lengths")
    with spec.explain_errors():
        held_out = np.asarray(split(task.examples(*[[0, 0]] * task.num_operands)))
    if held_out.dtype != bool or held_out.shape != (2,):
        raise bad_value("split._target_", spec.target, "a split: True or False for each example")
    return split


def _parse_probe(group: Any) -> ClassSpec:
    probe = _parse_named("probe", group, "needs")
    needs = group.get("needs", [])
    if not isinstance(needs, list) or any(need not in PROBE_NEEDS for need in needs):
        raise bad_value("probe.needs", needs, f"a list of {', '.join(PROBE_NEEDS)}")
    for key, value in probe.arguments.items():
        if value == []:
            raise bad_value(f"probe.{key}", "[]", "one value or more")
    return probe


def _parse_epochs(value: Any) -> Any:
    try:
        return value if value in (None, "all") else parse_seeds(value)  # the same grammar
    except UserError as error:
        raise bad_value("epoch", value, "all, or distinct epochs: 3, 0-10, '1,5,20' (quoted) or [1,5,20]") from error


@validated_dataclass(frozen=True, kw_only=True, config=STRICT)
class BaseJob:
    seed: Annotated[tuple[int, ...], parsed_by(parse_seeds)]
    task: Annotated[Task, parsed_by(_parse_task)] = field(compare=False)
    split: Annotated[Split, PlainValidator(_parse_split)] = field(compare=False)
    model: schema.ModelConfig | None
    logger: Annotated[ClassSpec, class_group("logger", schema.LOGGER_ARGUMENTS)] = ClassSpec(
        "arith_erd.loggers.Csv", name="csv", key="logger._target_"
    )
    runs_dir: Annotated[Path, _parse_folder("runs_dir")] = Path("runs")
    job_index: Any = None  # index of the only job of a sweep to run; the sweep reads it
    fail_fast: Switch = False  # whether a sweep stops at its first failure; the sweep reads it
    wait: Switch = True  # whether a sweep waits for its jobs under Slurm; the sweep reads it
    resolved: dict[str, Any] = field(default_factory=dict, repr=False)
    """The configuration itself: it is written to ``config.yaml``, and its hash is part of the run directory's name."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.seed

    @property
    def option_names(self) -> Mapping[str, str]:
        """Names of the chosen task and split."""
        return {group: self.resolved[group]["name"] for group in ("task", "split")}

    def network(self) -> "Network":
        """A new network of ``model`` for the task, with weights from PyTorch's global generator. Loads torch."""
        from ..models.network import Network

        assert self.model is not None
        task, arguments = self.task, {}
        if "layout" in signature(self.model.net.import_class(Network)).parameters:
            arguments["layout"] = task.layout
        elif task.min_bits is not None:
            accepted = f"null, since model={self.model.name} takes one length only"
            raise bad_value("task.min_bits", task.min_bits, accepted)
        sizes = {"prompt_length": task.prompt_length, "answer_length": task.answer_length}
        return self.model.net.build(Network, **sizes, vocab_size=task.vocab_size, **arguments)


@validated_dataclass(frozen=True, kw_only=True, config=STRICT)
class Job(BaseJob):
    """One run, or several if its seeds are trained in several packs (`packs`)."""

    model: schema.ModelConfig
    ablation: schema.AblationConfig
    data: schema.DataConfig
    trainer: schema.TrainerConfig
    epochs: Annotated[dict[str, Count], accepts("an integer of at least 1")] = field(default_factory=dict)
    """Epochs of each task; ``trainer.max_epochs`` refers to it."""
    pack: schema.PackConfig = schema.PackConfig()
    checkpoint: schema.CheckpointConfig = schema.CheckpointConfig()
    overwrite: Switch = False  # train finished runs again; the old run is kept until the new one has finished

    def __post_init__(self) -> None:
        net, task, examples = self.model.net.arguments, self.task, self.data.examples
        positions, default_positions = net.get("positions"), DEFAULT_POSITIONS.get(self.model.net.target)
        d_model, heads = net.get("d_model", 0), net.get("num_heads", 1)
        if d_model % heads:
            raise bad_value("model.net.d_model", d_model, f"a multiple of model.net.num_heads={heads}")
        if positions not in (None, default_positions, "none") and not net.get("positional_encoding", True):
            accepted = f"{default_positions}, since positional_encoding=false removes positions"
            raise bad_value("model.net.positions", positions, accepted)
        if examples is None and not task.enumerable:
            why = f"{task.size:,} examples" if task.min_bits is None else "operands of several lengths"
            raise bad_value("data.examples", "null", f"how many to draw, such as 100000; task={task.name} has {why}")
        if examples is not None and task.enumerable:
            accepted = f"null: all {task.size:,} examples are used, and split.fraction holds some out"
            raise bad_value("data.examples", examples, accepted)

    @cached_property
    def run(self) -> Run:
        """The directory of the run, which need not exist yet."""
        return run_for_config(self.runs_dir, self.resolved)

    def runs(self) -> list[Run]:
        return [pack.run for pack in self.packs()]

    def packs(self) -> "list[Job]":
        """A job for each pack of at most ``pack.max_replicas`` seeds. With ``auto`` as on disk, else one pack."""
        pack = replace(self.pack, part_of=format_ranges(self.seeds))
        whole = self.resolved | {"pack": self.resolved.get("pack", {}) | {"part_of": pack.part_of}}
        limit = self.pack.max_replicas
        size = self._size_on_disk(whole) if limit == "auto" else limit
        if size >= len(self.seeds):
            return [self]
        parts = [self.seeds[i : i + size] for i in range(0, len(self.seeds), size)]
        return [replace(self, seed=part, pack=pack, resolved=whole | {"seed": format_ranges(part)}) for part in parts]

    def _size_on_disk(self, whole: dict[str, Any]) -> int:
        """The seeds of the first pack if an earlier command with ``auto`` divided them, else all seeds."""
        number = len(self.seeds)
        sizes = {ceil(number / packs) for packs in range(2, number + 1)}
        for size in sorted(sizes, reverse=True) if not self.run.path.exists() else ():
            first = Run(self.runs_dir / run_name(whole | {"seed": format_ranges(self.seeds[:size])}))
            with suppress(UserError):  # no such run
                if first.config_file.exists() and first.config().get("pack") == whole["pack"]:
                    return size
        return number


@validated_dataclass(frozen=True, kw_only=True, config=STRICT)
class ProbeJob(BaseJob):
    probe: Annotated[ClassSpec, parsed_by(_parse_probe)]
    run: Annotated[str | None, accepts("a run directory, a glob of them in quotes, or null", min_length=1)]
    epoch: Annotated[Literal["all"] | tuple[int, ...] | None, parsed_by(_parse_epochs)]
    """The epochs whose weights are probed; None for the last weights."""
    checkpoint: Annotated[str | None, accepts("a file, or null", min_length=1)]
    handcoded: Annotated[str | None, accepts("the name of a network written by hand, or null", min_length=1)]
    model: schema.ModelConfig | None = None  # the model of a checkpoint with our parameter names
    out: Annotated[Path | None, _parse_folder("out")]
    overrides: tuple[str, ...] = ()
    """Overrides of ``task``, ``split``, ``model`` and ``seed`` that were typed: ``("task=mul", "task.bits=5")``."""
    non_default_options: str = ""
    """Options of the probe that differ from its file: ``concept_value-controls5``."""

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(self.resolved["probe"].get("needs", ()))

    def result_name(self, epochs: Sequence[int] | Literal["all"]) -> str:
        """The name of a result for these epochs: ``errors``, ``errors-epoch=3`` or ``errors-epochs``."""
        suffix = "-epochs" if len(epochs) > 1 else f"-epoch={epochs[0]}" if epochs else ""
        return f"{self.probe.name}{suffix}"

    def folder_name(self, epochs: Sequence[int] | Literal["all"]) -> str:
        """The folder of a result in a run directory. A result with other options or epochs has another folder."""
        chosen = format_ranges(self.epoch) if isinstance(self.epoch, tuple) and self.epoch[1:] else ""
        chosen = chosen.replace(",", "+") if len(chosen) <= MAX_EPOCHS_LENGTH else short_hash(chosen)
        return "-".join(filter(None, [self.result_name(epochs), chosen, self.non_default_options]))

    def reserve_folders(self, taken: set[Path]) -> None:
        """Add the results' folders to ``taken`` by other jobs of a sweep; a `UserError` if one is taken already."""
        runs = (matching_runs(self.run) or [user_path(self.run)]) if self.run else []
        folders = {path / "probes" / self.folder_name(self.epoch or ()) for path in runs}
        if self.out:  # one run's result goes straight there, several results into subfolders
            folders = {self.out / path.name for path in runs} if len(runs) > 1 else {self.out}
        if clashes := sorted(folders & taken):
            accepted = "a folder for each job, such as out='probes/${probe.name}'"
            raise bad_value("out", self.out or "null", f"{accepted}; {clashes[0]} would get the results of several")
        taken |= folders


JobClass = TypeVar("JobClass", bound=BaseJob)


def read_job(config: Mapping[str, Any], overwrite: Any = False) -> Job:
    """The job of a resolved configuration; errors name a key. ``overwrite`` applies to one command only."""
    stored = {key: value for key, value in config.items() if key not in OBSOLETE_KEYS}
    return _validated_job(Job, stored, overwrite=overwrite)


def read_probe_job(config: Mapping[str, Any], overrides: Collection[str], non_default_options: str) -> ProbeJob:
    """The job of a resolved configuration of ``probe.py``; errors as in `read_job`, arguments as in `ProbeJob`."""
    groups = ("task", "split", "model", "seed")
    chosen = tuple(typed for typed in overrides if typed.lstrip("+~").replace("=", ".").split(".")[0] in groups)
    return _validated_job(ProbeJob, config, overrides=chosen, non_default_options=non_default_options)


def job_of_run(run: Run) -> Job:
    """The job that made a run directory; a `UserError` if its ``config.yaml`` is not a valid job."""
    config = run.config()
    try:
        return read_job(config)
    except UserError as error:
        raise UserError(f"{run.config_file}: {error}") from error


def _validated_job(job_class: type[JobClass], config: Mapping[str, Any], **internal: Any) -> JobClass:
    for key, value in flatten(config):
        if isinstance(value, str) and not value.isprintable():
            raise bad_value(key, value, "text without control characters")
    fields: Mapping[str, Any] = vars(job_class)["__pydantic_fields__"]
    known = [name for name in fields if name not in INTERNAL_FIELDS]
    for key in config:
        if key not in known:
            raise no_such_key(str(key), known)
    values = {**config, **internal, "resolved": dict(config)}
    try:
        return job_class(**values)
    except ValidationError as error:
        raise explain_validation_error(error, values, fields) from error
