"""Score a method that names a network's algorithm, on networks whose algorithm is known and on some that have none.

There are three answers, since not every method can tell more: ``sum``, if the network forms the sum as one number and
reads the digits from it (the paper's ERD), ``carries``, if it forms the digits from carries and uses no sum, and
``abstains``. Null networks (`catalog.nulls`) have no algorithm, so any name for one is a false discovery.
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
from scipy.stats import norm

from ..bundled import RESULTS
from ..errors import UserError
from ..interp.algorithms import algorithm_kind
from ..interp.hooked import Hooked
from ..models.references import PROGRAMS
from ..runs.directory import Run
from ..stats import clopper_pearson
from ..system.files import run_path
from ..tasks import Add
from .loading import load_references, load_run, require_runs
from .nulls import NULLS, make_null

ALGORITHM_VARIABLES = {"sum": ("sum",), "carries": ("carry", "xor")}
NAMES = tuple(ALGORITHM_VARIABLES)
REFERENCE_SEEDS = range(2000, 2003)  # of references, as in paper/results/methods.csv; nothing was tuned on these
MIN_INTERCHANGE_ACCURACY = 0.99  # for every token, of a network that was trained to compute by variables
NUM_RESAMPLES = 1000  # of the outcomes behind an interval
SCORE_COLUMNS = ["method", "network", "kind", "origin", "seed", "algorithm"]
SCORE_COLUMNS += ["score", "sum", "carries", "low", "high", "gap_sum", "gap_carries", "seconds"]
Method = Callable[[Hooked], float | str | tuple[npt.ArrayLike, ...]]


@dataclass(frozen=True)
class LabelledNetwork:
    """A network and its algorithm: ``sum``, ``carries``, ``none`` of a null network, or empty if it is not known.

    All but null networks answer all pairs right. ``kind`` is shared by networks that resemble each other, and
    ``origin`` is ``handcoded``, ``interchange`` (trained to compute by ``variables``), ``free`` or ``null``. ``sites``
    hold the variables of a trained network. In a reference they depend on the seed:
    ``models.references.reference(name, seed)`` has their directions.
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
    """Networks written by hand for seven-bit addition, trained networks of the given runs, and null networks.

    Args:
        runs: directories or globs. A run with ``loss=interchange`` on the sum counts as ``sum``, on carry and xor as
            ``carries``, any other loss as unknown. A seed is included if it answers all pairs right and every token
            follows at least 99% of the interchanges (`paper/scripts/zoo.sh` has the commands). Networks trained on
            random answers (``task=random_output``) count as null networks.
        nulls: whether to add 100 null networks of five bits and 20 of seven, made from seeds (`catalog.nulls`).

    Raises:
        UserError: if there is no such run, or it is not finished.
    """
    networks = [
        LabelledNetwork(name, seed, algorithm, name, "handcoded", partial(_reference, name, seed), variables)
        for name in PROGRAMS
        if (algorithm := algorithm_kind(name))  # ``mixed`` uses both, ``local_remainder`` neither
        for variables in [ALGORITHM_VARIABLES[algorithm]]
        for seed in REFERENCE_SEEDS
    ]
    paths = [path for pattern in runs for path in require_runs(str(pattern), "runs")]
    networks += [network for path in paths for network in _labelled_networks(Run(path))]
    if nulls:
        networks += [
            LabelledNetwork(f"{bits}-bit {model} {kind}", seed, "none", kind, "null", make)
            for kind, architectures in NULLS.items()
            for model, by_bits in architectures.items()
            for bits, seeds in by_bits.items()
            for seed in seeds
            for make in [partial(make_null, kind, model, bits, seed)]
        ]
    return networks


