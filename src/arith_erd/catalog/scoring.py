"""Score a method that names a network's algorithm, on networks whose algorithm is known and on some that have none.

A method gives one of three answers, since not every method can tell more. ``sum``: the network forms the sum as one
number and reads the digits from it (the paper's ERD). ``carries``: it forms the digits from carries and uses no sum.
``abstains``: no answer. Null networks (`catalog.nulls`) have no algorithm, so any name for one is a false discovery.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import norm

from ..bundled import RESULTS
from ..checks import require_type
from ..errors import UserError, excerpt
from ..interp.algorithms import algorithm_kind
from ..interp.hooked import Hooked
from ..models.handcoded import PROGRAMS
from ..runs.directory import Run
from ..stats import clopper_pearson
from ..system.files import run_path
from ..tasks import Add
from .loading import load_handcoded, load_run, require_runs
from .nulls import NULLS, make_null

ALGORITHM_VARIABLES = {"sum": ("sum",), "carries": ("carry", "xor")}
ALGORITHM_KINDS = tuple(ALGORITHM_VARIABLES)
EVIDENCE_OF_ANSWERS = {"sum": (1.0, 0.0), "carries": (0.0, 1.0), "abstains": (0.0, 0.0)}
HANDCODED_SEEDS = range(2000, 2003)  # those of paper/results/methods.csv; nothing was tuned on these networks
MIN_INTERCHANGE_ACCURACY = 0.99  # that a network trained to compute by variables must have for every token
NUM_RESAMPLES = 1000  # bootstrap samples for an interval
SCORE_COLUMNS = ["method", "network", "kind", "origin", "seed", "algorithm"]
SCORE_COLUMNS += ["score", "sum", "carries", "low", "high", "gap_sum", "gap_carries", "seconds"]
Method = Callable[[Hooked], float | str | tuple[npt.ArrayLike, ...]]


@dataclass(frozen=True)
class LabelledNetwork:
    """A network and its algorithm: ``sum``, ``carries``, ``none`` for a null network, or empty if it is unknown.

    All but null networks answer all pairs right. Networks that resemble each other share their ``kind``, and
    ``origin`` is ``handcoded``, ``interchange`` (trained to compute by ``variables``), ``free`` or ``null``. ``sites``
    hold the variables of a trained network. In a hand-coded network they depend on the seed:
    ``models.handcoded.write_network(name, seed)`` has their directions.
    """

    name: str
    seed: int
    algorithm: str
    kind: str
    origin: str
    load: Callable[[], Hooked] = field(repr=False, compare=False)
    variables: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


def zoo(*runs: str | Path, nulls: bool = False) -> list[LabelledNetwork]:
    """Hand-coded networks for seven-bit addition, trained networks of the given runs, and null networks.

    Args:
        runs: directories or globs. A run with ``loss=interchange`` on the sum counts as ``sum``, one on carry and xor
            as ``carries``, and one with any other loss as unknown. A seed is included if it answers all pairs right and
            every token follows at least 99% of the interchanges (`paper/scripts/zoo.sh` has the commands). Networks
            trained on random answers (``task=random_output``) count as null networks.
        nulls: whether to add 100 null networks of five bits and 20 of seven, made from seeds (`catalog.nulls`).

    Raises:
        UserError: if there is no such run, or it is not finished.
    """
    networks = [
        LabelledNetwork(
            name, seed, algorithm, name, "handcoded", partial(_handcoded, name, seed), ALGORITHM_VARIABLES[algorithm]
        )
        for name in PROGRAMS
        if (algorithm := algorithm_kind(name))  # ``mixed`` uses both, ``local_remainder`` neither
        for seed in HANDCODED_SEEDS
    ]
    for pattern in runs:
        for path in require_runs(str(pattern), "runs"):
            networks += _labelled_networks(Run(path))
    if nulls:
        networks += [
            LabelledNetwork(
                f"{bits}-bit {model} {kind}", seed, "none", kind, "null", partial(make_null, kind, model, bits, seed)
            )
            for (kind, model, bits), seeds in NULLS.items()
            for seed in seeds
        ]
    return networks


def score_method(method: Method, networks: Sequence[LabelledNetwork] | None = None) -> pd.DataFrame:
    """Ask a method for the algorithm of each network. `compare_methods` counts its answers beside other methods'.

    Args:
        method: a function of a network. It returns its evidence for the sum and for carries, each a number or outcomes
            per example (n, ...); or one number x for x and -x; or ``sum``, ``carries`` or ``abstains``. NaN names no
            algorithm. A search returns four: both on test pairs, then both on its training pairs.
        networks: networks of `zoo`; None for all of ``zoo(nulls=True)``.

    Returns:
        A row for each network, judged by `add_verdicts`. ``score`` is the evidence for the sum minus that for carries;
        ``low`` and ``high`` are its 95% interval, given outcomes per example. ``gap_sum`` and ``gap_carries`` say how
        much higher the evidence is on a search's training pairs.

    Raises:
        UserError: if an argument has another type, or the method returns something else.
    """
    if not callable(method):
        raise UserError(f"score_method: received {method!r}; expected a function of a network")
    if networks is None:
        networks = zoo(nulls=True)
    networks = [*networks] if isinstance(networks, Iterable) else [networks]
    if others := [network for network in networks if not isinstance(network, LabelledNetwork)]:
        raise UserError(f"score_method: received a {type(others[0]).__name__}; expected networks from zoo()")
    if not networks:
        raise UserError("score_method: received no networks; expected at least one from zoo()")
    name = getattr(method, "__name__", "method")
    rows = [score_network(name, method, network, network.load()) for network in networks]
    return add_verdicts(pd.DataFrame(rows, columns=SCORE_COLUMNS))


def compare_methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Count the answers in a method's rows from `score_method`, below those of other methods on the same networks.

    Returns:
        A row for each method: for how many networks with an algorithm it is right, is wrong or abstains, and in how
        many null networks it names one, with a 95% Clopper-Pearson interval.
    """
    require_type("rows", rows, pd.DataFrame)
    if missing := {"method", "network", "seed", "algorithm", "named"} - set(rows):
        raise UserError(f"compare_methods: rows lack {', '.join(sorted(missing))}; expected those of score_method")
    others = pd.read_csv(RESULTS / "methods.csv", keep_default_na=False)
    others = others[~others["method"].isin(rows["method"])].merge(rows[["network", "seed"]].drop_duplicates())
    return count_answers(pd.concat([others, rows]))


