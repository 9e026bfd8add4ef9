"""A network's signature: how each answer bit responds to wrong prefixes and to moves.

    flip_propagate, flip_settled    share of answers that change with r_(t-1), by stratum (`interp.prefix`)
    prompt_only, local_carry, remainder
                                    after random prefixes, agreement with what each hypothesis expects
    carry, value, value_of_remainder
                                    how well bit t follows a move (`interp.steering`), at its best stage

Beside it, and not part of any distance::

    neutral                         share that changes if r_(t-1) says nothing: does the network need it?
    far                             share that changes if an earlier token is inverted, the mean of all
    remainder_over_local_carry, remainder_over_prompt_only
                                    after random prefixes where these two hypotheses differ, how often the answer is
                                    what the first one expects

And for `LOCAL`, two algorithms that were written after trained networks had been seen. They are no candidates for the
verdict; the first three enter the distances to them::

    graded_carry, local_remainder, local_remainder_over_graded_carry,
    local_remainder_over_remainder, graded_carry_over_local_carry
                                    after random prefixes, as above

Each is an array (m,) over the bits t of the answer, NaN where undefined: bit 0 has no prefix; the carry into bit 1 is
also the product of the two bits before it; in the last two bits the sum and its column are indistinguishable, and the
last carry is the last bit.
"""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import torch

from ..bits import ZERO, Array
from ..models.decoding import shift_right
from ..models.network import Network
from ..tasks import Add, Task
from .causal import CausalTask
from .prefix import hypotheses, read_prefixes, strata
from .pushing import Pushed, pushes
from .steering import Sample, Score, draw_shifts, moved_bits, steer

HYPOTHESES = ("prompt_only", "local_carry", "remainder")
PREFIXES = ("flip_propagate", "flip_settled", *HYPOTHESES)
STEERING = {"carry": "carry", "value": "value", "value_of_remainder": "remainder"}  # component -> test
COMPONENTS = (*PREFIXES, *STEERING)
LOCAL = ("graded_carry", "local_remainder")
RIVALS = {
    f"{first}_over_{second}": (first, second)
    for first, second in (
        ("remainder", "local_carry"),
        ("remainder", "prompt_only"),
        ("local_remainder", "remainder"),
        ("graded_carry", "local_carry"),
        ("local_remainder", "graded_carry"),
    )
}
LOCAL_PREFIXES = (*LOCAL, "local_remainder_over_graded_carry")
BESIDE = ("neutral", "far", *RIVALS, *LOCAL)
EFFECT = 0.5
"""Smallest informedness at which a move has an effect."""
Signature = dict[str, np.ndarray]


@dataclass(frozen=True)
class Measured:
    """The signature of a network, with the measurements behind it.

    Attributes:
        accuracy: share of the measured pairs whose answer is right in all bits.
        components: as above, `COMPONENTS` and `BESIDE`.
        best: for each component of steering and each bit, the chosen stage; empty without one.
        scores: of all stages.
        pushed: bits that follow an inverted carry, behind the stage chosen for it (`interp.pushing`).
    """

    accuracy: float
    components: Signature
    best: dict[str, list[str]]
    scores: list[Score]
    pushed: list[Pushed] = field(default_factory=list)


def some_of(pairs: CausalTask, count: int, rng: np.random.Generator) -> CausalTask:
    """At most ``count`` of the pairs of a task, drawn without replacement."""
    if count >= len(pairs.a):
        return pairs
    chosen = rng.permutation(len(pairs.a))[:count]
    few = copy.copy(pairs)
    few.a, few.b = pairs.a[chosen], pairs.b[chosen]
    few.examples = pairs.task.examples(few.a, few.b)
    few.values = {name: column[chosen] for name, column in pairs.values.items()}
    return few


