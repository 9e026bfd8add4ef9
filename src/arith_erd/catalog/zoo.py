"""The zoo: networks whose algorithm is known, written by hand or trained to compute by it, and null networks.

Null networks have the interface of a network that adds, but no algorithm inside. Each is made from its seed.
``untrained`` has initial weights. ``shuffled`` has the weights of ``add-nanogpt`` or ``add-transformer`` in random
order within each array. It takes their first layers, and as much of the position table as the task needs. ``table`` is
a nanoGPT that reads right answers from a table of all pairs. It is slow at seven bits, since a look-up compares the
activation with all pairs. Networks trained on random answers (``task=random_output``) count as null networks, too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..digits import ONE, ZERO
from ..interp.algorithms import algorithm_label
from ..interp.hooked import Hooked
from ..models import NanoGPT, Transformer
from ..models.handcoded import PROGRAMS
from ..models.network import Network, initialise
from ..runs.directory import Run, require_runs
from ..system.files import run_path
from ..tasks import Add
from .loading import load_handcoded, load_pretrained, load_run

ALGORITHM_VARIABLES = {"sum": ("sum",), "carries": ("carry", "xor")}
HANDCODED_SEEDS = range(2000, 2003)  # those of paper/results/methods.csv; nothing was tuned on these networks
MIN_INTERCHANGE_ACCURACY = 0.99  # that a network trained to compute by variables must have for every token
NUM_LAYERS = 3  # of a null network, as in the small networks of `paper/scripts/zoo.sh`
SHARPNESS = 100.0  # cosines of different pairs stay below 0.9, so the right pair outweighs all others
LOUDNESS = 10.0  # norm of the answer, in norms of the residual stream
ARCHITECTURES: dict[str, type[Network]] = {"nanogpt": NanoGPT, "transformer": Transformer}
NULLS = {(kind, model, 5): range(20) for kind in ("untrained", "shuffled") for model in ARCHITECTURES}
NULLS |= {(kind, model, 7): range(5) for kind, model, _ in NULLS} | {("table", "nanogpt", 5): range(20)}
"""Kind, architecture and bits -> seeds."""


@dataclass(frozen=True)
class LabelledNetwork:
    """A network and its algorithm: ``sum``, ``carries``, ``none`` for a null network, or empty if it is unknown.

    It adds numbers of so many ``bits``; all but null networks answer all pairs right. Networks that resemble each other
    share their ``kind``, and ``origin`` is ``handcoded``, ``interchange`` (trained to compute by ``variables``),
    ``free`` or ``null``. ``sites`` hold the variables of a trained network. In a hand-coded network they depend on the
    seed: ``models.handcoded.write_network(name, seed)`` has their directions.
    """

    name: str
    seed: int
    algorithm: str
    kind: str
    origin: str
    load: Callable[[], Hooked] = field(repr=False, compare=False)
    variables: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    bits: int = 7


def zoo(*runs: str | Path, nulls: bool = False) -> list[LabelledNetwork]:
    """Hand-coded networks for seven-bit addition, trained networks of the given runs, and null networks.

    Args:
        runs: directories or globs. A run with ``loss=interchange`` on the sum counts as ``sum``, one on carry and xor
            as ``carries``, and one with any other loss as unknown. A seed is included if it answers all pairs right and
            every token follows at least 99% of the interchanges (`paper/scripts/zoo.sh` has the commands). Networks
            trained on random answers are null networks.
        nulls: whether to add 100 null networks of five bits and 20 of seven (`catalog.zoo`), made from seeds.

    Raises:
        UserError: if there is no such run, or it is not finished.
    """
    networks = [
        LabelledNetwork(name, seed, algorithm, name, "handcoded", load, ALGORITHM_VARIABLES[algorithm])
        for name in PROGRAMS
        if (algorithm := algorithm_label(name))  # ``mixed`` uses both, ``local_remainder`` neither
        for seed in HANDCODED_SEEDS
        for load in [partial(load_handcoded, name, seed)]
    ]
    for pattern in runs:
        for path in require_runs(str(pattern), "runs"):
            networks += _labelled_networks(Run(path))
    if nulls:
        networks += [
            LabelledNetwork(name, seed, "none", kind, "null", partial(make_null, kind, model, bits, seed), bits=bits)
            for (kind, model, bits), seeds in NULLS.items()
            for name in [f"{bits}-bit {model} {kind}"]
            for seed in seeds
        ]
    return networks


def _labelled_networks(run: Run) -> Iterator[LabelledNetwork]:
    settings = run.config()
    if settings["data"].get("examples") is not None:  # right on drawn examples does not mean right on all
        return
    config, bits = settings["model"], settings["task"]["bits"]
    if settings["task"].get("name") == "random_output":
        name, kind = f"{bits}-bit {config['name']} random answers", "random answers"
        for seed in (int(entry["seed"]) for entry in run.summary()["seeds"]):
            yield LabelledNetwork(name, seed, "none", kind, "null", partial(_as_adder, run.path, seed), bits=bits)
        return
    variable_sites = config["loss"].get("variables") or {}  # variable -> its site, and its coordinates there
    variables = [name for name in variable_sites if name != "prefix"]  # either algorithm may follow it
    algorithm = next((name for name, names in ALGORITHM_VARIABLES.items() if {*variables} == {*names}), "")
    origin = "interchange" if variable_sites else "free"
    sites = tuple(dict.fromkeys(str(place["site"]) for place in variable_sites.values() if "dims" in place))
    causal_model = str(config["loss"].get("causal_model") or "").rpartition(".")[2]
    name = f"{bits}-bit {config['name']} {'+'.join(variables) or 'none'} {causal_model}".strip()
    followed = worst_interchange_accuracy(run) if variable_sites else {}
    for entry in run.summary()["seeds"]:
        seed, right = int(entry["seed"]), entry["train_seq_acc"] == entry["val_seq_acc"] == 1
        if right and (not variable_sites or followed.get(seed, 0) >= MIN_INTERCHANGE_ACCURACY):
            load = partial(load_run, run.path, seed)
            yield LabelledNetwork(name, seed, algorithm, name, origin, load, tuple(variable_sites), sites, bits)


def worst_interchange_accuracy(run: Run) -> pd.Series:
    """For each seed, the lowest accuracy after the last epoch, over variables of the loss and answer tokens."""
    last = pd.read_csv(run_path(run.tokens_file)).query("split not in ('train', 'val') and epoch == epoch.max()")
    return last.drop(columns=["epoch", "split"]).groupby("seed").min().min(axis=1)


def _as_adder(run: Path, seed: int) -> Hooked:
    """A network that learned random answers, presented as if it added."""
    model = load_run(run, seed)
    return Hooked(model.network, task=Add(model.task.bits), name=model.name, seed=seed)


def make_null(kind: str, architecture: str, bits: int, seed: int) -> Hooked:
    """A null network for addition, of three layers and the default width."""
    task = Add(bits)
    make = partial(ARCHITECTURES[architecture], task.prompt_length, task.width, num_layers=NUM_LAYERS)
    network = initialise(make, seed)
    if kind == "shuffled":
        network.load_state_dict(_shuffled_weights(network, architecture, seed))
    elif kind == "table":
        _answer_from_table(network, task, seed)
    return Hooked(network, task=task, name=f"{kind} {architecture}", seed=seed)


def _shuffled_weights(network: Network, architecture: str, seed: int) -> dict[str, Tensor]:
    generator, shuffled = torch.Generator().manual_seed(seed), {}
    for name, own in network.state_dict().items():
        values = _trained_weights(architecture)[name][: len(own)].flatten()
        shuffled[name] = values[torch.randperm(len(values), generator=generator)].view_as(own)
    return shuffled


@cache
def _trained_weights(architecture: str) -> dict[str, Tensor]:
    return load_pretrained(f"add-{architecture}").network.state_dict()


def _answer_from_table(network: Any, task: Add, seed: int) -> None:
    """Add an embedding of the pair to a nanoGPT's input, and replace its last MLP by a look-up of the answer."""
    examples, generator = task.examples(), torch.Generator().manual_seed(seed)
    size = network.embedding.embedding_dim
    codes = torch.randn(len(examples), size, generator=generator)
    codes = F.normalize(codes - codes.mean(1, keepdim=True)) * size**0.5  # a LayerNorm does not change these
    network.positions = PairEmbedding(network.positions, task, codes)
    tokens = LOUDNESS * size**0.5 * F.normalize(network.embedding.weight.detach(), dim=1)
    network.blocks[-1].feed_forward.sublayer = Lookup(codes, torch.as_tensor(examples.completion), tokens)