def score_network(name: str, method: Method, network: LabelledNetwork, model: Hooked) -> dict[str, Any]:
    """The row of a method and a network, without verdicts. It lacks the columns that the method does not return."""
    start = time.perf_counter()
    found = method(model)
    row: dict[str, Any] = {"method": name, "seconds": time.perf_counter() - start, "network": network.name}
    row |= {column: getattr(network, column) for column in ("kind", "origin", "seed", "algorithm")}
    try:
        if isinstance(found, str):
            row["score"], (of_sum, of_carries) = found, EVIDENCE_OF_ANSWERS[found]
        elif isinstance(found, tuple):
            terms = [_outcomes(term) for term in found]
            of_sum, of_carries, *in_training = (float(term.mean()) for term in terms)
            row["score"] = of_sum - of_carries
            if max(map(len, terms)) > 1:
                row["low"], row["high"] = _bootstrap(*terms[:2])
            if in_training:
                of_sum_in_training, of_carries_in_training = in_training
                row |= {"gap_sum": of_sum_in_training - of_sum, "gap_carries": of_carries_in_training - of_carries}
        else:  # a tensor with one number, for example, is a score too
            row["score"] = of_sum = float(found)
            of_carries = -of_sum
    except (KeyError, TypeError, ValueError, RuntimeError):
        accepted = f"a number, two or four of them, {', '.join(ALGORITHM_KINDS)} or abstains"
        raise UserError(f"{name}: returned {excerpt(repr(found))} for {network.name}; expected {accepted}") from None
    return row | {"sum": of_sum, "carries": of_carries}


def _outcomes(term: Any) -> npt.NDArray[np.float64]:
    """An accuracy, or outcomes (n, ...) of n examples, as numbers (n,): the mean of each example."""
    numbers = torch.as_tensor(term).detach().cpu().double().numpy()
    return np.asarray(numbers.reshape(len(numbers) if numbers.ndim else 1, -1).mean(1))


