"""A network as probes see it: from a run, from a file of weights, or written by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..config.read import read_run
from ..errors import UserError, require_integer
from ..models.authors_weights import load_official
from ..models.network import Network
from ..models.references import reference, written_for
from ..models.transformer import Transformer
from ..models.weights import checked_state, initialise, load_tensors, read_state
from ..runs import Run, matching
from ..splits import Split
from ..tasks import Task
from .epochs import chosen_epochs


@dataclass(frozen=True)
class Subject:
    """One trained replica.

    >>> from arith_erd import load_pretrained
    >>> subject = load_pretrained("add-transformer")
    >>> subject.task.name, subject.seed, type(subject.network).__name__, subject.network.training
    ('add', 0, 'Transformer', False)
    """

    name: str
    """Of the run, or of the file that the weights came from."""
    seed: int
    task: Task
    network: Network
    """In evaluation mode, on the CPU."""
    split: Split | None
    """None if it is not known which examples were held out: weights without a run."""
    untrained: Callable[[], Network] | None = None
    """Makes the same network with fresh initial weights; None if that is not known."""
    epoch: int | None = None
    """After which the weights were kept; None for the last ones that there are."""


def load_run(path: Path | str, seed: int | None = None, epoch: int | None = None) -> Subject:
    """One replica of a run: with its final weights, or with those of the last checkpoint of an unfinished run.

    Nothing in the folder is trusted: its configuration reaches classes of this package only, and weights are tensors.

    >>> from arith_erd.interp.pretrained import pretrained
    >>> path = pretrained()["add-transformer"][0]  # a run directory, as results/runs/NAME
    >>> load_run(path, seed=0).task.name
    'add'
    >>> load_run(path, epoch=0).epoch  # before training
    0

    Args:
        path: of the run directory.
        seed: of the replica; by default the run's first.
        epoch: take the weights as they were after this epoch, which ``checkpoint.keep`` kept. 0 is the network before
            training, made from its seed again. By default the final weights.

    Raises:
        UserError: if the folder does not hold a run, the run does not have the seed, or the seed has no weights, or
            not those of the epoch, with those that are there.
    """
    run = Run(path)
    job = read_run(run)
    seed = job.seeds[0] if seed is None else seed
    if seed not in job.seeds:
        raise UserError(f"seed={seed}: {run.path} has the seeds {', '.join(map(str, job.seeds))}")
    if epoch is not None:
        require_integer("epoch", epoch, 0)
        chosen_epochs(run, [seed], (epoch,))
    with torch.device("meta"):  # without memory: a configuration may ask for any size, and only weights that fit count
        shapes = {name: p.shape for name, p in job.network().state_dict().items()}
    state = _state(run, seed, job.seeds.index(seed), len(job.seeds), shapes, epoch)
    network = initialise(job.network, seed)
    if epoch != 0:
        network.load_state_dict(state)
    return Subject(run.name, seed, job.task, network.eval(), job.split, untrained=job.network, epoch=epoch)


def find_runs(pattern: str) -> list[Path]:
    """The run directories that a folder or a glob names.

    Raises:
        UserError: if there are none.
    """
    if not (paths := matching(pattern)):
        raise UserError(f"run={pattern}: no such folder; expected a run directory, or a glob of them in quotes")
    return paths


def load_runs(pattern: str) -> list[tuple[Path, Subject]]:
    """Every seed of every run that a folder or a glob names, each with its run directory."""
    return [(path, subject) for path in find_runs(pattern) for subject in load_seeds(path)]


def load_seeds(path: Path | str, epoch: int | None = None) -> list[Subject]:
    """Every replica of a run; see `load_run`."""
    return [load_run(path, seed, epoch) for seed in read_run(Run(path)).seeds]


def load_checkpoint(path: Path | str, task: Task) -> Subject:
    """The network in a state dict of the paper's authors; it is not known which examples it was trained on."""
    network = load_official(path, task)
    untrained = partial(Transformer, task.prompt_length, task.width)  # the released models have the default size
    return Subject(name=Path(path).name, seed=0, task=task, network=network, split=None, untrained=untrained)


def load_state(path: Path | str, task: Task, make: Callable[[], Network]) -> Subject:
    """The network in a state dict under our own names, a safetensors file or one that PyTorch saved.

    Args:
        make: gives the network that the weights are for, as `ProbeJob.network` does.

    Raises:
        UserError: if the file cannot be read, or holds anything but the weights of such a network.
    """
    path = Path(path)
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in make().state_dict().items()}
    state = read_state(path)
    network = make()
    network.load_state_dict(checked_state(state, shapes, f"checkpoint={path}", "model= and task="))
    return Subject(name=path.name, seed=0, task=task, network=network.eval(), split=None)


def load_references(name: str, seeds: Sequence[int], task: Task) -> list[Subject]:
    """Variants of a network whose algorithm is known (`arith_erd.models.references`).

    Raises:
        UserError: if there is none of that name, or the task is not the one that they were written for.
    """
    if not written_for(task):
        orders = (task.prompt_order, task.completion_order)
        raise UserError(
            f"reference={name}: adds at task.bits=7 in reverse order; "
            f"received task={task.name}, task.bits={task.bits}, prompt_order={orders[0]}, completion_order={orders[1]}"
        )
    return [
        Subject(name=f"reference-{name}", seed=seed, task=task, network=reference(name, seed).network, split=None)
        for seed in seeds
    ]


def _state(
    run: Run, seed: int, index: int, replicas: int, shapes: dict[str, torch.Size], epoch: int | None
) -> dict[str, Tensor]:
    """Weights after an epoch; else the final ones, or those of the last checkpoint while the run is still training."""
    weights = run.weights(seed, epoch if epoch in run.kept_epochs(seed) else None)
    try:
        if weights.is_file():
            return checked_state(load_file(weights), shapes, str(run.path))
        # Between two renames there is only the previous one.
        checkpoint = run.checkpoint if run.checkpoint.is_file() else run.previous_checkpoint
        if checkpoint.is_file():
            saved, prefix = load_tensors(checkpoint)["state_dict"], "pack.stacked."
            stacks = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
            stacked = {name: torch.Size((replicas, *shape)) for name, shape in shapes.items()}
            stacks = checked_state(stacks, stacked, str(run.path))
            return {name: stack[index].clone() for name, stack in stacks.items()}
    except UserError:
        raise
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        raise UserError(f"{run.path}: the weights of seed {seed} cannot be read ({type(error).__name__})") from error
    raise UserError(f"{run.path}: no weights of seed {seed}, neither weights/ nor last.ckpt")
