"""Load networks: from a run, from a file of weights, from those published with the code, or written by hand."""

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ..bundled import RESULTS
from ..checks import as_python, require_integer, require_type, user_path
from ..config.class_spec import source_hashes
from ..config.job import Job, job_of_run, read_job
from ..errors import UserError, bad_value, file_may_be_intact, first_line, unknown_name, warn
from ..interp.hooked import Hooked, Provenance
from ..models import weights
from ..models.handcoded import PROGRAMS, is_handcoded_task, write_network
from ..models.network import Network, initialise
from ..models.transformer import Transformer
from ..runs.directory import Run, is_run
from ..seeds import format_ranges, parse_seeds
from ..system.files import run_path
from ..system.isolation import isolated
from ..tasks import Add, Task
from .export import CONFIG_FILE, WEIGHTS_FILE, download, short_name

_warn_once = cache(warn)  # Python's own record of warnings is lost whenever a library changes the filters
PRETRAINED = RESULTS / "runs"
Epochs = Literal["all"] | tuple[int, ...]


@isolated()
def load_run(path: Path | str, seed: int | None = None, epoch: int | None = None) -> Hooked:
    """Load one replica of a run, with its final weights or, if unfinished, those of its last checkpoint.

    `Provenance.epoch` is the epoch of the weights, None for final ones. Nothing in the folder is trusted: its
    configuration can only name classes of this package, and weights are tensors.

    >>> from arith_erd.catalog.loading import list_pretrained
    >>> path = list_pretrained()["add-transformer"][0]  # a run directory, as paper/results/runs/NAME
    >>> load_run(path, seed=0).task.name, load_run(path, epoch=0).provenance.epoch
    ('add', 0)

    Args:
        seed: seed of the replica; by default the run's first.
        epoch: an epoch whose weights ``checkpoint.keep`` kept; by default the last weights. 0 is the network before
            training, made again from its seed.

    Warns:
        UserWarning: if the sources of a trusted package have changed since the run finished.

    Raises:
        UserError: if the folder does not hold a run, or the run lacks the seed or its weights.
    """
    run = Run(user_path(path))
    if not run.path.exists() and str(path) in list_pretrained():
        raise UserError(f"{path}: no such folder; load_pretrained({str(path)!r}) loads the network of this name")
    job = job_of_run(run)
    seed, epoch = job.seeds[0] if seed is None else as_python(seed), as_python(epoch)
    if isinstance(seed, bool | float) or seed not in job.seeds:  # 0.0 equals 0, but names no file
        raise UserError(f"seed={seed!r}: {run.path} has the seeds {', '.join(map(str, job.seeds))}")
    if epoch is not None:
        require_integer("epoch", epoch, 0)
        select_epochs(run, [seed], (epoch,))
    network = initialise(job.network, seed)
    if epoch != 0:
        if changed := run.changed_sources(source_hashes(job.resolved)):
            _warn_once(f"{run.path}: the sources of {changed} have changed since it was trained")
        shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
        state, epoch = _load_state(run, job, shapes, seed, epoch)
        network.load_state_dict(state)
    return _hooked(network, job, run.name, seed, epoch)


@isolated()
def load_pretrained(name: Path | str, seed: int | None = None, folder: Path | str | None = None) -> Hooked:
    """Load a trained network: by its short name, from a folder of `save_pretrained`, or from the Hub.

    A short name consists of task, split unless random, model, and ablation if there is one. It stands for a run in
    ``folder``, by default ``paper/results/runs`` of a clone; an installed wheel has seed 0 of ``add-transformer``,
    ``add-nanogpt``, ``mul-transformer`` and ``mul-nanogpt``. The Hugging Face Hub needs the extra ``hub``. Nothing in
    the files is trusted, as in `load_run`.

    >>> load_pretrained("add-transformer").predict([100], [27])
    array([127])

    Args:
        name: ``add-transformer``, a folder, or ``USER/NAME`` on the Hub.
        seed: the lowest by default; a saved network has only its own.
        folder: of run directories, in which to look for a short name.

    Raises:
        UserError: if there is no such network or seed. The message lists those in `list_pretrained`.
    """
    name = os.path.expanduser(str(name))
    if is_run(Path(name)):
        raise UserError(f"name={name}: is a run directory; load_run({name!r}) loads it")
    if os.path.isfile(os.path.join(name, CONFIG_FILE)):
        return _load_saved(Path(name), Path(name).name, seed)
    if not os.path.exists(name) and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return _load_saved(download(name), Path(name).name, seed)
    folder = user_path(folder or PRETRAINED, "folder")
    networks = list_pretrained(folder)
    if name not in networks:
        if name in PROGRAMS:
            raise UserError(f"name={name}: is written by hand, not trained; load_handcoded({name!r}) makes it")
        accepted = f"one of {', '.join(networks)}" if networks else f"a name, but {folder} holds no finished run"
        accepted += f"; or a folder with {CONFIG_FILE}, or USER/NAME on the Hub"
        raise unknown_name("name", name, networks, accepted)
    seed = min(networks[name]) if seed is None else seed
    if seed not in networks[name]:
        raise bad_value("seed", repr(seed), f"{', '.join(map(str, networks[name]))} for {name}")
    return load_run(networks[name][seed], seed)


