"""The zoo: networks whose algorithm is known, written by hand or trained to compute by it, and null networks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd

from ..interp.algorithms import algorithm_label
from ..interp.hooked import Hooked
from ..models.handcoded import PROGRAMS
from ..runs.directory import Run, require_runs
from ..system.files import run_path
from ..tasks import Add
from .loading import load_handcoded, load_run
from .nulls import NULLS, make_null

ALGORITHM_VARIABLES = {"sum": ("sum",), "carries": ("carry", "xor")}
HANDCODED_SEEDS = range(2000, 2003)  # those of paper/results/methods.csv; nothing was tuned on these networks
MIN_INTERCHANGE_ACCURACY = 0.99  # that a network trained to compute by variables must have for every token


@dataclass(frozen=True)
class LabelledNetwork:
    """A network and its algorithm: ``sum``, ``carries``, ``none`` for a null network, or empty if it is unknown.

    It adds numbers of ``bits`` bits; all but null networks answer all pairs right. Networks that resemble each other
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
        nulls: whether to add 100 null networks of five bits and 20 of seven (`catalog.nulls`), made from seeds.

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
