"""Run a probe: from Python with `probe`, or as a job that writes files and prints a table with complete numbers."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..checks import as_python, require_type
from ..config.compose import compose
from ..config.job import ProbeJob, job_of_run
from ..errors import UserError, bad_value, counted, first_line
from ..loggers import Logger
from ..runs.directory import Run, first_epoch_reaching, require_runs
from ..runs.identity import short_hash
from ..seeds import format_ranges
from ..stats import TARGET_ACCURACY
from ..system.cli_errors import line_and_status
from ..system.files import require_writable, run_path
from ..system.isolation import isolated
from ..system.signals import exits_are_errors
from .probe import Probe, require_figure
from .result import ProbeResult, measure, print_result

if TYPE_CHECKING:
    from ..interp.hooked import Hooked


@isolated()
def probe(name: str | type[Probe], models: "Hooked | Iterable[Hooked]" = (), **options: Any) -> ProbeResult:
    """Run a probe of a task, or of networks of one task.

    >>> import arith_erd as ae
    >>> result = ae.probe("logit_lens", ae.load_pretrained("add-nanogpt"), num_examples=64)
    >>> list(result.rows.columns)
    ['seed', 'site', 'position', 'accuracy', 'probability', 'agreement']
    >>> figure = result.figure()

    Args:
        name: a file in ``conf/probe/``, without ``.yaml``, or a class of your own.
        models: a network or a list of them, for a probe of networks.
        options: settings of the probe; for a probe of a task also ``task`` and ``split``.

    Raises:
        UserError: for an unknown probe, or an option that it does not accept.
    """
    models = [*models] if isinstance(models, Iterable) else [models]
    options = {key: as_python(value) for key, value in options.items()}
    if isinstance(name, type) and issubclass(name, Probe):
        _require_same_task(name.__name__, models)
        own = name(*([models] if models else []), **options)
        return ProbeResult.of(own, settings={"probe": options})
    if not isinstance(name, str):
        accepted = "the name of a probe first, as in probe('patching', model)"
        raise UserError(f"probe: received a {type(name).__name__}; expected {accepted}")
    job = compose("probe", [f"probe={name}"])
    arguments = {need: options.pop(need, getattr(job, need, None)) for need in job.needs if need != "models"}
    if bool(models) != ("models" in job.needs):
        raise UserError(f"probe={name}: expected {'no networks, but task=' if models else 'one network or more'}")
    if models:
        _require_same_task(name, models)
        arguments["models"] = models
    settings = {"probe": _settings(job)["probe"] | options}
    return ProbeResult.of(job.probe.build(Probe, **arguments, **options), name, settings)


def _require_same_task(name: str, models: "Sequence[Hooked]") -> None:
    """Raise a `UserError` unless all are networks, of one task and with different seeds."""
    from ..interp.hooked import Hooked  # loads torch, which a probe of a task does not need

    for model in models:
        require_type(f"probe={name}: models", model, Hooked)
    other = [model for model in models if not model.task.same_as(models[0].task)]
    if other or len({model.seed for model in models}) < len(models):
        raise UserError(f"probe={name}: expected networks of one task and of different seeds, which tell rows apart")


@exits_are_errors()
def run_job(job: ProbeJob) -> None:
    """Run the probe of a job: on a task, on given weights, or on every run that ``run=`` names.

    Each run's result goes into the run's directory, unless ``out=`` names another. ``handcoded=list`` lists the
    hand-coded networks instead.
    """
    if job.handcoded == "list":
        from ..interp.algorithms import describe_program
        from ..models.handcoded import PROGRAMS  # loads torch

        for name, program in PROGRAMS.items():
            print(f"{name:22} {describe_program(program)}")
        return
    targets, failed = _targets(job), 0
    for target in targets:
        try:
            run_probe(job, target)
        except Exception as error:  # one failure must not stop the others
            if len(targets) == 1:
                raise
            failed += 1
            print(f"error: {target.folder}: {line_and_status(error)[0]}", file=sys.stderr)
    if failed:
        raise UserError(f"run={job.run}: {failed} of {len(targets)} results failed; the errors are above")


@dataclass(frozen=True)
class ProbeTarget:
    """A probe of one run, of a file of weights or of a task, and the folder for its result."""

    probe: Probe
    folder: Path
    models: Sequence["Hooked"] = ()
    run: Run | None = None
    epochs: Sequence[int] = ()  # empty for the last weights
    weights: Mapping[str, str] = field(default_factory=dict)
    """The provenance of the weights. Reports read only rows without one: a run's final weights, and the authors'."""


def _targets(job: ProbeJob) -> list[ProbeTarget]:
    """What a job measures. All are made before the first one runs, so that any error comes first."""
    name = str(job.probe.name)
    sources = [f"{key}={value}" for key in ("run", "checkpoint", "handcoded") if (value := getattr(job, key))]
    if job.epoch is not None and job.run is None:
        raise UserError(f"epoch={job.resolved['epoch']}: needs run=, a run with checkpoint.keep")
    if "models" not in job.needs:
        if sources:
            what = "is about a task and takes no run=, checkpoint= or handcoded="
            raise UserError(f"{sources[0]}: probe={name}{' (the default)' * (name == 'dataset')} {what}")
        probe = job.probe.build(Probe, **{need: getattr(job, need) for need in job.needs})
        return [ProbeTarget(probe, _folder_without_run(job, job.needs))]
    if len(sources) != 1:
        raise UserError(f"probe={name}: expected one of run=DIR, checkpoint=FILE task=NAME and handcoded=NAME")
    return [_target_of_weights(job)] if job.run is None else list(_targets_of_runs(job))


def run_probe(job: ProbeJob, target: ProbeTarget) -> None:
    """Measure, write and log one result."""
    name, folder, run = job.result_name(target.epochs), target.folder, target.run
    require_writable("out" if job.out else "runs_dir", folder)
    if len(target.epochs) < 2:  # else curves are drawn
        require_figure(target.probe)
    source = run.name if run else [job.checkpoint, job.handcoded, format_ranges(job.seeds)]
    digest = short_hash([name, _settings(job), source, target.epochs])
    file = folder / "probe.json"
    if job.out and file.is_file() and f'"hash": "{digest}"' not in file.read_text(encoding="utf-8", errors="replace"):
        raise bad_value("out", folder, "a folder that holds no result of another probe, run or set of options")
    result = _over_epochs(job, run, target.epochs) if run and target.epochs else ProbeResult.of(target.probe, name)
    settings = _settings(job) | ({"weights": target.weights} if target.weights else {})
    settings |= {"hash": digest} if job.out else {}
    result = replace(result, name=name, settings=settings)
    files, rows = result.save(folder), result.rows
    unfinished = target.weights.get("unfinished")
    warnings = [f"the run is not finished: {unfinished}"] if unfinished else []
    print_result(result.table(), [*result.notes(), *warnings], result.summary())
    print(f"{folder}: {', '.join(files)} ({counted(len(rows), 'row')})")
    logger = job.logger.build(Logger)
    for model in target.models:
        own = rows[rows["seed"] == model.seed]
        logger.probe(model.name, model.seed, name, own, folder / "figure.png", run.path if run else folder)


def _over_epochs(job: ProbeJob, run: Run, epochs: Sequence[int]) -> ProbeResult:
    """The result over several epochs: rows with a column ``epoch``; table and figure are curves of one measure."""
    from ..catalog.loading import load_seeds

    rows: list[dict[str, Any]] = []
    tables: list[pd.DataFrame] = []
    for epoch in epochs:  # networks of one epoch at a time
        probe = job.probe.build(Probe, models=load_seeds(run.path, epoch=epoch))
        measured = measure(probe, f"{job.probe.name}, epoch {epoch}")
        curves = probe.epoch_curves(pd.DataFrame(measured, columns=[*probe.columns] or None))
        tables.append(curves.table.assign(epoch=epoch))
        rows += [{"epoch": epoch, **row} for row in measured]
    table = pd.DataFrame(rows, columns=["epoch", *probe.columns] if probe.columns else None)
    if len(tables) == 1:
        return ProbeResult(probe, table)
    reached = {seed: first_epoch_reaching(run.metrics(), seed, TARGET_ACCURACY) for seed in job_of_run(run).seeds}
    return ProbeResult(probe, table, replace(curves, table=pd.concat(tables, ignore_index=True), reached=reached))


def _targets_of_runs(job: ProbeJob) -> Iterator[ProbeTarget]:
    # These load torch, which a probe of a task does not need.
    from ..catalog.loading import load_seeds, select_epochs

    if job.overrides:
        problem = "not accepted with run=, since task, split, model and seeds come from the run's own config.yaml"
        raise UserError(f"{job.overrides[0]}: {problem}")
    runs = [Run(path) for path in require_runs(str(job.run))]
    if job.out and len({run.name for run in runs}) < len(runs):
        raise UserError(f"out={job.out}: runs of {job.run} share a name; expected out=null, or runs of one folder")
    left_out = 0
    for run in runs:
        try:
            epochs = [] if job.epoch is None else select_epochs(run, job_of_run(run).seeds, job.epoch)
            models = load_seeds(run.path, epoch=epochs[0] if epochs else None)
            folder = run_path(run.path / "probes" / job.folder_name(epochs), run.path)
            if job.out:  # one run's result goes straight there, several runs' side by side
                folder = job.out / (run.name if len(runs) > 1 else "")
            require_writable("out" if job.out else "runs_dir", folder)
            weights = {}
            if job.epoch is None and not run.finished:
                done = models[0].provenance.epoch or max((row["epoch"] for row in run.metrics()), default=0)
                weights["unfinished"] = f"after epoch {done} of {job_of_run(run).trainer.max_epochs}"
        except Exception as error:  # one bad run must not stop a glob
            left_out += 1
            if left_out == len(runs):
                raise
            print(f"left out {run.path}: {first_line(error)}", file=sys.stderr)
            continue
        yield ProbeTarget(job.probe.build(Probe, models=models), folder, models, run, epochs, weights)


def _target_of_weights(job: ProbeJob) -> ProbeTarget:
    from ..catalog.loading import load_checkpoint, load_handcoded

    unused_key = "model" if job.handcoded is not None else "seed"
    if unused := [override for override in job.overrides if override.startswith(unused_key)]:
        raise UserError(f"{unused[0]}: accepted only with {'handcoded' if unused_key == 'seed' else 'checkpoint'}=")
    weights: dict[str, str] = {}
    if job.handcoded is not None:
        models = [load_handcoded(job.handcoded, seed, job.task) for seed in job.seeds]
        weights = {"handcoded": job.handcoded, "seeds": format_ranges(job.seeds)}
    elif not any(override.startswith("task") for override in job.overrides):
        raise UserError(f"checkpoint={job.checkpoint}: also needs task=, such as task=add")
    else:
        make_network = job.network if job.model else None
        models = [load_checkpoint(str(job.checkpoint), job.task, make_network, "checkpoint")]
        weights = {"checkpoint": models[0].name, "model": job.model.name} if job.model else {}
    folder = _folder_without_run(job, ["task"] if job.handcoded is None else [])
    return ProbeTarget(job.probe.build(Probe, models=models), folder, models, weights=weights)


def _settings(job: ProbeJob) -> dict[str, Any]:
    """The settings that determine the rows: the probe's options and, without a run, those of task and network."""
    groups = ["probe"]
    if job.run is None:
        groups += ["task"] if "models" in job.needs else job.needs
    network = {"network": job.resolved["model"]["net"]} if job.checkpoint and job.model else {}
    return network | {
        group: {key: value for key, value in job.resolved[group].items() if key[0] != "_"} for group in groups
    }


def _folder_without_run(job: ProbeJob, groups: Sequence[str]) -> Path:
    """``out``, or a folder such as ``dataset-add-vs_t-1f0c2d3e``: readable parts and a hash of the settings."""
    handcoded = [job.handcoded, format_ranges(job.seeds)] if job.handcoded else []
    parts = [str(job.probe.name), *handcoded[:1], *(job.option_names[group] for group in groups)]
    name = "-".join([*parts, short_hash([_settings(job), job.checkpoint, *handcoded])])
    return job.out or job.runs_dir / "probes" / name