def _load_saved(folder: Path, name: str, seed: int | None) -> Hooked:
    try:
        file = run_path((folder / CONFIG_FILE).resolve())  # the Hub's cache consists of links
        saved = json.loads(file.read_text(encoding="utf-8"))
        job, epoch = read_job(saved["job"]), saved["epoch"]
        if epoch is not None:
            require_integer("epoch", epoch, 0)
    except Exception as error:
        if file_may_be_intact(error):
            raise
        raise UserError(f"{folder / CONFIG_FILE}: {first_line(error)}; expected a file from save_pretrained") from error
    if seed not in (None, job.seeds[0]):
        raise bad_value("seed", seed, f"{job.seeds[0]} for {name}")
    file = folder / WEIGHTS_FILE
    network = weights.network_from_file(job.network, file, str(file), CONFIG_FILE)
    return _hooked(network, job, name, job.seeds[0], epoch)


def list_pretrained(folder: Path = PRETRAINED) -> dict[str, dict[int, Path]]:
    """The trained networks in a folder: short name -> seed -> run directory."""
    runs: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*/summary.json")):
        run = Run(path.parent)
        try:
            job = job_of_run(run)
            seeds = [seed for seed in job.seeds if run.weights_file(seed).is_file()]  # `paper/results/` lacks some
        except Exception as error:  # whatever is wrong with it, others are listed
            _warn_once(f"{run.path}: left out ({first_line(error)})")
            continue
        runs[short_name(job)] |= dict.fromkeys(seeds, run.path)
    return {name: dict(sorted(seeds.items())) for name, seeds in sorted(runs.items()) if seeds}


def select_epochs(run: Run, seeds: Sequence[int], epochs: Epochs) -> list[int]:
    """The wanted epochs, ascending; if some have no weights, a `UserError` lists those that do.

    ``all`` means the epochs with weights of all seeds: the kept ones and the last. Epoch 0 needs no file.
    """
    saved = {*run.saved_epochs(*seeds)}
    if all(run.weights_file(seed).is_file() for seed in seeds):
        saved |= {row["epoch"] for row in run.metrics()[-1:]}
    wanted = saved if epochs == "all" else {*epochs}
    missing = [str(epoch) for epoch in sorted(wanted - {0, *saved})]
    if missing or (epochs == "all" and len(saved) < 2):
        known = f"{format_ranges(tuple(saved))} and 0" if saved else "0"
        hint = "(before training); checkpoint.keep=all, log or every:K keeps more while a run trains"
        raise UserError(f"epoch={(missing or ['all'])[0]}: {run.path} has weights of epoch {known} {hint}")
    return sorted(wanted)


def load_seeds(path: Path | str, epoch: int | None = None) -> list[Hooked]:
    """Load every replica of a run, by ascending seed; errors and ``epoch`` are those of `load_run`."""
    return [load_run(path, seed, epoch) for seed in job_of_run(Run(user_path(path))).seeds]


