"""One HTML file with everything in it: networks, data and program. Its sources are beside this file."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...errors import UserError
from ...models.attention import Heads
from ...tasks import Task
from ..hooked import Hooked
from ..sites import residual_stream
from .measure import Measured, measure

SOURCES = Path(__file__).parent
RESULTS = Path(__file__).parents[4] / "results"
CARDS = "mechanism-cards.csv", "card-evidence.csv"
PREFIXES = "found/appendix/#the-prefix-counts-by-place-value"
PATCHES = "found/appendix/#patching-site-by-site"
FOUND = {"invert": PREFIXES, "exchange": PATCHES, "off": PATCHES, "tokens": PATCHES, "steer": PREFIXES}
"""Interventions, and where the documentation says how what was found about each was measured."""


@dataclass(frozen=True)
class Page:
    """A page, which a notebook shows in a frame that needs no kernel."""

    html: str

    def _repr_html_(self) -> str:
        style = "width:100%;height:900px;border:1px solid #8888"
        sandbox = 'sandbox="allow-scripts allow-popups"'
        return f'<iframe {sandbox} title="explorer" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def explorer_page(models: Sequence[Hooked], pairs: int = 512, docs: str = "") -> str:
    """The page of some networks, each measured with ``pairs`` random examples; see `measure` and `write_page`."""
    return write_page([measure(model, pairs) for model in models], docs)


def write_page(networks: Sequence[Measured], docs: str = "") -> str:
    """The page of networks of one task, which opens with the first and links the documentation at ``docs``, if given.

    Raises:
        UserError: for a network of another task than the first.
    """
    task = networks[0].model.task
    for one in networks:
        if _describe(one.model.task) != _describe(task):
            other = f"{one.model.task.name}, {one.model.task.bits} {one.model.task.digits}"
            raise UserError(f"explorer: {one.model.name} answers {other}; expected the first one's task, {task.name}")
    answers = _pack({"answers": torch.from_numpy(task.examples().answer.reshape(task.shape))}, 32)
    data = {"task": _describe(task), "answers": answers, "docs": docs, "found": FOUND}
    text = json.dumps(data | {"networks": [*map(_network, networks)]}).replace("<", "\\u003c")  # no tag can end it
    script = "\n".join((SOURCES / name).read_text(encoding="utf-8") for name in ("network.js", "explorer.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = (SOURCES / "explorer.html").read_text(encoding="utf-8")
    for mark, value in (("SHA256", digest), ("DATA", text), ("SCRIPT", script)):
        page = page.replace(f"%{mark}%", value, 1)
    return page


def _network(one: Measured) -> dict[str, Any]:
    network = one.model.network
    return {
        "name": one.model.name,
        "seed": one.model.seed,
        "kind": type(network).__name__,
        "heads": next((module.num_heads for module in network.modules() if isinstance(module, Heads)), 1),
        "layers": len(network.decoder if hasattr(network, "decoder") else network.blocks),
        "positions": not isinstance(network.positions, torch.nn.Identity | None),
        "stream": residual_stream(one.model.sites),
        "missed": one.missed,
        "found": {} if one.model.epoch is not None else found(one.model.name, one.model.seed),
        "parameters": sum(p.numel() for p in network.parameters()),
        "weights": _pack(one.tensors, one.bits),
    }


def found(name: str, seed: int) -> dict[str, str]:
    """A sentence by intervention, with numbers of `CARDS` in ``results/``; none for a network not in there."""
    ours = re.match("add-random-(transformer|nanogpt)-none-seed", name)  # other options stand in front of the seed
    network = ours[1] if ours else "authors" if name == "add_model" else None
    if network is None or not (RESULTS / CARDS[0]).is_file():
        return {}
    cards = pd.concat([pd.read_csv(RESULTS / name) for name in CARDS])
    cards = cards.query("network == @network and seed == @seed and control.isna()")
    if cards.empty:
        return {}
    signature = cards.query("test == 'signature'").set_index("component")["value"].clip(lower=0)

    def span(*components: str) -> str:
        low, high = (f"{end:.0%}" for end in signature[[*components]].agg(["min", "max"]))
        return low if low == high else f"{low} to {high}"

    patched = cards.query("test == 'interchange' and component == 'carry'").groupby("site", sort=False)["value"].mean()
    start, end = (f"{share:.0%} of pairs after {site}" for site, share in patched.iloc[[0, -1]].items())
    flips = span("flip_propagate", "flip_settled")
    sentences = {
        "invert": f"inverting a token changes the next one in {flips} of pairs, by bit",
        "exchange": f"a position from a run where only its carry differs changes its token in {start}, {end}",
        "steer": f"{span('carry')} of tokens follow a step to the other carry, less those that follow a random step, "
        f"by bit; {span('value')} follow a step of the sum",
    }
    resampled = cards.query("test == 'position_wise_resampling' and site.str.startswith('enc')")["value"]
    if len(resampled):
        encoder = f"{resampled.max():.1%} of answers change if every encoder position is taken from another pair"
        sentences |= dict.fromkeys(("off", "tokens"), f"{encoder} with the same token there")
    who = f"our {network} of seed {seed}" if ours else "the authors' network"
    return {kind: f"In {who}, {sentence}." for kind, sentence in sentences.items()}


def _describe(task: Task) -> dict[str, Any]:
    options = ("name", "operator", "bits", "base", "limit", "prompt_order", "completion_order")
    derived = ("width", "shape", "operand_names", "prompt_names", "answer_names")
    return {name: getattr(task, name) for name in options + derived}


def _pack(tensors: Mapping[str, Tensor], bits: int) -> dict[str, Any]:
    """Tensors as text: their numbers in sequence, deflated, in base64."""
    precision = np.dtype("<f2" if bits == 16 else "<f4")
    numbers = np.concatenate([x.detach().numpy().astype(precision).ravel() for x in tensors.values()])
    text = base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()
    return {"bits": bits, "shapes": [[name, list(x.shape)] for name, x in tensors.items()], "text": text}
