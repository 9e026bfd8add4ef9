"""Train networks from Python with `fit`."""

import inspect
import json
import re
import tempfile
from collections.abc import Sequence
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

from torch import nn

from ..catalog.loading import load_seeds
from ..checks import as_python, require_type, user_path
from ..config.class_spec import trust_modules_of
from ..config.compose import Overrides, compose_config, typed_overrides
from ..config.job import read_job
from ..config.run_names import option_for_class
from ..errors import UserError, first_line
from ..interp.hooked import Hooked
from ..models import NanoGPT, Network
from ..runs.directory import TEMPORARY_PREFIX
from ..seeds import format_ranges, parse_seeds
from ..splits import RandomSplit, Split
from ..system.isolation import isolated
from ..tasks import Task
from .train import train


@isolated()
def fit(
    task: Task,
    model: type[Network] = NanoGPT,
    seeds: Sequence[int] | str = (0,),
    epochs: int | None = None,
    *,
    split: Split | None = None,
    overrides: Overrides = (),
    out: Path | str | None = None,
) -> list[Hooked]:
    """Train a network for each seed, all as one pack, and return them by ascending seed.

    >>> import arith_erd as ae
    >>> models = ae.fit(ae.Add(bits=2), ae.NanoGPT, seeds=[0, 1], epochs=1, overrides=["model.net.num_layers=1"])
    ... # doctest: +ELLIPSIS
    /...
    >>> models[1].seed, models[1].predict([1], [2]).shape
    (1, (1,))

    The runs are those of ``python train.py``: the same settings give the same weights and errors, and with ``out`` the
    same directories. So an interrupted run continues, and a finished one is just loaded.

    Args:
        task: the task to learn, one of ours or your own.
        model: a network class. Its recipe (optimizer, rate, clipping) is in ``conf/model/``; your own gets nanoGPT's.
        seeds: seeds of initial weights, batches and dropout, also as on the command line, ``"0-4"``.
        epochs: number of epochs; by default that of the paper (50 for addition, 250 for multiplication).
        split: says which examples are held out; by default a random quarter.
        overrides: further settings, as typed after ``python train.py``, such as ``["data.batch_size=32"]``, or as
            values, ``{"data.batch_size": 32}``. They must not repeat another argument.
        out: a folder for the run directories; None keeps nothing.

    Raises:
        UserError: as on the command line; or if an object does not keep a constructor argument under the same name.
    """
    split = RandomSplit() if split is None else split
    require_type("fit: task", task, Task)
    if not (isinstance(model, type) and issubclass(model, Network)):
        received = type(model).__name__ if isinstance(model, nn.Module) else repr(model)
        raise UserError(f"fit: model: received {received}; expected a subclass of Network, such as NanoGPT")
    if isinstance(seeds, Integral):
        raise UserError(f'fit: seeds: received {seeds!r}; expected range({seeds}), "0-2", or [{seeds}]')
    if inspect.isfunction(split) or isinstance(split, type) or not callable(split):
        raise UserError(f"fit: split: received {split!r}; expected a Split, such as ValueSplit()")
    overrides = typed_overrides(overrides)
    option = option_for_class("task", public_path(type(task)))
    recipe = option_for_class("model", public_path(model))
    argument_keys = r"(task|split)\b.*|model|seed|trainer\.max_epochs|runs_dir|experiment"
    argument_keys += "" if recipe else r"|model\.net\b.*|ablation=(?!none$).*|scale=(?!full$).*"  # own defaults
    if repeated := [override for override in overrides if re.match(rf"[+~]*({argument_keys})(=|$)", override)]:
        raise UserError(f"fit: overrides: {repeated[0]}: use an argument of fit or your class, one call for each run")
    trust_modules_of(type(task), type(split), model)
    cli_overrides = [f"model={recipe or 'nanogpt'}", *([f"task={option}"] if option else [])]
    cli_overrides += [f"seed='{format_ranges(parse_seeds(seeds))}'"]
    cli_overrides += [] if epochs is None else [f"trainer.max_epochs={epochs}"]
    config = compose_config([*cli_overrides, *overrides])
    config |= {"task": group_of_object("task", task), "split": group_of_object("split", split)}
    if recipe is None:
        config["model"] |= {"name": model.__name__.lower(), "net": {"_target_": public_path(model)}}
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX) as folder:
        job = read_job(config | {"runs_dir": folder if out is None else str(user_path(out, "out"))})
        return [model for run in train(job) for model in load_seeds(run.path)]


def group_of_object(group: str, instance: Any) -> dict[str, Any]:
    """An object as its group in a configuration: ``{"name": "add", "_target_": "arith_erd.tasks.Add", "bits": 5}``.

    Raises a `UserError` if the constructor takes an argument that the object does not keep under the same name.
    """
    cls = type(instance)
    parameters = inspect.signature(cls).parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if missing := [name for name in names if not hasattr(instance, name)]:
        accepted = f"an attribute {missing[0]}, as its constructor has such an argument"
        raise UserError(f"{group}={cls.__name__}: needs {accepted}")
    values = {name: as_python(getattr(instance, name)) for name in names}
    try:
        json.dumps(values)
    except (TypeError, ValueError) as error:
        accepted = "arguments of numbers, text, lists and dictionaries, which config.yaml can hold"
        raise UserError(f"{group}={cls.__name__}: {first_line(error)}; expected {accepted}") from error
    option = option_for_class(group, public_path(cls)) or getattr(instance, "name", cls.__name__.lower())
    return {"name": option, "_target_": public_path(cls), **values}


def public_path(cls: type) -> str:
    """The import path of a class: from its package if possible, as ``arith_erd.tasks.Add``, else from its module."""
    package = cls.__module__.rpartition(".")[0]
    exported = getattr(import_module(package), cls.__name__, None) if "." in package else None
    return f"{package if exported is cls else cls.__module__}.{cls.__name__}"
