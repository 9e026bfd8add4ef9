"""The networks: `transformer` and `nanogpt` are the architectures, which configurations name in ``_target_``.

`network` is their interface. `attention` and `dropout` are parts of them, `decoding` uses them, `weights`
and `authors_weights` read them from files, and `references` are Transformers with weights written by hand.
"""

from .nanogpt import NanoGPT
from .network import Network
from .transformer import Transformer

__all__ = ["NanoGPT", "Network", "Transformer"]