def load_weights(path: Path | str, task: Task, make_network: Callable[[], Network] | None = None) -> Hooked:
    """Load a network from a state dict, a file of safetensors or PyTorch. No code in it runs.

    Its training examples are unknown.

    Args:
        make_network: makes the network, as ``lambda: ae.NanoGPT(15, 8)``; its weights are replaced, by name. By default
            the names are those of the paper's authors, for their Transformer.

    Raises:
        UserError: if the file is missing or damaged, or names or shapes differ from those of the network.
    """
    return load_checkpoint(path, task, make_network, "path")


@isolated()
def load_checkpoint(path: Path | str, task: Task, make_network: Callable[[], Network] | None, key: str) -> Hooked:
    """`load_weights`, for a path that messages call ``key``."""
    file = user_path(path, key)
    source = f"{key}={file}"
    if make_network is None:
        network: Network = weights.load_authors_network(file, task, source)
        make_network = partial(Transformer, task.prompt_length, task.width)  # the released models have the default size
    else:
        network = weights.network_from_file(make_network, file, source, "this network and task")
    return Hooked(network, task=task, name=file.name, provenance=Provenance(make_network=make_network))


def load_authors_weights(path: Path | str, task: Task) -> Hooked:
    """The old name of `load_weights` without ``make_network``."""
    warn("load_authors_weights is load_weights since 1.1", FutureWarning)
    return load_weights(path, task)


@isolated()
def load_handcoded(name: str, seed: int = 0, task: Task | None = None) -> Hooked:
    """Write a network whose algorithm is known (`arith_erd.models.handcoded`). The seed draws the variant.

    Args:
        task: must be the task that it is written for, addition of 7 bits, which is the default.

    Raises:
        UserError: for an unknown name, or another task.
    """
    task = Add() if task is None else task
    require_type("task", task, Task)
    network = write_network(name, seed).network
    if not is_handcoded_task(task):
        accepted = f"task=add with its default options, for which {name} is written"
        raise UserError(f"task: received {task!r}; expected {accepted}")
    origin = Provenance(make_network=partial(Transformer, task.prompt_length, task.width))  # of the default size
    return Hooked(network, task=task, name=f"handcoded-{name}", seed=seed, provenance=origin)


def load_references(name: str, seeds: int | Sequence[int] | str = 0, task: Task | None = None) -> list[Hooked]:
    """A list with a network for each seed, as version 1.0 gave it."""
    warn("load_references is load_handcoded since 1.1, which loads one network", FutureWarning)
    return [load_handcoded(name, seed, task) for seed in parse_seeds(seeds)]


def _hooked(network: Network, job: Job, name: str, seed: int, epoch: int | None) -> Hooked:
    # A split of drawn examples says nothing about the other examples that a probe will draw.
    split = job.split if job.task.enumerable else None
    return Hooked(network, task=job.task, name=name, seed=seed, provenance=Provenance(split, job.network, epoch, job))


def _load_state(
    run: Run, job: Job, shapes: Mapping[str, torch.Size], seed: int, epoch: int | None
) -> tuple[dict[str, Tensor], int | None]:
    """Weights and their epoch: those of ``epoch``, or the final ones (None), or those of the last checkpoint."""
    file = run.weights_file(seed, epoch if epoch in run.saved_epochs(seed) else None)
    file = file if file.is_file() else run.checkpoint_file
    try:
        run_path(file, run.path, math.inf)
        if file != run.checkpoint_file:
            return weights.checked_state(weights.load_tensors(file), shapes, str(run.path)), epoch
        if file.is_file():
            saved, prefix = weights.load_tensors(file), "pack.stacked."
            stacks = {k.removeprefix(prefix): v for k, v in saved["state_dict"].items() if k.startswith(prefix)}
            stacked = {name: torch.Size((len(job.seeds), *shape)) for name, shape in shapes.items()}
            stacks = weights.checked_state(stacks, stacked, str(run.path))
            state = {name: stack[job.seeds.index(seed)].clone() for name, stack in stacks.items()}
            return state, weights.epochs_done(saved)  # not those in metrics.csv
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        if isinstance(error, UserError) or file_may_be_intact(error):
            raise
        cure = "if it is damaged, delete it and give the command that trained the run again"
        raise UserError(f"{file}: cannot be read ({first_line(error).partition('. ')[0]}); {cure}") from error
    raise UserError(f"{run.path}: no weights of seed {seed}, neither weights/ nor last.ckpt")
