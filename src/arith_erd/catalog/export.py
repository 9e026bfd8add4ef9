"""Exports of a network: a folder with a model card, the Hugging Face Hub, TransformerLens, a page."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import save_file

from ..checks import import_extra, require_type, user_path
from ..config.job import Job
from ..errors import UserError, first_line
from ..explorer import Page, export_network, write_page
from ..interp.hooked import Hooked
from ..models import NanoGPT, weights
from ..runs.identity import weights_config
from ..system.files import atomic_file, require_writable, write_atomically

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
MODEL_CARD = """\
---
{metadata}---

# {title}

A small network trained on binary arithmetic with `arith_erd`: {about}.

{accuracies}

`config.json` has every setting that can change the weights. To load this repository, or a folder with its files:

```python
import arith_erd as ae

model = ae.load_pretrained("USER/NAME")
```

The experiments are those of Davide Maltoni and Matteo Ferrara, *Arithmetic with language models: from memorization to
computation*, Neural Networks 179 (2024) 106550, [doi](https://doi.org/10.1016/j.neunet.2024.106550).
"""


def show(model: Hooked) -> Page:
    """A page that runs a Transformer or NanoGPT in the browser, with interventions; a notebook displays it."""
    require_type("show: model", model, Hooked)
    return write_page([export_network(model)])


def save_pretrained(model: Hooked, folder: Path | str) -> None:
    """Write ``model.safetensors``, ``config.json`` and a model card, ``README.md``; `load_pretrained` reads them.

    The accuracies in the card are measured now, on all examples.

    Raises:
        UserError: if the network does not come from a run, or the folder cannot be written.
    """
    require_type("save_pretrained: model", model, Hooked)
    if model.provenance.job is None:
        wanted = "a network from fit, load_run or load_pretrained"
        raise UserError(f"save_pretrained: {model.name} has no configuration; expected {wanted}")
    # Only what can change the weights: no logger, and no folder of this machine.
    settings = weights_config(model.provenance.job.resolved) | {"seed": model.seed}
    config = {"job": settings, "epoch": model.provenance.epoch}
    shapes = weights.state_shapes(model.provenance.job.network)
    weights.checked_state(model.network.state_dict(), shapes, "save_pretrained", "the configuration of the run")
    folder = user_path(folder, "folder")
    require_writable("folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / WEIGHTS_FILE) as path:
        state = model.network.state_dict().items()
        save_file({name: x.clone(memory_format=torch.contiguous_format) for name, x in state}, path)
    write_atomically(folder / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    write_atomically(folder / "README.md", model_card(model, model.provenance.job))


def push_to_hub(model: Hooked, repo_id: str, *, private: bool = False) -> str:
    """Upload the files of `save_pretrained` to ``USER/NAME`` on the Hugging Face Hub, and return the address.

    Raises:
        UserError: as in `save_pretrained`; without the extra ``hub``; or if the Hub refuses, for example without login.
    """
    api = import_extra("huggingface_hub", "hub").HfApi()
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        try:
            address = str(api.create_repo(repo_id, private=private, exist_ok=True))
            api.upload_folder(repo_id=repo_id, folder_path=folder)
        except Exception as error:  # errors of the library or of the connection
            raise UserError(f"repo_id={repo_id}: {first_line(error)}") from error
    return address


def to_hooked_transformer(model: Hooked) -> Any:
    """Copy a NanoGPT into TransformerLens, as a ``TransformerBridge``, the successor of ``HookedTransformer``.

    It maps one sequence (N, T) of prompt, ``<start>`` and answer to logits (N, T, V); ``<start>`` predicts ``r_0``.
    Weights are neither folded nor centred. The embedding and the head are no longer tied. Parts that an ablation
    removed have zero weights.

    Raises:
        UserError: for another class of network, or without the extra ``lens``.
    """
    require_type("to_hooked_transformer: model", model, Hooked)
    if type(model.network) is not NanoGPT:  # a subclass may compute anything
        raise UserError(f"to_hooked_transformer: received a {type(model.network).__name__}; expected a NanoGPT")
    network: Any = model.network
    if network.padded or network.position_encoding == "rope":
        option = "task.min_bits" if network.padded else "model.net.positions=rope"
        raise UserError(f"to_hooked_transformer: received {option}; expected operands of one length and no rope")
    lens = import_extra("transformer_lens", "lens")
    embedding, attention = network.embedding.weight, network.blocks[0].attention
    channels, heads = embedding.shape[1], attention.sublayer.heads.num_heads if attention else 1
    sizes = {"d_model": channels, "n_heads": heads, "d_head": channels // heads, "d_vocab": len(embedding)}
    tokens = len(network.causal_mask) + 1  # prompt, <start>, the whole answer
    sizes |= {"n_layers": len(network.blocks), "n_ctx": tokens}
    config = lens.TransformerBridgeConfig(**sizes, act_fn="gelu", normalization_type="LN", eps=network.norm.eps)
    bridge = lens.TransformerBridge.boot_native(config, device=model.device, dtype=embedding.dtype).eval()
    state = {name: torch.zeros_like(x) for name, x in bridge.state_dict().items()}  # for biases and ablated parts
    state |= {"embed.weight": embedding, "unembed.weight": embedding, "ln_final.weight": network.norm.weight}
    if network.positions is not None:
        blank = embedding.new_zeros(1, tokens - 1, channels)  # blank, so that only positions are added
        state["pos_embed.weight"][:-1] = network.positions(blank, blank[..., 0].long())[0]
    for i, block in enumerate(network.blocks):
        parts: dict[str, Any] = {}
        if block.attention is not None:
            inside = block.attention.sublayer
            parts = dict(zip(("attn.q", "attn.k", "attn.v"), inside.qkv.weight.chunk(3), strict=True))
            parts |= {"attn.o": inside.out.weight, "ln1": block.attention.norm.weight}
        if block.feed_forward is not None:
            inside = block.feed_forward.sublayer
            parts |= {"mlp.in": inside.expand.weight, "mlp.out": inside.out.weight}
            parts["ln2"] = block.feed_forward.norm.weight
        state |= {f"blocks.{i}.{part}.weight": weight for part, weight in parts.items()}
    bridge.load_state_dict(state)
    return bridge


def short_name(job: Job) -> str:
    """The name of a job's networks in `load_pretrained`, such as ``add-transformer``."""
    split, ablation = job.option_names["split"], job.ablation.name
    parts = [job.option_names["task"], split * (split != "random"), job.model.name, ablation * (ablation != "none")]
    return "-".join(filter(None, parts))


def model_card(model: Hooked, job: Job) -> str:
    """The model card, with newly measured accuracies. `runs.identity.require_name` has checked the names in it."""
    title, names, size = short_name(job), job.option_names, job.data.examples
    examples = job.task.examples() if size is None else job.task.sample(size)  # the run's split divided these
    held_out = np.asarray(job.split(examples))
    subsets = {"held-out": held_out, "training": ~held_out}
    shares = {
        f"sequence accuracy, {mask.sum()} {name} examples": model.accuracy(examples[mask])
        for name, mask in subsets.items()
        if mask.any()
    }
    what = f"task `{names['task']}` ({job.task.bits} digits in base {job.task.base})"
    epochs = f"up to {job.trainer.max_epochs}" if model.provenance.epoch is None else model.provenance.epoch
    description = f"{what}, model `{job.model.name}`, split `{names['split']}`, seed {model.seed}, {epochs} epochs"
    result = {
        "task": {"type": "text-generation", "name": "arithmetic"},
        "dataset": {"type": names["task"], "name": f"{names['task']}, {job.task.bits} digits"},
        "metrics": [{"type": "accuracy", "name": name, "value": share} for name, share in shares.items()],
    }
    metadata = {
        "library_name": "arith_erd",
        "license": "mit",
        "tags": ["arithmetic", "mechanistic-interpretability", names["task"], job.model.name],
        "model-index": [{"name": title, "results": [result]}],
    }
    accuracies = "\n".join(f"* {name}: {share:.2%}" for name, share in shares.items())
    return MODEL_CARD.format(metadata=yaml.safe_dump(metadata), title=title, about=description, accuracies=accuracies)


def download(repo_id: str) -> Path:
    """Download the two files that `load_pretrained` reads, and no others, and return their folder."""
    try:
        hub = import_extra("huggingface_hub", "hub")
        return Path(hub.snapshot_download(repo_id, allow_patterns=[CONFIG_FILE, WEIGHTS_FILE]))
    except Exception as error:
        raise UserError(f"name={repo_id}: no such folder here; on the Hub: {first_line(error)}") from error
