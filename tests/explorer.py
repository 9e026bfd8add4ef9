"""What an explorer's page holds, read back without the package."""

import base64
import copy
import math
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arith_erd.interp.hooked import Hooked


def unpacked(model: Hooked, page: dict[str, Any]) -> tuple[Hooked, dict[str, Tensor]]:
    """The network with the weights that the page has of it, and all tensors there by name."""
    numbers, start = zlib.decompress(base64.b64decode(page["numbers"])), 0
    tensors = {}
    for name, shape, bits in page["tensors"]:
        x = np.frombuffer(numbers, f"<f{bits // 8}", math.prod(shape), start)
        tensors[name] = torch.from_numpy(x.astype(np.float32)).reshape(tuple(shape))
        start += x.nbytes
    network = copy.deepcopy(model.network)
    network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    return Hooked(network, task=model.task, name=model.name), tensors
