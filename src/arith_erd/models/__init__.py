"""The networks: `transformer` and `nanogpt` are the paper's architectures, `recurrent` and `mlp` baselines.

`network` is their interface. `attention` and `dropout` are parts of them, `decoding` uses them, `weights`
and `authors_weights` read them from files, and `references` are Transformers with weights written by hand.
"""

from .mlp import MLP
from .nanogpt import NanoGPT
from .network import Network
from .recurrent import GRU, LSTM
from .transformer import Transformer

__all__ = ["GRU", "LSTM", "MLP", "NanoGPT", "Network", "Transformer"]