def measure(network: Network, task: Task, pairs: int = 1024, moved: int = 512, seed: int = 0) -> Measured:
    """The signature of a network.

    Args:
        network: in evaluation mode.
        task: with answers least significant bit first. Only additions are steered.
        pairs: number of pairs that get wrong prefixes.
        moved: number of pairs that are steered; as many others give the directions.
        seed: of all samples.
    """
    few = some_of(CausalTask(task), pairs, np.random.default_rng(seed))
    components = {name: np.full(task.width, np.nan) for name in (*COMPONENTS, *BESIDE)}
    _prefix_components(network, few, components, seed)
    scores = list(steer(network, task, moved, moved, seed)) if isinstance(task, Add) else []
    best: dict[str, list[str]] = {}
    for name, test in STEERING.items():
        found = [_best(scores, test, t) if _measurable(name, t, task.width) else None for t in range(task.width)]
        components[name] = np.array([np.nan if score is None else score.halves[1] for score in found])
        best[name] = ["" if score is None else score.stage for score in found]
    followed = components["carry"] >= EFFECT  # False where NaN
    at = {t: stage for t, stage in enumerate(best["carry"]) if followed[t] and stage.startswith("dec.")}
    pushed = list(pushes(network, task, at, moved, moved, seed)) if isinstance(task, Add) else []
    return Measured(_accuracy(network, few), components, best, scores, pushed)


def _measurable(component: str, t: int, width: int) -> bool:
    return (2 if component == "carry" else 0) <= t < width - 2


def _best(scores: Sequence[Score], test: str, t: int) -> Score | None:
    """The best stage on one half of the pairs; the other half scores it, so selection does not inflate the score."""
    of_bit = [score for score in scores if (score.test, score.position) == (test, t)]
    return max(of_bit, key=lambda score: score.halves[0], default=None)


@torch.no_grad()
def _accuracy(network: Network, pairs: CausalTask, batch_size: int = 1024) -> float:
    prompt, completion = torch.from_numpy(pairs.examples.prompt), torch.from_numpy(pairs.examples.completion)
    right = [
        (network(p, shift_right(c)).argmax(-1) == c).all(-1)
        for p, c in zip(prompt.split(batch_size), completion.split(batch_size), strict=True)
    ]
    return float(torch.cat(right).double().mean())


def _prefix_components(network: Network, pairs: CausalTask, components: Signature, seed: int) -> None:
    """Measure the responses to wrong prefixes."""
    readings = read_prefixes(network, pairs, draws=2, seed=seed)
    found: dict[tuple[str, int], list[Array]] = {}
    for reading in readings.changed:
        t = reading.position
        changed = reading.tokens != readings.clean[:, t]
        if reading.intervention in ("neutral", "far"):
            found.setdefault((reading.intervention, t), []).append(changed)
        if reading.intervention == "flip":
            for stratum, inside in strata(pairs, t).items():
                if f"flip_{stratum}" in components and inside.any():
                    components[f"flip_{stratum}"][t] = changed[inside].mean()
        if reading.intervention == "random" and reading.prefix is not None:
            expected = hypotheses(pairs, reading.prefix)
            clear = np.all([bits >= 0 for bits in expected.values()], axis=0)
            for name, bits in expected.items():
                found.setdefault((name, t), []).append((reading.tokens - ZERO == bits)[clear])
            for name, (first, second) in RIVALS.items():
                if not {first, second} <= expected.keys():  # a multiplication has no carry
                    continue
                apart = clear & (expected[first] != expected[second])
                found.setdefault((name, t), []).append((reading.tokens - ZERO == expected[first])[apart])
    for (name, t), shares in found.items():
        if len(together := np.concatenate(shares)):
            components[name][t] = together.mean()


