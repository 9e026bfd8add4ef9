"""The networks: `transformer` and `nanogpt` are the paper's architectures, `recurrent` and `mlp` baselines."""

from .mlp import MLP
from .nanogpt import NanoGPT
from .network import Network
from .recurrent import GRU, LSTM
from .transformer import Transformer

__all__ = ["GRU", "LSTM", "MLP", "NanoGPT", "Network", "Transformer"]
