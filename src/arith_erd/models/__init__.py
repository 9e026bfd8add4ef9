"""The networks: `transformer` and `nanogpt` are the paper's architectures; the others are `baselines`."""

from .baselines import GRU, LSTM, MLP
from .nanogpt import NanoGPT
from .network import Network
from .transformer import Transformer

__all__ = ["GRU", "LSTM", "MLP", "NanoGPT", "Network", "Transformer"]
