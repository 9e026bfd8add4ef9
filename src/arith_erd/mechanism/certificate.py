"""Certificates: a network's answer to every pair, after every prefix, at every bit, beside the answers of algorithms.

Most of the algorithms (`interp.algorithms`) round c or a_t + b_t + c. The *distance* of an answer is how far
a_t + b_t + c is from the nearest rounding point, 1/2, 3/2, ..: near 0 the slightest noise decides, and 1/2 is the
clearest case.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import log_ndtr

from ..checks import renamed, require_integer, require_type
from ..digits import Array
from ..errors import UserError
from ..interp.algorithms import ColumnSums, algorithms_for
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.prefix_tree import Digits, answers_after_prefixes, answers_along
from ..tasks import Task
from .prefixes import PrefixedExamples, causal_models

LOCAL_REMAINDER = "local_remainder"
"""Answers are stored as differences from this algorithm, whose answers most networks give."""
CONTRASTS = (
    *((LOCAL_REMAINDER, name) for name in ("graded_carry", "remainder", "prefix_carry", "erd")),
    ("graded_carry", "prefix_carry"),
)
"""Where two algorithms answer differently, exactly one of them is right."""
CLEAR = 0.25
"""Answers at least this far from a rounding point are clear: noise below a quarter in c changes none of them."""
CURVE_STEP = 1 / 16
MAX_COUNTEREXAMPLES = 100
PAIRS_PER_BLOCK = 1024
MIN_SIGMA, MAX_SIGMA = 1e-3, 10.0


class PrefixBlock(NamedTuple):
    """Some pairs with all their prefixes of t bits: arrays (N,), one element for each pair and prefix."""

    pairs: slice
    inputs: PrefixedExamples
    distance: Array
    """In units of 2^-(t + 1), so that it is an integer: ``2^t`` is 1/2."""
    models: dict[str, CausalModel]

    def predicted(self, name: str) -> Array:
        """The answers (N,) of the causal model of this name."""
        return self.inputs.predict_by(self.models[name])


@dataclass(frozen=True)
class Certificate:
    """The answers of one network, and tables that count them.

    ``answers[t]`` has bit t of the answer to each pair (rows) after each prefix of t bits (columns), in the order of
    ``task.examples()`` and of the numbers that the prefixes spell. With ``completions`` (N, K), the only prefixes
    are their first t bits.
    """

    task: Task
    answers: list[Digits]
    causal_model: CausalModel | None = None
    completions: Array | None = None

    def shares(self) -> pd.DataFrame:
        """The share ``right`` of ``n`` answers that each ``algorithm`` gives, by ``bit`` and ``distance``."""
        return self._table.query("against == ''").drop(columns="against").reset_index(drop=True)

    def contrasts(self) -> pd.DataFrame:
        """Where ``algorithm`` and ``against`` differ: the share ``right`` of ``n`` answers that ``algorithm`` gives."""
        return self._table.query("against != ''").reset_index(drop=True)

    def precision(self) -> pd.DataFrame:
        """For each ``bit``, a probit fit of rounding up to the fraction of a_t + b_t + c: ``threshold`` and ``sigma``.

        A network that runs ``local_remainder`` with noise sigma in c has the threshold 1/2. Both are NaN if all answers
        are equal.
        """
        counts: dict[int, Any] = defaultdict(int)  # t -> answers rounded up, and all (2, 2^t), by fraction
        for block, bits in self._blocks():
            x, t = block.inputs, block.inputs.t
            total = x.column_sum + x.c
            inside, up = (total >= 0) & (total < x.column_sums.max_total[t]), bits != np.floor(total) % 2
            counts[t] += np.array([np.bincount(x.fraction[inside & which], minlength=2**t) for which in (up, True)])
        fits = {t: fit_probit(np.arange(2**t) / 2**t, up, n) for t, (up, n) in counts.items()}
        return pd.DataFrame([{"bit": t, "threshold": x, "sigma": sigma} for t, (x, sigma) in fits.items()])

    def curve(self) -> pd.DataFrame:
        """The share ``ones`` of the ``n`` answers that are 1, by ``bit`` and ``total``.

        The total is a_t + b_t + c, rounded down to a multiple of `CURVE_STEP`. If a network rounds the total, its curve
        is a square wave.
        """
        counts: dict[tuple[int, float], Any] = defaultdict(int)  # t, total -> answers that are 1, and all
        for block, bits in self._blocks():
            x = block.inputs
            totals, bins = np.unique(np.floor((x.column_sum + x.c) / CURVE_STEP), return_inverse=True)
            for total, found in zip(totals, np.array([np.bincount(bins, bits), np.bincount(bins)]).T, strict=True):
                counts[x.t, total * CURVE_STEP] += found
        rows = ((t, total, ones / n, int(n)) for (t, total), (ones, n) in sorted(counts.items()))
        return pd.DataFrame(rows, columns=["bit", "total", "ones", "n"])

    def counterexamples(self, algorithm: str = LOCAL_REMAINDER) -> pd.DataFrame:
        """Up to `MAX_COUNTEREXAMPLES` clear answers that differ from an algorithm's, most distant first."""
        found = []
        for block, bits in self._blocks():
            x = block.inputs
            distance = block.distance / 2.0 ** (x.t + 1)
            rows = np.flatnonzero((bits != block.predicted(algorithm)) & (distance >= CLEAR))
            columns = {"a": x.a, "b": x.b, "prefix": x.prefix, "distance": distance, "answer": bits}
            found.append(pd.DataFrame({"bit": x.t} | {name: column[rows] for name, column in columns.items()}))
        return pd.concat(found).sort_values("distance", ascending=False, kind="stable").head(MAX_COUNTEREXAMPLES)

    def to_bytes(self) -> bytes:
        """The answers, compressed: one bit each, 1 where `LOCAL_REMAINDER` gives the other answer."""
        differ = [bits != block.predicted(LOCAL_REMAINDER) for block, bits in self._blocks()]
        return zlib.compress(np.packbits(np.concatenate(differ)).tobytes(), level=9)

    @staticmethod
    def from_bytes(
        task: Task, data: bytes, completions: Array | None = None, causal_model: CausalModel | None = None
    ) -> "Certificate":
        """The certificate whose answers `to_bytes` stored; completions and causal model are those that it had."""
        bits = np.unpackbits(np.frombuffer(zlib.decompress(data), dtype=np.uint8))
        differ = BytesIO(bits.tobytes())  # a byte for each answer

        def answer(block: PrefixBlock) -> Array:
            return block.predicted(LOCAL_REMAINDER) ^ np.frombuffer(differ.read(len(block.inputs.a)), dtype=np.uint8)

        return replace(answered_by(answer, task, completions), causal_model=causal_model)

    def _blocks(self) -> Iterator[tuple[PrefixBlock, Array]]:
        """All blocks, each with the network's answers (N,)."""
        for block in make_blocks(self.task, self.causal_model, self.completions):
            yield block, self.answers[block.inputs.t][block.pairs].ravel().astype(np.int64)

    @cached_property
    def _table(self) -> pd.DataFrame:
        """The rows of `contrasts` and of `shares`; ``against`` is empty for `shares`."""
        counts: dict[tuple[str, str, int], Any] = defaultdict(int)  # algorithm, against, t -> its answers, and all
        for block, bits in self._blocks():
            t = block.inputs.t
            right = {name: block.predicted(name) == bits for name in block.models}
            chosen = {(name, ""): np.ones_like(rows) for name, rows in right.items()}
            chosen |= {pair: right[pair[0]] != right[pair[1]] for pair in CONTRASTS if {*pair} <= right.keys()}
            for (name, against), rows in chosen.items():
                by_distance = [np.bincount(block.distance[x], minlength=2**t + 1) for x in (rows & right[name], rows)]
                counts[name, against, t] += np.array(by_distance)  # (2, 2^t + 1)
        rows = (
            (name, against, t, distance / 2 ** (t + 1), right / n, n)
            for (name, against, t), of_all in counts.items()
            for distance, (right, n) in enumerate(of_all.T.tolist())
            if n
        )
        return pd.DataFrame(rows, columns=["algorithm", "against", "bit", "distance", "right", "n"])


