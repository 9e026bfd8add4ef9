"""An HTML page, one file, that runs networks in the browser, with interventions: no Python, no internet connection."""

import base64
import copy
import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.sites import layers, residual_stream
from ..interp.slopes import answer_slope_estimators, token_means
from ..models import NanoGPT, Transformer
from ..system.isolation import isolated
from ..tasks import Examples

SOURCES = Path(__file__).parent
TASK_FIELDS = ["name", "operator", "bits", "digit_noun", "base", "prompt_order", "width", "shape"]
TASK_FIELDS += ["operand_names", "prompt_places", "prompt_names", "answer_names", "answer_positions"]


class Page(str):
    """A page's HTML, which a notebook shows in a frame that needs no kernel."""

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts allow-popups" style="width:100%;height:900px;border:1px solid #8888"'
        return f'<iframe title="explorer" {frame} srcdoc="{escape(self)}"></iframe>'


@isolated(False)
def export_network(model: Hooked, num_examples: int = 512) -> dict[str, Any]:
    """The data of one network for the page; a `UserError` if it is neither a `Transformer` nor a `NanoGPT`. Fields::

        right       accuracy on ``num_examples`` random examples, or on all if there are fewer
        missed      the answer position with the most errors on held-out pairs, their share, and one such pair
        weight_bits 16, or 32 if float16 changes an answer
        found       intervention -> a sentence about known results in this network; empty, for you to fill
        numbers     all tensors, compressed; their bytes are grouped by significance, since that compresses better

    Tensors besides the weights: ``completions`` (N, m) of all pairs; ``EMBEDDING.positions`` (T, C), added to the
    embeddings of tokens; means ``mean.SITE`` (T, C), and ``tokens.SITE`` (P, V, C) by token; ``carry.SITE`` and
    ``value.SITE`` (m, C), the directions of one carry and of one unit of the answer, if its tokens are its digits.
    """
    kind, task = type(model.network).__name__, model.task
    if type(model.network) not in (Transformer, NanoGPT):
        raise UserError(f"explorer: {model.name} is a {kind}; expected our Transformer or NanoGPT")
    task.require_enumerable("probe=explorer")
    rng = np.random.default_rng(0)
    drawn = () if task.size <= num_examples else (rng.integers(0, size, num_examples) for size in task.shape)
    fit = task.examples(*drawn)
    precision, rounded = torch.float16, _round_weights(model, torch.float16)
    # Teacher forced, and greedily, as the page decodes: a wrong token changes those after it.
    tokens = [torch.stack([x.run(fit).argmax(-1), x.greedy_tokens(fit)]).cpu() for x in (model, rounded)]
    if not torch.equal(*tokens):
        precision, rounded = torch.float32, _round_weights(model, torch.float32)
    exact = rounded.network.state_dict() | _page_tensors(rounded, fit)
    tensors = {x: y if x.endswith(("positions", "completions")) else y.to(precision) for x, y in exact.items()}
    planes = np.concatenate([x.float().numpy().ravel() for x in tensors.values()]).view(np.uint8).reshape(-1, 4).T
    return {
        "name": model.name,
        "seed": model.seed,
        "kind": kind,
        "epoch": model.provenance.epoch,
        "task": {name: getattr(task, name) for name in TASK_FIELDS},
        "heads": next((x.num_heads for x in rounded.network.modules() if hasattr(x, "num_heads")), 1),
        "rope": model.network.position_encoding == "rope",
        "weight_bits": 8 * precision.itemsize,
        "stream": residual_stream(model.sites),
        "parameters": sum(x.numel() for x in model.network.parameters()),
        "right": model.accuracy(fit),
        "missed": _worst_token(model, num_examples, rng),
        "found": {},
        "numbers": base64.b64encode(zlib.compress(planes.tobytes())).decode(),
        "shapes": {name: x.shape for name, x in tensors.items()},
    }


