"""Score a method that names a network's algorithm, on networks whose algorithm is known and on some that have none.

A method gives one of three answers, since not every method can tell more. ``sum``: the network forms the sum as one
number and reads the digits from it (the paper's ERD). ``carries``: it forms the digits from carries and uses no sum.
``abstains``: no answer. Null networks (`catalog.nulls`) have no algorithm, so any name for one is a false discovery.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import norm

from ..bundled import RESULTS
from ..checks import require_type
from ..errors import UserError, excerpt
from ..interp.hooked import Hooked
from ..stats import clopper_pearson
from .zoo import ALGORITHM_VARIABLES, LabelledNetwork, zoo

LABELS = tuple(ALGORITHM_VARIABLES)
EVIDENCE_OF_ANSWERS = {"sum": (1.0, 0.0), "carries": (0.0, 1.0), "abstains": (0.0, 0.0)}
NUM_RESAMPLES = 1000  # bootstrap samples for an interval
SCORE_COLUMNS = ["method", "network", "kind", "origin", "seed", "algorithm"]
SCORE_COLUMNS += ["score", "sum", "carries", "low", "high", "gap_sum", "gap_carries", "seconds"]


class Evidence(NamedTuple):
    """A method's evidence that a network forms the sum, and that it forms carries.

    Each is a number, or outcomes per example (n, ...), whose mean is the evidence. A search that learns from pairs adds
    its evidence on its training pairs; without a search these are None.
    """

    sum: npt.ArrayLike
    carries: npt.ArrayLike
    sum_in_training: npt.ArrayLike | None = None
    carries_in_training: npt.ArrayLike | None = None


Method = Callable[[Hooked], Evidence | tuple[npt.ArrayLike, ...] | float | str]


def score_method(method: Method, networks: Sequence[LabelledNetwork] | None = None) -> pd.DataFrame:
    """Ask a method for the algorithm of each network. `compare_methods` counts its answers beside other methods'.

    Args:
        method: a function of a network. It returns an `Evidence`, or a plain tuple of its two or four fields; or one
            number x for the evidence x and -x; or ``sum``, ``carries`` or ``abstains``. NaN names no algorithm.
        networks: networks of `zoo`; None for all of ``zoo(nulls=True)``.

    Returns:
        A row for each network, with the columns of `name_algorithms`. ``score`` is the evidence for the sum minus that
        for carries; ``low`` and ``high`` are its 95% interval, given outcomes per example. ``gap_sum`` and
        ``gap_carries`` say how much higher the evidence is on a search's training pairs.

    Raises:
        UserError: if an argument has another type, or the method returns something else.
    """
    if not callable(method):
        raise UserError(f"score_method: received {method!r}; expected a function of a network")
    if networks is None:
        networks = zoo(nulls=True)
    networks = [*networks] if isinstance(networks, Iterable) else [networks]
    for network in networks:
        require_type("score_method: networks", network, LabelledNetwork)
    if not networks:
        raise UserError("score_method: received no networks; expected at least one from zoo()")
    name = getattr(method, "__name__", "method")
    rows = [score_network(name, method, network, network.load()) for network in networks]
    return name_algorithms(pd.DataFrame(rows, columns=SCORE_COLUMNS), bits=[network.bits for network in networks])


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
    """The row of a method and a network, before `name_algorithms`. It lacks columns that the method does not fill."""
    start = time.perf_counter()
    found = method(model)
    row: dict[str, Any] = {"method": name, "seconds": time.perf_counter() - start, "network": network.name}
    row |= {column: getattr(network, column) for column in ("kind", "origin", "seed", "algorithm")}
    try:
        if isinstance(found, str):
            return row | {"score": found, **dict(zip(LABELS, EVIDENCE_OF_ANSWERS[found], strict=True))}
        if isinstance(found, tuple):
            return row | _evidence_columns(Evidence(*found))
        score = float(found)  # of a tensor with one number, for example
        return row | {"score": score, "sum": score, "carries": -score}
    except (KeyError, TypeError, ValueError, RuntimeError):
        accepted = f"a number, two or four of them, {', '.join(LABELS)} or abstains"
        raise UserError(f"{name}: returned {excerpt(repr(found))} for {network.name}; expected {accepted}") from None


def _evidence_columns(evidence: Evidence) -> dict[str, float]:
    """The score and its terms; the interval, given outcomes per example; and the gaps of a search."""
    outcomes = {name: _outcomes(values) for name, values in evidence._asdict().items() if values is not None}
    of_sum, of_carries = outcomes["sum"], outcomes["carries"]
    row = {"score": of_sum.mean() - of_carries.mean(), "sum": of_sum.mean(), "carries": of_carries.mean()}
    if max(len(of_sum), len(of_carries)) > 1:
        row["low"], row["high"] = _bootstrap(of_sum, of_carries)
    if len(outcomes) > 2:
        row |= {f"gap_{name}": outcomes[f"{name}_in_training"].mean() - row[name] for name in LABELS}
    return {column: float(value) for column, value in row.items()}


def _outcomes(term: Any) -> npt.NDArray[np.float64]:
    """An accuracy, or outcomes (n, ...) of n examples, as numbers (n,): the mean of each example."""
    numbers = torch.as_tensor(term).detach().cpu().double().numpy()
    return np.asarray(numbers.reshape(len(numbers) if numbers.ndim else 1, -1).mean(1))


def _bootstrap(*terms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The 95% interval (2,) of the difference of two means. The outcomes (n,) of each are resampled independently."""
    rng = np.random.default_rng(0)
    means = [term[rng.integers(len(term), size=(NUM_RESAMPLES, len(term)))].mean(1) for term in terms]
    return np.quantile(means[0] - means[1], [0.025, 0.975])


