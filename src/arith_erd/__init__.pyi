"""The public API, for `__init__.py` and for type checkers: each name, and the module that it is loaded from."""

# ruff: noqa: I001 - in the order in which a reader meets the names

# Tasks: what is computed, and its examples
from .tasks import Task as Task
from .tasks import Examples as Examples
from .tasks import Add as Add
from .tasks import Add3 as Add3
from .tasks import AddScratchpad as AddScratchpad
from .tasks import Sub as Sub
from .tasks import Mul as Mul
from .tasks import ModAdd as ModAdd
from .tasks import RandomOutput as RandomOutput

# Splits: which examples are held out
from .splits import Split as Split
from .splits import RandomSplit as RandomSplit
from .splits import TokenSplit as TokenSplit
from .splits import ValueSplit as ValueSplit
from .splits import LengthSplit as LengthSplit

# Networks to train
from .models import Network as Network
from .models import Transformer as Transformer
from .models import NanoGPT as NanoGPT
from .models import GRU as GRU
from .models import LSTM as LSTM
from .models import MLP as MLP

# Training
from .training.fit import fit as fit
from .config.compose import compose as compose
from .training.train import train as train
from .runs.table import load_table as load_table
from .losses import Loss as Loss
from .loggers import Logger as Logger

# Trained networks, by name or folder
from .catalog.loading import load_pretrained as load_pretrained
from .catalog.loading import load_run as load_run
from .catalog.loading import load_seeds as load_seeds
from .catalog.loading import load_weights as load_weights
from .catalog.loading import load_authors_weights as load_authors_weights  # the old name of load_weights, until 2.0
from .catalog.loading import load_handcoded as load_handcoded
from .catalog.loading import load_references as load_references  # the old name of load_handcoded, until 2.0

# Networks with hooks, and linear probes of their activations
from .interp.hooked import Hooked as Hooked
from .interp.hooked import Provenance as Provenance
from .interp.linear_probe import linear_probe as linear_probe
from .interp.linear_probe import LinearProbeResult as LinearProbeResult

# Interventions
from .interp.patching import patch as patch
from .interp.patching import PatchResult as PatchResult
from .interp.interventions import Intervention as Intervention
from .interp.interventions import InterventionContext as InterventionContext
from .interp.interventions import Replace as Replace
from .interp.interventions import Steer as Steer
from .interp.interventions import Interchange as Interchange
from .interp.interventions import Erase as Erase
from .interp.interventions import Features as Features
from .interp.interventions import Subspace as Subspace

# Causal models and their tests
from .interp.causal_model import CausalModel as CausalModel
from .interp.counterfactuals import CounterfactualDataset as CounterfactualDataset
from .interp.interchange_accuracy import interchange_accuracy as interchange_accuracy
from .interp.das import fit_das as fit_das
from .interp.das import CouplingLayers as CouplingLayers
from .mechanism.certificate import certificate as certificate
from .mechanism.certificate import Certificate as Certificate

# Erasure
from .interp.erasure import Eraser as Eraser
from .interp.erasure import leace as leace
from .interp.erasure import mean_projection as mean_projection
from .interp.erasure import inlp as inlp
from .interp.erasure import flip_signs as flip_signs

# Probes: the questions of `conf/probe/`, and your own
from .probes.run_probe import probe as probe
from .probes.result import ProbeResult as ProbeResult
from .probes.probe import Probe as Probe
from .probes.probe import NetworkProbe as NetworkProbe

# Scores of methods
from .catalog.zoo import zoo as zoo
from .catalog.zoo import LabelledNetwork as LabelledNetwork
from .catalog.scoring import Evidence as Evidence
from .catalog.scoring import score_method as score_method
from .catalog.scoring import compare_methods as compare_methods

# Export
from .catalog.export import show as show
from .catalog.export import save_pretrained as save_pretrained
from .catalog.export import push_to_hub as push_to_hub
from .catalog.export import to_hooked_transformer as to_hooked_transformer

# Errors, and permission for code of your own
from .errors import UserError as UserError
from .config.class_spec import trust as trust

__version__: str
