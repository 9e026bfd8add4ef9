"""One HTML file with everything in it: networks, data and program. Its sources are beside this file."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError
from ...tasks import Task
from ..hooked import Hooked
from ..sites import residual_stream
from .measure import Measured, heads_of, measure

SOURCES = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    """A page, which a notebook shows in a frame that needs no kernel."""

    html: str

    def _repr_html_(self) -> str:
        style = "width:100%;height:900px;border:1px solid #8888"
        return (
            f'<iframe sandbox="allow-scripts allow-popups" title="explorer" style="{style}" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )


def explorer_page(models: Sequence[Hooked], pairs: int = 512) -> str:
    """The page of some networks of one task, the first of which it opens with.

    Args:
        models: networks of this package's two classes.
        pairs: random examples over which means are taken and directions fitted.

    Raises:
        UserError: for a network of another class, or of another task than the first.
    """
    return write_page([measure(model, pairs) for model in models])


def write_page(networks: Sequence[Measured]) -> str:
    """The page of networks that have been measured.

    Raises:
        UserError: for networks of different tasks.
    """
    task = networks[0].model.task
    for one in networks:
        if _describe(one.model.task) != _describe(task):
            other = f"{one.model.task.name}, {one.model.task.bits} {one.model.task.digits}"
            raise UserError(f"explorer: {one.model.name} answers {other}; expected the first one's task, {task.name}")
    answers = torch.from_numpy(task.examples().answer.reshape(task.shape))
    data = {"task": _describe(task), "answers": _pack({"answers": answers}, 32), "networks": [*map(_network, networks)]}
    script = "\n".join((SOURCES / name).read_text(encoding="utf-8") for name in ("network.js", "explorer.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = (SOURCES / "explorer.html").read_text(encoding="utf-8")
    text = json.dumps(data).replace("<", "\\u003c")  # no tag inside can end the element
    for mark, value in (("SHA256", digest), ("DATA", text), ("SCRIPT", script)):
        page = page.replace(f"%{mark}%", value, 1)
    return page


def _network(one: Measured) -> dict[str, Any]:
    network = one.model.network
    return {
        "name": one.model.name,
        "seed": one.model.seed,
        "kind": type(network).__name__,
        "heads": heads_of(network),
        "layers": len(network.decoder if hasattr(network, "decoder") else network.blocks),
        "positions": not isinstance(network.positions, torch.nn.Identity | None),
        "stream": residual_stream(one.model.sites),
        "effects": [asdict(effect) for effect in one.effects],
        "parameters": sum(p.numel() for p in network.parameters()),
        "weights": _pack(one.tensors, one.bits),
    }


def _describe(task: Task) -> dict[str, Any]:
    names = ("name", "operator", "bits", "base", "limit", "width", "prompt_order", "completion_order")
    listed = ("shape", "operand_names", "prompt_names", "answer_names")
    return {name: getattr(task, name) for name in names} | {name: [*getattr(task, name)] for name in listed}


def _pack(tensors: Mapping[str, Tensor], bits: int) -> dict[str, Any]:
    """Tensors as text: their numbers in sequence, deflated, in base64."""
    precision = np.dtype("<f2" if bits == 16 else "<f4")
    numbers = np.concatenate([x.detach().numpy().astype(precision).ravel() for x in tensors.values()])
    text = base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()
    return {"bits": bits, "shapes": [[name, list(x.shape)] for name, x in tensors.items()], "text": text}