def name_algorithms(
    rows: pd.DataFrame, min_accuracy: Mapping[str, float] | None = None, bits: Sequence[int] | None = None
) -> pd.DataFrame:
    """Add the columns ``named`` (``sum``, ``carries``, ``abstains``), ``right`` and ``flips``.

    A method names the algorithm of `name_by_threshold`. It abstains if its evidence for that algorithm is at most the
    bar: the k-th highest evidence among the n null networks of other kinds and the same bits, with
    k = max(1, (n + 1) // 40). About 2.5% of them exceed it, none if they are few; so 5% of null networks get one of the
    two names if their kinds are alike. Without such null networks there is no bar. ``named`` is empty if the two terms
    or the threshold are unknown, ``right`` if the algorithm is unknown. ``flips`` is how often resampled outcomes would
    put the score on the other side of the threshold. It assumes a normal distribution with the width of the interval,
    and is empty without an interval.

    Args:
        min_accuracy: for methods whose evidence is an accuracy: the least accuracy with which the better algorithm is
            named. These methods have no fitted threshold and no bar.
        bits: how many bits the network of each row adds; by default `bits_of` its name, as for stored rows.
    """
    numbers = rows[["score", *LABELS, "low", "high"]].apply(pd.to_numeric, errors="coerce")
    scored = rows.assign(**numbers, bits=rows["network"].map(bits_of) if bits is None else bits)
    accuracy = rows["method"].map(min_accuracy or {})  # NaN for methods with a bar
    threshold = thresholds(rows).where(accuracy.isna(), 0.0)
    named = name_by_threshold(rows, threshold)
    for label in LABELS:
        bar = _fit_on_other_kinds(scored, ["method", "bits"], partial(_fit_bar, label=label))
        too_low = (numbers[label] < accuracy) | (accuracy.isna() & (numbers[label] <= bar))
        named[(named == label) & too_low] = "abstains"
    lacks_evidence = numbers[[*LABELS]].isna().any(axis=1)
    named[lacks_evidence & rows["score"].notna()] = None
    right = (named == rows["algorithm"].replace("none", "abstains")).astype(int).astype(object)
    is_judged = (rows["algorithm"] != "") & named.notna()
    deviation = (numbers["high"] - numbers["low"]) / (2 * norm.ppf(0.975))
    flips = norm.cdf(-((numbers["score"] - threshold).abs() / deviation.clip(lower=1e-9)))
    return rows.assign(named=named, right=right.where(is_judged, None), flips=flips)


def bits_of(network: str) -> int:
    """How many bits a network adds, by its name in a stored row: seven if it does not say, as for hand-coded ones."""
    match = re.match(r"(\d+)-bit ", network)
    return int(match[1]) if match else 7


def name_by_threshold(rows: pd.DataFrame, threshold: pd.Series | None = None) -> pd.Series:
    """The algorithm that each score names if the method must answer; ``abstains`` where the score is NaN.

    The default threshold comes from `thresholds`.
    """
    threshold = thresholds(rows) if threshold is None else threshold
    score = pd.to_numeric(rows["score"], errors="coerce")
    named = pd.Series(np.where(score >= threshold, *LABELS), rows.index, dtype=object)
    named[threshold.isna()] = None
    named[score.isna()] = "abstains"
    return rows["score"].where(rows["score"].isin(LABELS), named)


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
    of_sum, of_carries = (scores[rows["algorithm"] == name].to_numpy() for name in LABELS)
    if not (len(of_sum) and len(of_carries)):
        return math.nan
    values = np.unique([x for x in (*of_sum, *of_carries) if math.isfinite(x)])
    candidates = np.array([-np.inf, *(values[:-1] + values[1:]) / 2, np.inf])
    right = [(of_sum >= x).mean() + (of_carries < x).mean() for x in candidates]
    best = candidates[np.isclose(right, max(right))]
    return float(best[(len(best) - 1) // 2])


def _fit_bar(rows: pd.DataFrame, label: str) -> float:
    evidence = rows.loc[rows["algorithm"] == "none", label].dropna().sort_values(ascending=False)
    return float(evidence.iloc[max(1, (len(evidence) + 1) // 40) - 1]) if len(evidence) else math.nan


def count_answers(rows: pd.DataFrame) -> pd.DataFrame:
    """The table of `compare_methods`, from rows of `name_algorithms`."""
    methods = rows["method"].unique()
    rows = rows[rows["named"].isin([*LABELS, "abstains"])]
    known, null = rows["algorithm"].isin(LABELS), rows["algorithm"] == "none"
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