def _worst_token(model: Hooked, num_examples: int, rng: np.random.Generator) -> dict[str, Any] | None:
    table = model.task.examples()
    if not model.provenance.split:
        return None
    held_out = rng.permutation(np.flatnonzero(model.provenance.split(table)))[:num_examples]
    if not len(held_out):
        return None
    examples = table[held_out]
    wrong = model.run(examples).argmax(-1).cpu().numpy() != examples.completion  # (N, m)
    t = int(wrong.mean(0).argmax())
    pair = examples.operands[wrong[:, t].argmax()].tolist()
    return {"position": model.task.answer_names[t], "wrong": wrong[:, t].mean(), "pair": pair} if wrong.any() else None


def _round_weights(model: Hooked, precision: torch.dtype) -> Hooked:
    """A copy with rounded weights. Heads and units that nothing reads become zeros, which compress well."""
    network = copy.deepcopy(model.network).cpu()
    network.load_state_dict({name: x.to(precision) for name, x in network.state_dict().items()})
    for module, first, last in itertools.product(network.modules(), ("expand", "value", "qkv"), ("contract", "out")):
        if hasattr(module, first) and hasattr(module, last):
            unread = (getattr(module, last).weight == 0).all(0)
            for part in ("query", "key", "value") if first == "value" and unread.all() else (first,):
                for parameter in getattr(module, part).parameters():
                    parameter[-len(unread) :][unread] = 0  # for ``qkv`` the last third, the values
    return Hooked(network, task=model.task)


def _page_tensors(model: Hooked, fit: Examples) -> dict[str, Tensor]:
    """The page's tensors besides the weights: completions, positions, means and directions."""
    tensors = {"completions": torch.from_numpy(model.task.examples().completion)}
    modules = {name: x for name, x in model.network.named_children() if name.endswith(("embedding", "dropout"))}
    _, cache = Hooked(model.network, modules).run_with_cache(fit, [*modules], include_prompt=True)
    for name in [x for x in modules if x.endswith("embedding")]:  # whatever adds positions, dropout receives the sum
        tensors[f"{name}.positions"] = (cache[name.replace("embedding", "dropout")] - cache[name])[0]
    stream, outputs = residual_stream(model.sites), [x for x in model.sites if x.endswith((".z", ".mlp_out"))]
    _, cache = model.run_with_cache(fit, [*outputs, *stream], include_prompt=True)
    tensors |= {f"mean.{site}": cache[site].mean(0).flatten(1) for site in outputs}
    for site in layers(stream, "enc")[-1:]:
        tensors[f"tokens.{site}"] = token_means(cache[site], torch.as_tensor(fit.prompt), model.task.vocab_size)
    if model.task.answer_length != model.task.width:
        return tensors
    causal = CausalModel(model.task)
    slope_estimators = answer_slope_estimators(causal, causal.values(fit))  # (m, k, N)
    for site in residual_stream(stream, "dec"):
        slopes = torch.einsum("mkn,nmc->kmc", slope_estimators, cache[site][:, -model.task.width :].double())
        tensors |= {f"{name}.{site}": x for name, x in zip(("value", "carry"), slopes.flip(0), strict=False)}
    return tensors


def write_page(
    networks: Sequence[dict[str, Any]], docs: str = "", sections: Mapping[str, str] = MappingProxyType({})
) -> Page:
    """Write the page for networks of one task, from `export_network`. It opens with the first network.

    ``docs`` is the address of the documentation. ``sections`` maps interventions to its pages that explain how results
    in ``found`` were measured. If networks have an ``answer``, this is the page of `find.find_page`.
    """
    task = networks[0]["task"]
    for other in [network for network in networks if network["task"] != task]:
        answers = "{name}, {bits} {digit_noun}".format(**other["task"])
        raise UserError(f"explorer: {other['name']} answers {answers}; expected the first one's task, {task['name']}")
    data = json.dumps({"task": task, "docs": docs, "sections": dict(sections), "networks": networks})
    sources = ("explorer.html", "network.js", "find.js", "explorer.js")
    html, *scripts = ((SOURCES / x).read_text("utf-8") for x in sources)
    script = "\n".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {"SHA256": digest, "DATA": data.replace("<", "\\u003c"), "SCRIPT": script}  # no tag can end the data
    return Page(re.sub("%(SHA256|DATA|SCRIPT)%", lambda mark: parts[mark[1]], html))
