"""arith_erd: how does a language model compute? Tiny Transformers, binary arithmetic, packs of seeds.

The names below are the public API. They are loaded on first use: importing the package loads neither torch nor Hydra.

>>> import arith_erd
>>> arith_erd.compose("train", ["task=mul", "seed=0-4"]).seeds
(0, 1, 2, 3, 4)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config.compose import compose as compose
    from .interp.causal_model import CausalModel as CausalModel
    from .interp.counterfactuals import CounterfactualDataset as CounterfactualDataset
    from .interp.das import fit_das as fit_das
    from .interp.hooked import Hooked as Hooked
    from .interp.interchange import interchange_accuracy as interchange_accuracy
    from .interp.interventions import Interchange as Interchange
    from .interp.loading import load_pretrained as load_pretrained
    from .interp.loading import load_run as load_run
    from .models import Network as Network
    from .probes.probe import Probe as Probe
    from .splits import Split as Split
    from .tasks import Task as Task
    from .training.train import train as train

__version__ = "0.1.0"

_HOMES = {
    "CausalModel": "interp.causal_model",
    "CounterfactualDataset": "interp.counterfactuals",
    "Interchange": "interp.interventions",
    "Network": "models",
    "Probe": "probes.probe",
    "Split": "splits",
    "Hooked": "interp.hooked",
    "Task": "tasks",
    "compose": "config.compose",
    "fit_das": "interp.das",
    "interchange_accuracy": "interp.interchange",
    "load_pretrained": "interp.loading",
    "load_run": "interp.loading",
    "train": "training.train",
}

__all__ = [
    *("CausalModel", "CounterfactualDataset", "Interchange", "fit_das", "interchange_accuracy"),
    *("Network", "Probe", "Split", "Hooked", "Task", "__version__"),
    *("compose", "load_pretrained", "load_run", "train"),
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