class PairEmbedding(nn.Module):
    """Position embeddings and, at each position of the answer, a code of the pair: codes (N, C) of all N pairs."""

    def __init__(self, positions: nn.Module, task: Add, codes: Tensor) -> None:
        super().__init__()
        self.positions, self.bits, self.prompt_length = positions, task.bits, task.prompt_length
        self.codes = nn.Embedding.from_pretrained(codes)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Embeddings (B, P + t, C) of tokens (B, P + t) -> the same with codes at the last t positions."""
        x, prompt = self.positions(x, tokens), tokens[:, : self.prompt_length]
        places = 2 ** torch.arange(self.bits, device=tokens.device)  # lowest first
        a, b = (((digits - ZERO) * places).sum(1) for digits in (prompt[:, : self.bits], prompt[:, self.bits + 1 :]))
        code = self.codes(2**self.bits * a + b)
        return torch.cat([x[:, : self.prompt_length], x[:, self.prompt_length :] + code[:, None]], dim=1)


class Lookup(nn.Module):
    """A table: completions (N, m) by the codes (N, C) of the pairs. The nearest code to an activation wins.

    It writes the embedding of the token, ``tokens`` (V, C).
    """

    def __init__(self, codes: Tensor, completions: Tensor, tokens: Tensor) -> None:
        super().__init__()
        self.codes, self.ones, self.tokens = map(
            nn.Buffer, (F.normalize(codes), (completions == ONE).to(codes), tokens)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Normalised activations (B, t, C) at the answer's positions -> embeddings (B, t, C) of their answers."""
        weights = (SHARPNESS * F.normalize(x, dim=-1) @ self.codes.T).softmax(-1)  # (B, t, N)
        one = (weights @ self.ones[:, : x.shape[1]]).diagonal(dim1=-2, dim2=-1)[..., None]  # (B, t, 1)
        return one * self.tokens[ONE] + (1 - one) * self.tokens[ZERO]
