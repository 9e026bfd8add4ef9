"""A run directory as trained networks."""

import glob
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..config.build import build
from ..config.compose import check
from ..errors import UserError
from ..models.authors_weights import load_official
from ..models.network import Network
from ..models.weights import fitting, load_tensors
from ..runs import Config, Run
from ..seeds import parse_seeds
from ..splits import Split
from ..tasks import Task
from .subject import Subject


def load_run(path: Path | str, seed: int | None = None) -> Subject:
    """One trained replica of a run, its first unless ``seed`` says which.

    Nothing in the folder is trusted: the configuration reaches classes of this package only, and weights are tensors.

    Raises:
        UserError: if the folder holds no run, the run no such seed, or the seed no weights.
    """
    run = Run(path)
    config = _config(run)
    seeds = parse_seeds(config["seed"])
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        raise UserError(f"seed={seed}: {run.path} has the seeds {', '.join(map(str, seeds))}")
    task: Task = build(config["task"], Task)
    make = network_of(config, task)
    with torch.device("meta"):  # without memory: only weights that fit say how large a network may be
        shapes = {name: p.shape for name, p in make().state_dict().items()}
    state = _state(run, seed, seeds.index(seed), len(seeds), shapes)
    network: Network = make()
    network.load_state_dict(state)
    split: Split = build(config["split"], Split)
    return Subject(name=run.name, seed=seed, task=task, network=network.eval(), split=split)


def network_of(config: Config, task: Task) -> Callable[[], Network]:
    """What makes a network of a configuration, with the lengths of its task."""
    lengths = {"prompt_length": task.prompt_length, "answer_length": task.width}
    return partial(build, config["model"].get("net"), Network, **lengths)


def load_runs(pattern: str) -> list[tuple[Path, Subject]]:
    """Every seed of every run that a folder or a glob names, each with its run directory."""
    found = [pattern] if Path(pattern).is_dir() else glob.glob(pattern)
    paths = sorted(path for path in found if path == pattern or Path(path, "config.yaml").is_file())
    if not paths:
        raise UserError(f"run={pattern}: no such folder; expected a run directory, or a glob of them in quotes")
    return [(Path(path), load_run(path, seed)) for path in paths for seed in parse_seeds(_config(Run(path))["seed"])]


def load_checkpoint(path: Path | str, task: Task) -> Subject:
    """The network in a state dict of the paper's authors; which examples it was trained on is not known."""
    return Subject(name=Path(path).name, seed=0, task=task, network=load_official(path, task).eval(), split=None)


def _config(run: Run) -> Config:
    """The configuration of a run, once it is known to be one that could have been trained."""
    config = run.config()
    for key in ("seed", "task", "split", "model"):
        if key not in config:
            raise UserError(f"{run.path}: no run directory ({key} is missing in its config.yaml)")
    check(config)
    return config


def _state(run: Run, seed: int, index: int, replicas: int, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Final weights, or those of the last checkpoint while the run is still training."""
    weights = run.weights(seed)
    try:
        if weights.is_file():
            return fitting(load_file(weights), shapes, run.path)
        # Between two renames there is only the one before.
        checkpoint = run.checkpoint if run.checkpoint.is_file() else run.previous_checkpoint
        if checkpoint.is_file():
            saved, prefix = load_tensors(checkpoint)["state_dict"], "pack.stacked."
            stacks = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
            stacked = {name: torch.Size((replicas, *shape)) for name, shape in shapes.items()}
            stacks = fitting(stacks, stacked, run.path)
            return {name: stack[index].clone() for name, stack in stacks.items()}
    except UserError:
        raise
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        raise UserError(f"{run.path}: the weights of seed {seed} cannot be read ({type(error).__name__})") from error
    raise UserError(f"{run.path}: no weights of seed {seed}, neither weights/ nor last.ckpt")