@renamed("user_model", "causal_model", since="1.1")
def certificate(
    model: Hooked, causal_model: CausalModel | None = None, num_completions: int | None = None
) -> Certificate:
    """Ask a network that adds or multiplies for every bit of every pair after every prefix: `answers_after_prefixes`.

    Args:
        causal_model: your own, counted beside the algorithms as ``user_model``.
        num_completions: take this many random completions of each pair in place of every prefix. They are uniform and
            the same for every network. Bit t is asked after their first t bits.

    Raises:
        UserError: for other tasks and networks, for a million pairs or more, and for a multiplication of more than
            five bits without ``num_completions``.
    """
    require_type("certificate: model", model, Hooked)
    ColumnSums(task := model.task)
    if causal_model is not None:
        require_type("certificate: causal_model", causal_model, CausalModel)
        if not causal_model.task.same_as(task):
            raise UserError(f"certificate: causal_model: received one for {causal_model.task}; expected one for {task}")
    task.require_enumerable("a certificate")
    if num_completions is None:
        return Certificate(task, answers_after_prefixes(model, task.examples()), causal_model)
    require_integer("num_completions", num_completions, 1)
    completions = random_completions(task, num_completions)
    return Certificate(task, answers_along(model, task.examples(), completions), causal_model, completions)