def score_method(method: Method, networks: Sequence[LabelledNetwork] | None = None) -> pd.DataFrame:
    """Ask a method for the algorithm of each network, and print its row of `board` under those of other methods.

    Args:
        method: network -> its evidence for the sum and that for carries, each a number, or outcomes per example (n,)
            with that mean; or one number x, which stands for x and -x; or a name. NaN names no algorithm. A search
            returns four: both on test pairs, then both on its training pairs.
        networks: networks of `zoo`; None for all of ``zoo(nulls=True)``.

    Returns:
        A row for each network, as `add_verdicts` judges them. ``score`` is the evidence for the sum minus that for
        carries, and ``low`` and ``high`` are its 95% interval, if there are outcomes per example. ``gap_sum`` and
        ``gap_carries`` are how much higher the evidence is on the pairs that a search learned from.

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
    rows = [score_row(method, network, network.load()) for network in networks]
    found = add_verdicts(pd.DataFrame(rows, columns=SCORE_COLUMNS))
    compared = [found]
    if (stored := RESULTS / "methods.csv").is_file():
        same_networks = found[["network", "seed"]].drop_duplicates()
        compared.insert(0, pd.read_csv(stored, keep_default_na=False).merge(same_networks))
    print(board(pd.concat(compared)).to_string())
    return found


def score_row(method: Method, network: LabelledNetwork, model: Hooked) -> list[Any]:
    start = time.perf_counter()
    found = method(model)
    method_name = getattr(method, "__name__", "method")
    score: float | str
    low = high = np.nan
    gaps = [np.nan, np.nan]
    try:
        if isinstance(found, str):
            score, (of_sum, of_carries) = found, (float(found == name) for name in NAMES)
            if found not in (*NAMES, "abstains"):
                raise ValueError(found)
        elif isinstance(found, tuple):
            terms = [np.atleast_1d(np.asarray(term, dtype=float)) for term in found]
            of_sum, of_carries, *at_training = (float(term.mean()) for term in terms)
            score = of_sum - of_carries
            if max(map(len, terms)) > 1:
                low, high = _bootstrap(*terms[:2])
            if at_training:
                gaps = [x - y for x, y in zip(at_training, (of_sum, of_carries), strict=True)]
        else:  # a tensor with one number, for example, is a score too
            score = of_sum = float(found)
            of_carries = -of_sum
    except (TypeError, ValueError):
        accepted = f"a number, a pair of them, {' or '.join(NAMES)}"
        raise UserError(f"{method_name}: returned {found!r} for {network.name}; expected {accepted}") from None
    about = [method_name, network.name, network.kind, network.origin, network.seed, network.algorithm]
    return [*about, score, of_sum, of_carries, low, high, *gaps, time.perf_counter() - start]


def _bootstrap(*terms: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The 95% interval of the difference of two means. The outcomes (n,) of each are resampled independently."""
    rng = np.random.default_rng(0)
    means = [term[rng.integers(len(term), size=(NUM_RESAMPLES, len(term)))].mean(1) for term in terms]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return float(low), float(high)


