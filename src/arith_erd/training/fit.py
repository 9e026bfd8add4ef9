"""Train networks from Python with `fit`."""

import inspect
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from ..config.build import trust_classes
from ..config.compose import CONF, compose
from ..config.job import read_job
from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.loading import load_seeds
from ..models import NanoGPT, Network
from ..seeds import format_seeds, parse_seeds
from ..splits import RandomSplit, Split
from ..tasks import Task
from .train import train


def fit(
    task: Task,
    model: type[Network] = NanoGPT,
    seeds: Sequence[int] | int | str = (0,),
    epochs: int | None = None,
    *,
    split: Split | None = None,
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
) -> list[Hooked]:
    """Train a network for each seed, all as one pack, and return them by ascending seed.

    >>> import arith_erd as ae
    >>> models = ae.fit(ae.Add(bits=2), ae.NanoGPT, seeds=[0, 1], epochs=1, overrides=["model.net.num_layers=1"])
    ... # doctest: +ELLIPSIS
    /...
    >>> models[1].seed, models[1].predict([1], [2]).shape
    (1, (1,))

    The runs are those of ``python train.py``: the same settings give the same weights, the same refusals, and with
    ``out`` the same directories, so a run that was interrupted continues and a finished one is only loaded.

    Args:
        task: what to learn, one of ours or your own.
        model: a class of networks. Its recipe (optimizer, rate, clipping) is that of its file in ``conf/model/``; a
            class of your own gets nanoGPT's.
        seeds: of initial weights, batches and dropout; also as on the command line, ``"0-4"``.
        epochs: by default as many as the paper's (50 for addition, 250 for multiplication).
        split: says which examples are held out; by default a random quarter.
        overrides: further settings, as typed after ``python train.py``, such as ``["data.batch_size=32"]``. None of
            them may repeat another argument.
        out: a folder for the run directories; None keeps nothing.

    Raises:
        UserError: as on the command line; or if an object does not keep a constructor argument under the same name.
    """
    split = RandomSplit() if split is None else split
    if not isinstance(task, Task):
        raise UserError(f"fit: task: received {task!r}; expected a Task, such as Add(bits=5)")
    if not (isinstance(model, type) and issubclass(model, Network)):
        raise UserError(f"fit: model: received {model!r}; expected a subclass of Network, such as NanoGPT")
    if inspect.isfunction(split) or not callable(split):
        raise UserError(f"fit: split: received {split!r}; expected a Split, such as ValueSplit()")
    groups = {"task": described("task", task), "split": described("split", split)}
    _require_further(overrides, own_model=named("model", model) is None, epochs=epochs)
    trust_classes(type(task), type(split), model)
    chosen = {"task": named("task", type(task)), "model": named("model", model) or "nanogpt"}
    typed = [f"{group}={name}" for group, name in chosen.items() if name]
    ours = groups["task"]["_target_"].startswith("arith_erd.")  # whose files have all options
    sizes = {*groups["task"]} - {"name", "_target_"} if ours else {"bits", "base", "min_bits"}
    known = {key: value for key, value in groups["task"].items() if key in sizes and value is not None}
    typed += [f"task.{key}={value}" for key, value in known.items()]  # other settings are checked beside them
    typed += [f"seed='{format_seeds(parse_seeds(seeds if isinstance(seeds, int | str) else [*seeds]))}'"]
    typed += [] if epochs is None else [f"trainer.max_epochs={epochs}"]
    resolved = compose("train", [*typed, *overrides]).resolved
    recipe = resolved["model"]
    if named("model", model) is None:
        recipe = recipe | {"name": model.__name__.lower(), "net": {"_target_": public_path(model)}}
    groups["model"] = recipe
    with tempfile.TemporaryDirectory(prefix="arith_erd-") as folder:
        job = read_job(resolved | groups | {"runs_dir": str(out or folder)})
        return [model for run in train(job) for model in load_seeds(run.path)]


def _require_further(overrides: Sequence[str], own_model: bool, epochs: int | None) -> None:
    """Raise a `UserError` if an override repeats another argument of `fit`: one of the two would be ignored."""
    if isinstance(overrides, str) or not all(isinstance(one, str) for one in overrides):
        raise UserError(f"fit: overrides: received {overrides!r}; expected a list of strings")
    arguments = {"task": "task", "split": "split", "seed": "seeds", "runs_dir": "out"}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key == "experiment":
            raise UserError(f"fit: overrides: {override}: is a sweep of several jobs; call fit once for each")
        argument = arguments.get(key.partition(".")[0]) or ("model" if key == "model" else "")
        if key == "trainer.max_epochs" and epochs is not None:
            argument = "epochs"
        if own_model and key.startswith("model.net."):
            argument = "model, a class with this default"
        if argument:
            raise UserError(f"fit: overrides: {override}: use the argument {argument} instead")


def described(group: str, made: Any) -> dict[str, Any]:
    """An object as its group in a configuration: ``{"name": "add", "_target_": "arith_erd.tasks.Add", "bits": 5}``.

    Raises a `UserError` if the constructor takes an argument that the object does not keep under the same name.
    """
    kind = type(made)
    parameters = inspect.signature(kind).parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if missing := [name for name in names if not hasattr(made, name)]:
        accepted = f"an attribute {missing[0]}, as its constructor has such an argument"
        raise UserError(f"{group}={kind.__name__}: needs {accepted}")
    own = named(group, kind) or getattr(made, "name", kind.__name__.lower())
    return {"name": own, "_target_": public_path(kind), **{name: getattr(made, name) for name in names}}


def named(group: str, made: type) -> str | None:
    """The name of a class's file in ``conf/GROUP/``; None if there is none."""
    return _files(group).get(public_path(made))


@cache
def _files(group: str) -> dict[str, str]:
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (CONF / group).glob("*.yaml")}
    return {entry.get("net", entry).get("_target_"): stem for stem, entry in files.items()}


def public_path(made: type) -> str:
    """The import path of a class: from its package if possible, as ``arith_erd.tasks.Add``, else from its module."""
    package = made.__module__.rpartition(".")[0]
    above = getattr(import_module(package), made.__name__, None) if "." in package else None
    return f"{package if above is made else made.__module__}.{made.__name__}"
