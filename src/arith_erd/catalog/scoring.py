"""Score a method that names a network's algorithm, on networks whose algorithm is known.

There are two answers, since not every method can tell more: ``sum``, if the network forms the sum as one number and
reads the digits from it (the paper's ERD), and ``carries``, if it forms the digits from carries and uses no sum.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..errors import UserError
from ..interp.algorithms import algorithm_kind
from ..interp.hooked import Hooked
from ..models.references import PROGRAMS
from ..runs.directory import Run
from ..system.files import run_path
from .loading import load_references, load_run, require_runs

ALGORITHM_VARIABLES = {"sum": ("sum",), "carries": ("carry", "xor")}
REFERENCE_SEEDS = range(2000, 2003)  # of references, as in paper/results/methods.csv; nothing was tuned on these
MIN_INTERCHANGE_ACCURACY = 0.99  # for every token, of a network that was trained to compute by variables
SCORE_COLUMNS = ["method", "network", "seed", "algorithm", "score", "seconds"]
Method = Callable[[Hooked], float | str]


@dataclass(frozen=True)
class LabelledNetwork:
    """A network that answers all pairs right, and its algorithm: ``sum``, ``carries``, or empty if it is not known.

    ``sites`` hold the variables of a trained network. In a reference they depend on the seed:
    ``models.references.reference(name, seed)`` has their directions.
    """

    name: str
    seed: int
    algorithm: str
    variables: tuple[str, ...]
    sites: tuple[str, ...]
    run: Path | None = None
    """The run directory of a trained network."""

    def load(self) -> Hooked:
        return load_run(self.run, self.seed) if self.run else load_references(self.name, self.seed)[0]


def zoo(*runs: str | Path) -> list[LabelledNetwork]:
    """Networks written by hand for seven-bit addition, and trained networks of the given runs.

    Args:
        runs: directories or globs. A run with ``loss=interchange`` on the sum counts as ``sum``, on carry and xor as
            ``carries``, any other loss as unknown. A seed is included if it answers all pairs right and every token
            follows at least 99% of the interchanges (`paper/scripts/zoo.sh` has the commands).

    Raises:
        UserError: if there is no such run, or it is not finished.
    """
    networks = [
        LabelledNetwork(name, seed, kind, ALGORITHM_VARIABLES[kind], ())
        for name in PROGRAMS
        if (kind := algorithm_kind(name))  # ``mixed`` uses both, ``local_remainder`` neither
        for seed in REFERENCE_SEEDS
    ]
    paths = [path for pattern in runs for path in require_runs(str(pattern), "runs")]
    return [*networks, *(network for path in paths for network in _labelled_networks(Run(path)))]


def score_method(method: Method, networks: Sequence[LabelledNetwork] | None = None) -> pd.DataFrame:
    """Ask a method for the algorithm of each network: a table with one row of `add_verdicts` per network.

    Args:
        method: network -> ``sum`` or ``carries``; or a number, larger if the network computes by the sum. A threshold
            for the numbers of a kind of networks is fixed on the other kinds. NaN is an abstention: it names no
            algorithm, and counts as wrong.
        networks: networks of `zoo`; None for all of ``zoo()``.

    Raises:
        UserError: if an argument has another type, or the method returns something else.
    """
    if not callable(method):
        raise UserError(f"score_method: received {method!r}; expected a function of a network")
    networks = zoo() if networks is None else [networks] if isinstance(networks, LabelledNetwork) else [*networks]
    if others := [network for network in networks if not isinstance(network, LabelledNetwork)]:
        raise UserError(f"score_method: received a {type(others[0]).__name__}; expected networks from zoo()")
    rows = [score_row(method, network, network.load()) for network in networks]
    return add_verdicts(pd.DataFrame(rows, columns=SCORE_COLUMNS))


def score_row(method: Method, network: LabelledNetwork, model: Hooked) -> list[Any]:
    start = time.perf_counter()
    score = method(model)
    method_name = getattr(method, "__name__", "method")
    with suppress(TypeError, ValueError):  # a tensor with one number, for example, is a score too
        score = score if isinstance(score, str) else float(score)
    if not isinstance(score, float) and not (isinstance(score, str) and score in ALGORITHM_VARIABLES):
        accepted = f"a number, or {' or '.join(ALGORITHM_VARIABLES)}"
        raise UserError(f"{method_name}: returned {score!r} for {network.name}; expected {accepted}")
    return [method_name, network.name, network.seed, network.algorithm, score, time.perf_counter() - start]


def add_verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the columns ``named``, the algorithm that the score names, and ``right``, empty if the algorithm is unknown.

    The networks of one name are a kind. The threshold for a kind is fixed on all others, since networks of one kind
    resemble each other: a rule that has seen one of them would be judged on what it knows.
    """
    table = rows.assign(named=None, right=None).astype({"named": object, "right": object})
    for _, group in rows.groupby("method"):
        scores, is_sum = pd.to_numeric(group["score"], errors="coerce"), group["algorithm"] == "sum"
        for name, kind in group.groupby("network"):
            named, own = kind["score"], scores[kind.index]
            if own.notna().any():
                others = (group["network"] != name) & (group["algorithm"] != "")
                threshold = fit_threshold(scores[others].to_numpy(), is_sum[others].to_numpy())
                named = named.where(own.isna(), np.where(own >= threshold, "sum", "carries"))
            table.loc[kind.index, "named"] = named
    known = table["algorithm"] != ""
    table.loc[known, "right"] = (table["named"] == table["algorithm"])[known].astype(int)
    return table


