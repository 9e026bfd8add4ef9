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
    """The network with its weights from the page, and all tensors of the page by name."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(page["numbers"])), np.uint8)
    numbers = torch.from_numpy(planes.reshape(4, -1).T.copy().view("<f4").ravel())
    parts = numbers.split([math.prod(shape) for shape in page["shapes"].values()])
    named = zip(page["shapes"].items(), parts, strict=True)
    tensors = {name: part.reshape(tuple(shape)) for (name, shape), part in named}
    network = copy.deepcopy(model.network)
    network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    return Hooked(network, task=model.task, name=model.name), tensors
