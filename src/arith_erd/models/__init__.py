"""The networks: one file an architecture, found by Hydra through ``_target_``."""

from .nanogpt import NanoGPT
from .network import Network, Tree
from .transformer import Transformer

__all__ = ["NanoGPT", "Network", "Transformer", "Tree"]