def random_completions(task: Task, num_completions: int) -> Array:
    """Random numbers (N, num_completions) that an answer can spell; every call returns the same ones."""
    return np.random.default_rng(0).integers(0, 2**task.width, (task.size, num_completions))


def answered_by(answer: Callable[[PrefixBlock], Array], task: Task, completions: Array | None = None) -> Certificate:
    """The certificate of a network whose bits are a function of a `PrefixBlock`."""
    answers: list[list[Digits]] = [[] for _ in range(task.width)]
    for block in make_blocks(task, completions=completions):
        pairs = len(range(task.size)[block.pairs])
        answers[block.inputs.t].append(answer(block).astype(np.uint8).reshape(pairs, -1))
    return Certificate(task, [np.concatenate(parts) for parts in answers], completions=completions)


def compared_algorithms(task: Task) -> list[str]:
    """The algorithms for a task, latest first. ``lookahead_carry`` is left out: like ``erd`` it reads no prefix."""
    return [name for name in reversed(algorithms_for(task)) if name != "lookahead_carry"]


def make_blocks(
    task: Task, causal_model: CausalModel | None = None, completions: Array | None = None
) -> Iterator[PrefixBlock]:
    """All pairs and prefixes, with the algorithms that answer them."""
    sums, examples = ColumnSums(task), task.examples()
    models = causal_models(task, compared_algorithms(task), causal_model)
    for first in range(0, len(examples), PAIRS_PER_BLOCK):
        pairs = slice(first, first + PAIRS_PER_BLOCK)
        a, b = examples.operands[pairs].T
        for t in range(task.width):
            prefixes = np.tile(np.arange(2**t), (len(a), 1)) if completions is None else completions[pairs] % 2**t
            count = prefixes.shape[1]
            inputs = PrefixedExamples(sums, t, a.repeat(count), b.repeat(count), prefixes.ravel())
            yield PrefixBlock(pairs, inputs, np.abs(2 * inputs.fraction - 2**t), models)


def fit_probit(x: Array, successes: Array, n: Array) -> tuple[float, float]:
    """Threshold and sigma of P(success) = Phi((x - threshold) / sigma), by maximum likelihood; NaN if all are equal."""
    if successes.sum() in (0, n.sum()):
        return np.nan, np.nan

    def loss(parameters: Array) -> float:
        z = (x - parameters[0]) / np.exp(parameters[1])
        return -float(successes @ log_ndtr(z) + (n - successes) @ log_ndtr(-z)) / n.sum()

    starts = [minimize(loss, [0.5, np.log(sigma)], method="Nelder-Mead") for sigma in (0.03, 0.3)]
    threshold, log_sigma = min(starts, key=lambda fit: fit.fun).x
    return float(threshold), float(np.clip(np.exp(log_sigma), MIN_SIGMA, MAX_SIGMA))