def fit_threshold(scores: npt.NDArray[np.float64], is_sum: npt.NDArray[np.bool_]) -> float:
    """The smallest score that is named ``sum``: the threshold with the highest balanced accuracy.

    Candidates lie halfway between scores (n,), or beyond all of them; of equally good ones the middle one is taken.
    If all networks have the same algorithm, it raises a `UserError`.

    >>> fit_threshold(np.array([0.0, 0.2, 0.6, 1.0]), np.array([False, False, True, True]))
    0.4
    """
    if is_sum.all() or not is_sum.any():
        raise UserError("networks: all but one kind have one algorithm; expected two kinds or more of sum and carries")
    values = np.unique(scores[np.isfinite(scores)])
    thresholds = np.array([-np.inf, *(values[:-1] + values[1:]) / 2, np.inf])
    right = [((scores >= x)[is_sum].mean() + (scores < x)[~is_sum].mean()) / 2 for x in thresholds]
    best = thresholds[np.isclose(right, max(right))]
    return float(best[(len(best) - 1) // 2])


def _labelled_networks(run: Run) -> Iterator[LabelledNetwork]:
    settings = run.config()
    if settings["data"].get("examples") is not None:  # right on the examples drawn is not right on all
        return
    config = settings["model"]
    variable_sites = config["loss"].get("variables") or {}  # variable -> its site, and its coordinates there
    variables = [name for name in variable_sites if name != "prefix"]  # either algorithm may follow it
    algorithm = next((name for name, names in ALGORITHM_VARIABLES.items() if {*variables} == {*names}), "")
    sites = tuple(dict.fromkeys(str(place["site"]) for place in variable_sites.values() if "dims" in place))
    causal_model = str(config["loss"].get("causal_model") or "").rpartition(".")[2]
    name = f"{settings['task']['bits']}-bit {config['name']} {'+'.join(variables) or 'none'} {causal_model}".strip()
    worst_interchange_accuracy: dict[int, float] = {}  # by seed, over its variables and tokens
    if variable_sites:
        tokens = pd.read_csv(run_path(run.tokens_file))
        last = tokens[(tokens["epoch"] == tokens["epoch"].max()) & tokens["split"].isin([*variable_sites])]
        worst_interchange_accuracy = last.drop(columns=["epoch", "split"]).groupby("seed").min().min(axis=1).to_dict()
    for entry in run.summary()["seeds"]:
        seed, right = int(entry["seed"]), entry["train_seq_acc"] == entry["val_seq_acc"] == 1
        if right and worst_interchange_accuracy.get(seed, 0.0 if variable_sites else 1.0) >= MIN_INTERCHANGE_ACCURACY:
            yield LabelledNetwork(name, seed, algorithm, tuple(variable_sites), sites, run.path)