def add_verdicts(rows: pd.DataFrame, least: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Add the columns ``named`` (``sum``, ``carries``, ``abstains``), ``right`` and ``flips``.

    A method names the algorithm of `names_by_threshold` if its evidence for that algorithm is above a bar: the score
    that 2.5% of the null networks exceed, or none if they are few. Only null networks of as many bits and of another
    kind count. Of n it is the k-th highest, k = max(1, floor((n + 1) / 40)). With two terms, 5% of all null networks
    get a name if their kinds are alike. Without such null networks there is no bar.
    ``named`` is empty where the two terms or the threshold are not known, and ``right`` where the algorithm is not.
    ``flips`` is how often the score of resampled outcomes lies on the other side of what divides the two names, by a
    normal distribution with the width of the interval; empty without one.

    Args:
        least: of methods whose evidence is an accuracy: the one that the algorithm with the higher accuracy must have.
    """
    least = least or {}
    terms, bits = rows[[*NAMES]].apply(pd.to_numeric, errors="coerce"), rows["network"].map(bits_of)
    divides = thresholds(rows[~rows["method"].isin(least)]).reindex(rows.index, fill_value=0.0)  # 0 of accuracies
    named = _names(rows, divides)
    for method, group in rows.groupby("method"):
        evidence, accuracy = terms.loc[group.index].to_numpy(), least.get(str(method))
        names, kinds, sizes = (x[group.index].to_numpy() for x in (named, rows["kind"], bits))
        nulls = (group["algorithm"] == "none").to_numpy()
        for kind, size in {*zip(kinds, sizes, strict=True)}:
            own = (kinds == kind) & (sizes == size)
            for of_name, name in zip(evidence.T, NAMES, strict=True):
                others = np.sort(of_name[nulls & (sizes == size) & (kinds != kind) & ~np.isnan(of_name)])[::-1]
                too_low = ~(of_name >= (accuracy or 0))
                if accuracy is None:
                    too_low = of_name <= others[max(1, (len(others) + 1) // 40) - 1] if len(others) else False
                names = np.where(own & (names == name) & too_low, "abstains", names)
        named[group.index] = names
    named[terms.isna().any(axis=1) & rows["score"].notna()] = None
    expected = rows["algorithm"].replace("none", "abstains")
    right = (named == expected).astype(int).astype(object).where((rows["algorithm"] != "") & named.notna(), None)
    return rows.assign(named=named, right=right, flips=_share_of_flips(rows, divides))


def names_by_threshold(rows: pd.DataFrame) -> pd.Series:
    """The algorithm that each score names if the method must answer; ``abstains`` where the score is NaN."""
    return _names(rows, thresholds(rows))


def _names(rows: pd.DataFrame, divides: pd.Series) -> pd.Series:
    scores = pd.to_numeric(rows["score"], errors="coerce")
    names = np.where(scores >= divides, *NAMES).astype(object)
    names[divides.isna()], names[scores.isna()] = None, "abstains"
    return rows["score"].where(rows["score"].isin(NAMES), pd.Series(names, rows.index, dtype=object))


def thresholds(rows: pd.DataFrame) -> pd.Series:
    """The threshold of each score; NaN where no network of its kind has a number, or other kinds have one algorithm.

    That of a kind is fixed on all other kinds, since networks of one kind resemble each other: a rule that has seen one
    of them would be judged on what it knows.
    """
    result = pd.Series(np.nan, rows.index)
    for _, group in rows.groupby("method"):
        scores, kinds = pd.to_numeric(group["score"], errors="coerce").to_numpy(), group["kind"].to_numpy()
        known, is_sum = group["algorithm"].isin(NAMES).to_numpy(), (group["algorithm"] == "sum").to_numpy()
        found = np.full(len(group), np.nan)
        for kind in {*kinds[~np.isnan(scores)]}:
            others = known & (kinds != kind)
            found[kinds == kind] = fit_threshold(scores[others], is_sum[others])
        result[group.index] = found
    return result


def _share_of_flips(rows: pd.DataFrame, divides: pd.Series) -> pd.Series:
    score, low, high = (pd.to_numeric(rows[x], errors="coerce") for x in ("score", "low", "high"))
    width = (high - low) / (2 * norm.ppf(0.975))
    return pd.Series(norm.cdf(-((score - divides).abs() / width.clip(lower=1e-9)).astype(float)), rows.index)


def board(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, of rows with verdicts: networks with an algorithm that it is right and wrong about or
    abstains from, and null networks in which it names one, with a 95% Clopper-Pearson interval."""
    lines = {}
    for method, group in rows[rows["named"].isin([*NAMES, "abstains"])].groupby("method", sort=False):
        named, known = group["named"] != "abstains", group["algorithm"].isin(NAMES)
        right = group["named"] == group["algorithm"]
        counts = {"right": right & known, "wrong": named & ~right & known, "abstained": ~named & known}
        nulls = group["algorithm"] == "none"
        line = {name: int(found.sum()) for name, found in counts.items()}
        lines[method] = line | {"named in nulls": format_share(int((named & nulls).sum()), int(nulls.sum()))}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("method")


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
    """The bits that a network of the zoo adds: seven if its name does not say, as of those written by hand."""
    match = re.match(r"(\d+)-bit ", network)
    return int(match[1]) if match else 7


def fit_threshold(scores: npt.NDArray[np.float64], is_sum: npt.NDArray[np.bool_]) -> float:
    """The smallest score that is named ``sum``: the threshold with the highest balanced accuracy.

    Candidates lie halfway between scores (n,), or beyond all of them; of equally good ones the middle one is taken.
    NaN if all networks have the same algorithm.

    >>> fit_threshold(np.array([0.0, 0.2, 0.6, 1.0]), np.array([False, False, True, True]))
    0.4
    """
    if is_sum.all() or not is_sum.any():
        return math.nan
    values = np.unique(scores[np.isfinite(scores)])
    thresholds = np.array([-np.inf, *(values[:-1] + values[1:]) / 2, np.inf])
    right = [((scores >= x)[is_sum].mean() + (scores < x)[~is_sum].mean()) / 2 for x in thresholds]
    best = thresholds[np.isclose(right, max(right))]
    return float(best[(len(best) - 1) // 2])


def _labelled_networks(run: Run) -> Iterator[LabelledNetwork]:
    settings = run.config()
    if settings["data"].get("examples") is not None:  # right on the examples drawn is not right on all
        return
    config, bits = settings["model"], settings["task"]["bits"]
    if settings["task"].get("name") == "random_output":
        for seed in (int(entry["seed"]) for entry in run.summary()["seeds"]):
            load = partial(_as_adder, run.path, seed)
            yield LabelledNetwork(
                f"{bits}-bit {config['name']} random answers", seed, "none", "random answers", "null", load
            )
        return
    variable_sites = config["loss"].get("variables") or {}  # variable -> its site, and its coordinates there
    variables = [name for name in variable_sites if name != "prefix"]  # either algorithm may follow it
    algorithm = next((name for name, names in ALGORITHM_VARIABLES.items() if {*variables} == {*names}), "")
    sites = tuple(dict.fromkeys(str(place["site"]) for place in variable_sites.values() if "dims" in place))
    causal_model = str(config["loss"].get("causal_model") or "").rpartition(".")[2]
    name = f"{bits}-bit {config['name']} {'+'.join(variables) or 'none'} {causal_model}".strip()
    worst_interchange_accuracy: dict[int, float] = {}  # by seed, over its variables and tokens
    if variable_sites:
        tokens = pd.read_csv(run_path(run.tokens_file))
        last = tokens[(tokens["epoch"] == tokens["epoch"].max()) & tokens["split"].isin([*variable_sites])]
        worst_interchange_accuracy = last.drop(columns=["epoch", "split"]).groupby("seed").min().min(axis=1).to_dict()
    for entry in run.summary()["seeds"]:
        seed, right = int(entry["seed"]), entry["train_seq_acc"] == entry["val_seq_acc"] == 1
        if right and worst_interchange_accuracy.get(seed, 0.0 if variable_sites else 1.0) >= MIN_INTERCHANGE_ACCURACY:
            origin, load = "interchange" if variable_sites else "free", partial(load_run, run.path, seed)
            yield LabelledNetwork(name, seed, algorithm, name, origin, load, tuple(variable_sites), sites)


def _reference(name: str, seed: int) -> Hooked:
    return load_references(name, seed)[0]


def _as_adder(run: Path, seed: int) -> Hooked:
    """A network that learned random answers, asked as if it added."""
    model = load_run(run, seed)
    return Hooked(model.network, task=Add(model.task.bits), name=model.name, seed=seed)
