"""A network's signature: how each answer bit responds to wrong prefixes and to steering.

    flip_propagate, flip_settled    share of answers that change with r_(t-1), by stratum (`prefixes`)
    prompt_only, local_carry, remainder
                                    after random prefixes, agreement with what each hypothesis expects
    carry, value, value_of_remainder
                                    how well bit t follows steering (`directions`), at its best site

Beside it, and not part of any distance, are `BESIDE`: the share that changes if r_(t-1) is ablated or an earlier token
inverted; after random prefixes where two hypotheses differ, how often the first is right (``_over_``); the share of
``ties``, prefixes that the agreements leave out; and the agreements with a tie as one half (``_of_all``). `POST_HOC`
algorithms were written after trained networks had been seen: they are no candidates for the verdict.

Each is an array (m,) over the bits t of the answer, NaN where undefined: bit 0 has no prefix; the carry into bit 1 is
also the product of the two bits before it; in the last two bits the sum and its column are indistinguishable.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from ..bits import ZERO, Array
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..tasks import Add
from .directions import BeyondRange, Score, draw_shifts, shifted_bits, steer, steer_beyond
from .prefixes import Sample, hypotheses, read_prefixes, strata

HYPOTHESES = ("prompt_only", "local_carry", "remainder")
PREFIXES = ("flip_propagate", "flip_settled", *HYPOTHESES)
STEERING = {"carry": "carry", "value": "value", "value_of_remainder": "remainder"}  # component -> test
COMPONENTS = (*PREFIXES, *STEERING)
POST_HOC = ("graded_carry", "local_remainder")
RIVALS = {
    **{f"remainder_over_{name}": ("remainder", name) for name in ("local_carry", "prompt_only")},
    "local_remainder_over_remainder": ("local_remainder", "remainder"),
    "graded_carry_over_local_carry": ("graded_carry", "local_carry"),
    "local_remainder_over_graded_carry": ("local_remainder", "graded_carry"),
}
POST_HOC_PREFIXES = (*POST_HOC, "local_remainder_over_graded_carry")
OF_ALL = tuple(f"{name}_of_all" for name in (*HYPOTHESES, *POST_HOC))
BESIDE = ("mean_ablation", "far", *RIVALS, *POST_HOC, "ties", *OF_ALL)
EFFECT = 0.5
"""Smallest informedness of a step, and smallest share of patched answers that change, that count as an effect."""
Signature = dict[str, np.ndarray]


@dataclass(frozen=True)
class Measured:
    """The signature of a network, with the measurements behind it.

    ``accuracy`` is the share of examples right in all bits; ``best``, for each component of steering and each bit, the
    chosen site; ``scores`` those of all sites; ``beyond``, bits that follow an inverted carry, at the site chosen for
    it.
    """

    accuracy: float
    components: Signature
    best: dict[str, list[str]] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    beyond: list[BeyondRange] = field(default_factory=list)

    def follows(self, component: str, t: int) -> bool:
        return bool(self.components[component][t] >= EFFECT)  # False for NaN

    def sentences(self) -> list[str]:
        if not self.beyond:
            return []
        low, high = (f"{end(one.carry for one in self.beyond):.0%}" for end in (min, max))
        bits = ", ".join(str(one.position) for one in self.beyond)
        share = low if low == high else f"{low} to {high}"
        return [f"setting the carry to 2 or -1 changes {share} of the answers in bits {bits}"]


def measure(model: Hooked, pairs: int = 1024, steered: int = 512, seed: int = 0) -> Measured:
    """The signature of a network; only additions are steered.

    ``pairs`` examples get wrong prefixes, ``steered`` are steered, and as many others give the directions.
    """
    task = model.task
    sample = Sample.some(CausalModel(task), pairs, np.random.default_rng(seed))
    components = {name: np.full(task.width, np.nan) for name in (*COMPONENTS, *BESIDE)}
    components |= _prefix_components(model, sample, seed)
    accuracy = model.accuracy(sample.examples)
    if not isinstance(task, Add):
        return Measured(accuracy, components)
    scores, best = list(steer(model, steered, steered, seed)), {}
    for name, test in STEERING.items():
        of_bits = [_best(scores, test, t) if _measurable(name, t, task.width) else None for t in range(task.width)]
        components[name] = np.array([np.nan if score is None else score.halves[1] for score in of_bits])
        best[name] = ["" if score is None else score.site for score in of_bits]
    found = Measured(accuracy, components, best, scores)
    at = {t: site for t, site in enumerate(best["carry"]) if found.follows("carry", t) and site.startswith("dec.")}
    return replace(found, beyond=list(steer_beyond(model, at, steered, steered, seed)))


def _measurable(component: str, t: int, width: int) -> bool:
    return (2 if component == "carry" else 0) <= t < width - 2


def _best(scores: Sequence[Score], test: str, t: int) -> Score | None:
    """The best site on one half of the examples; the other half scores it, so selection does not inflate the score."""
    of_bit = [score for score in scores if (score.test, score.position) == (test, t)]
    return max(of_bit, key=lambda score: score.halves[0], default=None)


def _prefix_components(model: Hooked, sample: Sample, seed: int) -> Signature:
    clean, readings = read_prefixes(model, sample.examples, draws=2, seed=seed)
    found: dict[tuple[str, int], list[Array]] = {}
    for reading in readings:
        t = reading.position
        changed = reading.tokens != clean[:, t]
        if reading.intervention in BESIDE:
            found.setdefault((reading.intervention, t), []).append(changed)
        if reading.intervention == "flip":
            for stratum, inside in strata(sample, t).items():
                found.setdefault((f"flip_{stratum}", t), []).append(changed[inside])
        if reading.intervention == "random" and reading.prefix is not None:
            bits, of_prefix = reading.tokens - ZERO, hypotheses(sample, reading.prefix)
            found.setdefault(("ties", t), []).append(~no_ties(of_prefix))
            for name, expected, counted in expectations(of_prefix):
                found.setdefault((name, t), []).append(agreement(bits, expected)[counted])
    components: Signature = {}
    for (name, t), shares in found.items():
        if name in (*COMPONENTS, *BESIDE) and len(together := np.concatenate(shares)):
            components.setdefault(name, np.full(sample.task.width, np.nan))[t] = together.mean()
    return components


def expectations(expected: Mapping[str, Array]) -> Iterator[tuple[str, Array, Array]]:
    """Component, the bits (N,) that it expects, and where they count.

    Ties, where a hypothesis expects -1, count in `OF_ALL` only; for `RIVALS` only differences count.
    """
    everywhere, clear = np.ones(len(expected["prompt_only"]), dtype=bool), no_ties(expected)
    for name, bits in expected.items():
        yield name, bits, clear
        yield f"{name}_of_all", bits, everywhere
    for name, (first, second) in RIVALS.items():
        if {first, second} <= expected.keys():  # a multiplication has no carry
            yield name, expected[first], clear & (expected[first] != expected[second])


def no_ties(expected: Mapping[str, Array]) -> Array:
    """Where (N,) every hypothesis expects a bit."""
    found: Array = np.all([bits >= 0 for bits in expected.values()], axis=0)
    return found


def agreement(bits: Array, expected: Array) -> np.ndarray:
    """1 where bits (N,) are the expected ones, 0 where they are not, 1/2 where a hypothesis ties (-1)."""
    return np.where(expected < 0, 0.5, bits == expected)


def expected_signatures(task: Add, count: int = 4096, seed: int = 0) -> dict[str, Signature]:
    """The ideal signature of each algorithm for addition; ``remainder`` ties after a flip, so that is NaN."""
    rng = np.random.default_rng(seed)
    agreed = _agreement(Sample.some(CausalModel(task), count, rng), HYPOTHESES, HYPOTHESES, rng)
    nothing, everything = np.zeros(task.width), np.ones(task.width)
    no_carry = np.where([_measurable("carry", t, task.width) for t in range(task.width)], 0.0, np.nan)
    flips = {"flip_propagate": nothing, "flip_settled": nothing}
    prompt = agreed["prompt_only"] | flips
    followed = _followed(task, count, rng)
    carries = {"carry": no_carry + 1, "value": nothing, "value_of_remainder": nothing}
    unknown = np.full(task.width, np.nan)
    return {
        "erd": prompt | {"carry": no_carry} | followed["value"],
        "lookahead_carry": prompt | carries,
        "prefix_carry": agreed["local_carry"] | {"flip_propagate": everything, "flip_settled": nothing} | carries,
        "remainder": agreed["remainder"]
        | {"flip_propagate": unknown, "flip_settled": unknown, "carry": no_carry}
        | followed["remainder"],
    }


def post_hoc_signatures(task: Add, count: int = 4096, seed: int = 0) -> dict[str, Signature]:
    """The ideal signature of each algorithm in `POST_HOC`: steered like carry machines, with ties at ``flip``."""
    rng = np.random.default_rng(seed)
    agreed = _agreement(Sample.some(CausalModel(task), count, rng), POST_HOC, (*HYPOTHESES, *POST_HOC_PREFIXES), rng)
    nothing, unknown = np.zeros(task.width), np.full(task.width, np.nan)
    flips = {"flip_propagate": unknown, "flip_settled": unknown}
    carry = np.where([_measurable("carry", t, task.width) for t in range(task.width)], 1.0, np.nan)
    steered = {"carry": carry, "value": nothing, "value_of_remainder": nothing}
    return {name: agreed[name] | flips | steered for name in POST_HOC}


def _agreement(
    sample: Sample, machines: Sequence[str], names: Sequence[str], rng: np.random.Generator
) -> dict[str, Signature]:
    """After random prefixes, how often a machine's answer is what each hypothesis expects: machine -> components."""
    width = sample.task.width
    found = {machine: {name: np.full(width, np.nan) for name in names} for machine in machines}
    for t in range(1, width):
        of_prefix = hypotheses(sample, rng.integers(0, 2, (len(sample), t)))
        for machine, (name, expected, counted) in product(machines, list(expectations(of_prefix))):
            if name in names and counted.any():
                found[machine][name][t] = (of_prefix[machine] == expected)[counted].mean()
    return found


def _followed(task: Add, count: int, rng: np.random.Generator) -> dict[str, Signature]:
    """How well machines that store a sum follow its steps, by either prediction: machine -> components."""
    sample = Sample.draw(CausalModel(task), count, rng)
    delta = draw_shifts(sample, rng)
    bits = {test: shifted_bits(sample, delta, test) for test in ("value", "remainder")}

    def share(machine: str, test: str, t: int) -> float:
        clear = (bits[machine][:, t] >= 0) & (bits[test][:, t] >= 0)
        old = sample.values["answer"][clear, t]
        changed, wanted = bits[machine][clear, t] != old, bits[test][clear, t] != old
        return changed[wanted].mean() - changed[~wanted].mean() if wanted.any() and not wanted.all() else np.nan

    shares = {(m, test): np.array([share(m, test, t) for t in range(task.width)]) for m in bits for test in bits}
    return {m: {"value": shares[m, "value"], "value_of_remainder": shares[m, "remainder"]} for m in bits}