def _bootstrap(*terms: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The 95% interval of the difference of two means. The outcomes (n,) of each are resampled independently."""
    rng = np.random.default_rng(0)
    means = [term[rng.integers(len(term), size=(NUM_RESAMPLES, len(term)))].mean(1) for term in terms]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return float(low), float(high)


def add_verdicts(rows: pd.DataFrame, min_accuracy: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Add the columns ``named`` (``sum``, ``carries``, ``abstains``), ``right`` and ``flips``.

    A method names the algorithm of `name_by_threshold` if its evidence for that algorithm is above a bar: the score
    that 2.5% of the null networks exceed, or that none exceeds if they are few. Only null networks with as many bits
    and of another kind count. The bar is the k-th highest of n scores, k = max(1, floor((n + 1) / 40)). With two terms,
    5% of all null networks get a name if their kinds are alike. Without such null networks there is no bar.
    ``named`` is empty if the two terms or the threshold are unknown, ``right`` if the algorithm is unknown. ``flips``
    is how often resampled outcomes would put the score on the other side of the threshold. It assumes a normal
    distribution with the width of the interval, and is empty without an interval.

    Args:
        min_accuracy: for methods whose evidence is an accuracy: the least accuracy with which the better algorithm is
            named. These methods have no fitted threshold and no bar.
    """
    numbers = rows[["score", *ALGORITHM_KINDS, "low", "high"]].apply(pd.to_numeric, errors="coerce")
    by_kind = rows.assign(**numbers, bits=rows["network"].map(bits_of))
    accuracy = rows["method"].map(min_accuracy or {})
    threshold = thresholds(rows).where(accuracy.isna(), 0.0)
    named = name_by_threshold(rows, threshold)
    for name in ALGORITHM_KINDS:
        bar = _fit_on_other_kinds(by_kind, ["method", "bits"], partial(_fit_bar, name=name))
        too_low = (numbers[name] < accuracy) | (accuracy.isna() & (numbers[name] <= bar))
        named[(named == name) & too_low] = "abstains"
    named[numbers[[*ALGORITHM_KINDS]].isna().any(axis=1) & rows["score"].notna()] = None
    right = (named == rows["algorithm"].replace("none", "abstains")).astype(int).astype(object)
    deviation = (numbers["high"] - numbers["low"]) / (2 * norm.ppf(0.975))
    flips = norm.cdf(-((numbers["score"] - threshold).abs() / deviation.clip(lower=1e-9)))
    return rows.assign(named=named, right=right.where((rows["algorithm"] != "") & named.notna(), None), flips=flips)


def name_by_threshold(rows: pd.DataFrame, threshold: pd.Series | None = None) -> pd.Series:
    """The algorithm that each score names if the method must answer; ``abstains`` where the score is NaN.

    The default threshold comes from `thresholds`.
    """
    threshold = thresholds(rows) if threshold is None else threshold
    score = pd.to_numeric(rows["score"], errors="coerce")
    named = pd.Series(np.where(score >= threshold, *ALGORITHM_KINDS), rows.index, dtype=object)
    named[threshold.isna()] = None
    named[score.isna()] = "abstains"
    return rows["score"].where(rows["score"].isin(ALGORITHM_KINDS), named)


def thresholds(rows: pd.DataFrame) -> pd.Series:
    """The threshold for each score, fitted on networks of other kinds; NaN where these share one algorithm."""
    return _fit_on_other_kinds(rows, ["method"], fit_threshold)


def _fit_on_other_kinds(rows: pd.DataFrame, by: list[str], fit: Callable[[pd.DataFrame], float]) -> pd.Series:
    """For each row, the result of ``fit`` on the rows that share its columns ``by`` and have another kind.

    Networks of one kind resemble each other, so a rule fitted on one of them would be tested on its training data.
    """
    fitted = pd.Series(np.nan, rows.index)
    for _, group in rows.groupby(by):
        for kind in group["kind"].unique():
            own = group["kind"] == kind
            fitted[group.index[own]] = fit(group[~own])
    return fitted


def fit_threshold(rows: pd.DataFrame) -> float:
    """The smallest score that is named ``sum``: the threshold with the highest balanced accuracy.

    Candidates lie halfway between scores, or beyond all of them; among equally good ones the middle one wins. NaN if
    all networks have the same algorithm.

    >>> algorithms = ["carries", "carries", "sum", "sum"]
    >>> fit_threshold(pd.DataFrame({"algorithm": algorithms, "score": [0.0, 0.2, 0.6, 1.0]}))
    0.4
    """
    scores = pd.to_numeric(rows["score"], errors="coerce")
    of_sum, of_carries = (scores[rows["algorithm"] == name].to_numpy() for name in ALGORITHM_KINDS)
    if not (len(of_sum) and len(of_carries)):
        return math.nan
    values = np.unique([x for x in (*of_sum, *of_carries) if math.isfinite(x)])
    candidates = np.array([-np.inf, *(values[:-1] + values[1:]) / 2, np.inf])
    right = [(of_sum >= x).mean() + (of_carries < x).mean() for x in candidates]
    best = candidates[np.isclose(right, max(right))]
    return float(best[(len(best) - 1) // 2])


def _fit_bar(rows: pd.DataFrame, name: str) -> float:
    evidence = rows.loc[rows["algorithm"] == "none", name].dropna().sort_values(ascending=False)
    return float(evidence.iloc[max(1, (len(evidence) + 1) // 40) - 1]) if len(evidence) else math.nan


def count_answers(rows: pd.DataFrame) -> pd.DataFrame:
    """The table of `compare_methods`, from rows with verdicts."""
    methods = rows["method"].unique()
    rows = rows[rows["named"].isin([*ALGORITHM_KINDS, "abstains"])]
    known, null = rows["algorithm"].isin(ALGORITHM_KINDS), rows["algorithm"] == "none"
    right, abstains = rows["named"] == rows["algorithm"], rows["named"] == "abstains"
    counted = {"right": known & right, "wrong": known & ~right & ~abstains, "abstained": known & abstains}
    counted |= {"named in nulls": null & ~abstains, "nulls": null}
    counts = pd.DataFrame(counted).groupby(rows["method"]).sum().reindex(methods, fill_value=0)
    shares = [format_share(*pair) for pair in zip(counts["named in nulls"], counts.pop("nulls"), strict=True)]
    return counts.assign(**{"named in nulls": shares})


def format_share(hits: int, n: int) -> str:
    """A count with its 95% interval.

    >>> format_share(1, 20)
    '1 of 20 [0%, 25%]'
    """
    if not n:
        return ""
    low, high = clopper_pearson(hits, n)
    return f"{hits} of {n} [{low:.0%}, {high:.0%}]"


def bits_of(network: str) -> int:
    """How many bits a network of the zoo adds: seven if its name does not say, as for hand-coded ones."""
    match = re.match(r"(\d+)-bit ", network)
    return int(match[1]) if match else 7


def _labelled_networks(run: Run) -> Iterator[LabelledNetwork]:
    settings = run.config()
    if settings["data"].get("examples") is not None:  # right on drawn examples does not mean right on all
        return
    config, bits = settings["model"], settings["task"]["bits"]
    if settings["task"].get("name") == "random_output":
        name, kind = f"{bits}-bit {config['name']} random answers", "random answers"
        for seed in (int(entry["seed"]) for entry in run.summary()["seeds"]):
            yield LabelledNetwork(name, seed, "none", kind, "null", partial(_as_adder, run.path, seed))
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
            yield LabelledNetwork(name, seed, algorithm, name, origin, load, tuple(variable_sites), sites)


def worst_interchange_accuracy(run: Run) -> pd.Series:
    """For each seed, the lowest accuracy after the last epoch, over variables of the loss and answer tokens."""
    last = pd.read_csv(run_path(run.tokens_file)).query("split not in ('train', 'val') and epoch == epoch.max()")
    return last.drop(columns=["epoch", "split"]).groupby("seed").min().min(axis=1)


def _handcoded(name: str, seed: int) -> Hooked:
    return load_handcoded(name, seed)[0]


def _as_adder(run: Path, seed: int) -> Hooked:
    """A network that learned random answers, presented as if it added."""
    model = load_run(run, seed)
    return Hooked(model.network, task=Add(model.task.bits), name=model.name, seed=seed)
