"""From a resolved configuration to a `Job` or a `ProbeJob`, once.

The task and the split are built here, since that is quick and checks their options; what needs torch is a `Factory`,
built later.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import UserError, bad_value
from ..runs import Run
from ..seeds import parse_seeds
from ..splits import Split
from ..tasks import Task
from .build import Factory
from .groups import Ablation, Checkpointing, Data, Model, Packing, Training
from .job import Job, ProbeJob
from .rules import FOLDER, LOGGER, SWITCH, count, leaves, nullable, read_group, require_keys

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
        names=_names(config),
        logger=Factory.read("logger", config.get("logger", CSV), LOGGER),
        runs_dir=Path(FOLDER("runs_dir", config.get("runs_dir", "runs"))),
        resolved=config,
    )
    SWITCH("fail_fast", config.get("fail_fast", False))  # the sweep reads it
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
    require_keys("", config, (*PROBE_JOB, "model"), PROBE_JOB)
    _require_printable(config)
    needs = _group("probe", config["probe"]).get("needs", [])
    if not isinstance(needs, list) or any(need not in NEEDS for need in needs):
        raise bad_value("probe.needs", needs, f"a list of {', '.join(NEEDS)}")
    for key, value in config["probe"].items():
        if value == [] and key != "needs":
            raise bad_value(f"probe.{key}", "[]", "one value or more")
    SWITCH("fail_fast", config["fail_fast"])  # the sweep reads it
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
        names=_names(config),
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


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    return {group: config[group]["name"] for group in ("task", "split")}


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