def expected_signatures(task: Add, count: int = 4096, seed: int = 0) -> dict[str, Signature]:
    """The ideal signature of each algorithm for addition: algorithm -> components.

    One inverted token makes a ``remainder`` machine tie, so its ``flip`` components are NaN.
    """
    rng = np.random.default_rng(seed)
    pairs = some_of(CausalTask(task), count, rng)
    agreement = _agreement(pairs, HYPOTHESES, HYPOTHESES, rng)
    nothing, everything = np.zeros(task.width), np.ones(task.width)
    no_carry = _where_told(task, 0.0)
    flips = {"flip_propagate": nothing, "flip_settled": nothing}
    prompt = agreement["prompt_only"] | flips
    followed = _followed(task, count, rng)
    carries = {"carry": no_carry + 1, "value": nothing, "value_of_remainder": nothing}
    unknown = np.full(task.width, np.nan)
    return {
        "erd": prompt | {"carry": no_carry} | followed["value"],
        "lookahead_carry": prompt | carries,
        "prefix_carry": agreement["local_carry"] | {"flip_propagate": everything, "flip_settled": nothing} | carries,
        "remainder": agreement["remainder"]
        | {"flip_propagate": unknown, "flip_settled": unknown, "carry": no_carry}
        | followed["remainder"],
    }


def local_signatures(task: Add, count: int = 4096, seed: int = 0) -> dict[str, Signature]:
    """The ideal signature of each algorithm in `LOCAL`. They follow moves as carry machines do, and tie at ``flip``."""
    rng = np.random.default_rng(seed)
    pairs = some_of(CausalTask(task), count, rng)
    agreement = _agreement(pairs, LOCAL, (*HYPOTHESES, *LOCAL_PREFIXES), rng)
    nothing, unknown = np.zeros(task.width), np.full(task.width, np.nan)
    flips = {"flip_propagate": unknown, "flip_settled": unknown}
    moves = {"carry": _where_told(task, 1.0), "value": nothing, "value_of_remainder": nothing}
    return {name: agreement[name] | flips | moves for name in LOCAL}


def _agreement(
    pairs: CausalTask, machines: Sequence[str], names: Sequence[str], rng: np.random.Generator
) -> dict[str, Signature]:
    """After random prefixes, how often a machine's answer is what each hypothesis expects: machine -> components."""
    width = pairs.task.width
    found = {machine: {name: np.full(width, np.nan) for name in names} for machine in machines}
    for t in range(1, width):
        expected = hypotheses(pairs, rng.integers(0, 2, (len(pairs.a), t)))
        clear = np.all([bits >= 0 for bits in expected.values()], axis=0)
        for machine, name in product(machines, names):
            first, second = RIVALS.get(name, (name, None))
            counted = clear if second is None else clear & (expected[first] != expected[second])
            if counted.any():
                found[machine][name][t] = (expected[machine] == expected[first])[counted].mean()
    return found


def _where_told(task: Add, value: float) -> np.ndarray:
    """The value for each bit whose carry can be told apart, else NaN."""
    return np.array([value if _measurable("carry", t, task.width) else np.nan for t in range(task.width)])


def _followed(task: Add, count: int, rng: np.random.Generator) -> dict[str, Signature]:
    """How well machines that store a sum follow its moves, by either prediction: machine -> components."""
    sample = Sample.draw(task, count, rng)
    delta = draw_shifts(task, sample, rng)
    bits = {test: moved_bits(sample, delta, test) for test in ("value", "remainder")}
    result: dict[str, Signature] = {}
    for machine in bits:
        result[machine] = {}
        for component, test in (("value", "value"), ("value_of_remainder", "remainder")):
            share = np.full(task.width, np.nan)
            for t in range(task.width):
                clear = (bits[machine][:, t] >= 0) & (bits[test][:, t] >= 0)
                old = sample.values["answer"][clear, t]
                changed, wanted = bits[machine][clear, t] != old, bits[test][clear, t] != old
                if wanted.any() and not wanted.all():
                    share[t] = changed[wanted].mean() - changed[~wanted].mean()
            result[machine][component] = share
    return result


def as_rows(measured: Measured) -> list[dict[str, object]]:
    """All scores of the steering: one row for each stage, bit and test."""
    return [dataclasses.asdict(score) | {"informedness": score.informedness} for score in measured.scores]
