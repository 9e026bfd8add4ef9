"""arith_erd: how does a language model compute? Tiny Transformers, binary arithmetic, packs of seeds.

The names below are the public API. They load on first use: importing the package loads neither torch nor Hydra.

>>> import arith_erd as ae
>>> model = ae.load_pretrained("add-nanogpt")
>>> model.predict([100], [27])
array([127])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config.build import trust as trust
    from .config.compose import compose as compose
    from .errors import UserError as UserError
    from .interp.causal_model import CausalModel as CausalModel
    from .interp.counterfactuals import CounterfactualDataset as CounterfactualDataset
    from .interp.das import fit_das as fit_das
    from .interp.erasure import flip_signs as flip_signs
    from .interp.erasure import leace as leace
    from .interp.hooked import Hooked as Hooked
    from .interp.interchange import interchange_accuracy as interchange_accuracy
    from .interp.interventions import Erase as Erase
    from .interp.interventions import Interchange as Interchange
    from .interp.interventions import Replace as Replace
    from .interp.interventions import Steer as Steer
    from .interp.interventions import Subspace as Subspace
    from .interp.loading import load_authors_weights as load_authors_weights
    from .interp.loading import load_pretrained as load_pretrained
    from .interp.loading import load_references as load_references
    from .interp.loading import load_run as load_run
    from .interp.scoring import score_method as score_method
    from .interp.scoring import zoo as zoo
    from .models import GRU as GRU
    from .models import LSTM as LSTM
    from .models import MLP as MLP
    from .models import NanoGPT as NanoGPT
    from .models import Network as Network
    from .models import Transformer as Transformer
    from .probes.probe import Probe as Probe
    from .probes.run_probe import ProbeResult as ProbeResult
    from .probes.run_probe import probe as probe
    from .runs.table import load_table as load_table
    from .splits import LengthSplit as LengthSplit
    from .splits import RandomSplit as RandomSplit
    from .splits import Split as Split
    from .splits import TokenSplit as TokenSplit
    from .splits import ValueSplit as ValueSplit
    from .tasks import Add as Add
    from .tasks import Add3 as Add3
    from .tasks import AddScratchpad as AddScratchpad
    from .tasks import Examples as Examples
    from .tasks import ModAdd as ModAdd
    from .tasks import Mul as Mul
    from .tasks import RandomOutput as RandomOutput
    from .tasks import Sub as Sub
    from .tasks import Task as Task
    from .training.fit import fit as fit
    from .training.train import train as train

__version__ = "0.1.0"

_HOMES = {
    "config.build": ("trust",),
    "config.compose": ("compose",),
    "errors": ("UserError",),
    "interp.causal_model": ("CausalModel",),
    "interp.counterfactuals": ("CounterfactualDataset",),
    "interp.erasure": ("flip_signs", "leace"),
    "interp.hooked": ("Hooked",),
    "interp.interchange": ("interchange_accuracy",),
    "interp.interventions": ("Erase", "Interchange", "Replace", "Steer", "Subspace"),
    "interp.loading": ("load_authors_weights", "load_pretrained", "load_references", "load_run"),
    "interp.scoring": ("score_method", "zoo"),
    "interp.das": ("fit_das",),
    "models": ("GRU", "LSTM", "MLP", "NanoGPT", "Network", "Transformer"),
    "probes.run_probe": ("ProbeResult", "probe"),
    "probes.probe": ("Probe",),
    "runs.table": ("load_table",),
    "splits": ("LengthSplit", "RandomSplit", "Split", "TokenSplit", "ValueSplit"),
    "tasks": ("Add", "Add3", "AddScratchpad", "Examples", "ModAdd", "Mul", "RandomOutput", "Sub", "Task"),
    "training.fit": ("fit",),
    "training.train": ("train",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
