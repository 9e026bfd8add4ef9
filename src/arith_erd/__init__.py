"""arith_erd: how does a language model compute? Tiny Transformers, binary arithmetic, packs of seeds.

The names below are the public API. They load on first use: importing the package loads neither torch nor Hydra.

>>> import arith_erd as ae
>>> model = ae.load_pretrained("add-nanogpt")
>>> model.predict([100], [27])
array([127])
"""

import ast
import random
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalog.export import push_to_hub, save_pretrained, show, to_hooked_transformer
    from .catalog.loading import load_authors_weights, load_pretrained, load_references, load_run, load_seeds
    from .catalog.scoring import score_method, zoo
    from .config.class_spec import trust
    from .config.compose import compose
    from .errors import UserError
    from .interp.causal_model import CausalModel
    from .interp.counterfactuals import CounterfactualDataset
    from .interp.coupling import CouplingLayers
    from .interp.das import fit_das
    from .interp.erasure import Eraser, flip_signs, inlp, leace, mean_projection
    from .interp.hooked import Hooked
    from .interp.interchange_accuracy import interchange_accuracy
    from .interp.interventions import Erase, Features, Interchange, Intervention, Replace, Steer, Subspace
    from .interp.linear_probe import linear_probe
    from .interp.patching import patch
    from .loggers import Logger
    from .losses import Loss
    from .mechanism.certificate import certificate
    from .models import GRU, LSTM, MLP, NanoGPT, Network, Transformer
    from .probes.probe import NetworkProbe, Probe
    from .probes.run_probe import ProbeResult, probe
    from .runs.table import load_table
    from .splits import LengthSplit, RandomSplit, Split, TokenSplit, ValueSplit
    from .tasks import Add, Add3, AddScratchpad, Examples, ModAdd, Mul, RandomOutput, Sub, Task
    from .training.fit import fit
    from .training.train import train

__version__ = "1.0.0"

__all__ = ["__version__"]
__all__ += ["GRU", "LSTM", "MLP", "Add", "Add3", "AddScratchpad", "CausalModel", "CounterfactualDataset"]
__all__ += ["CouplingLayers", "Erase", "Eraser", "Examples", "Features", "Hooked", "Interchange", "Intervention"]
__all__ += ["LengthSplit", "Logger", "Loss"]
__all__ += ["ModAdd", "Mul", "NanoGPT", "Network", "NetworkProbe", "Probe", "ProbeResult", "RandomOutput"]
__all__ += ["RandomSplit", "Replace", "Split", "Steer", "Sub", "Subspace", "Task", "TokenSplit", "Transformer"]
__all__ += ["UserError", "ValueSplit", "certificate", "compose", "fit", "fit_das", "flip_signs", "inlp"]
__all__ += ["interchange_accuracy", "leace", "linear_probe", "load_authors_weights", "load_pretrained"]
__all__ += ["load_references", "load_run", "load_seeds", "load_table", "mean_projection", "patch", "probe"]
__all__ += ["push_to_hub", "save_pretrained", "score_method", "show", "to_hooked_transformer", "train", "trust"]
__all__ += ["zoo"]


@cache
def _homes() -> dict[str, str]:
    """Name -> module, from the imports above, which type checkers read too."""
    nodes = ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]
    return {alias.name: f".{node.module}" for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    state = random.getstate()
    value = getattr(import_module(_homes()[name], __name__), name)
    random.setstate(state)  # rich draws numbers as it loads
    if not isinstance(value, type):
        value = _refusing_unknown_arguments(value)
    globals()[name] = value
    return value


def _refusing_unknown_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; arguments that it does not take are a `UserError` with what is nearest."""
    taken = signature(function)

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        try:
            taken.bind(*args, **named)
        except TypeError as error:
            from .config.compose import arguments_error

            raise arguments_error(function.__name__, [*taken.parameters], named, str(error)) from None
        return function(*args, **named)

    checked.__module__ = __name__  # where pickle finds it
    return checked


def __dir__() -> list[str]:
    return sorted(__all__)
