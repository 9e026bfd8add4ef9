"""A network's signature: how each answer bit responds to wrong prefixes and to steering.

    flip_propagate, flip_settled            share of answers that change with r_(t-1), by stratum (`prefixes`)
    prompt_only, local_carry, remainder     after random prefixes, agreement with what each hypothesis expects
    carry, value, value_of_remainder        how well bit t follows steering (`steering`), at its best site

`EXTRA_COMPONENTS` lists components that are measured too, but are part of no distance::

    mean_ablation, far      share of answers that change if r_(t-1) is ablated, or an earlier token is inverted
    X_over_Y                where X and Y expect different answers after a random prefix: how often X is right
    ties                    share of random prefixes after which a hypothesis ties; the agreements leave these out
    X_of_all                agreement over all random prefixes, where a tie counts one half
    user_model              agreement after random prefixes with a user's causal model

`POST_HOC` algorithms were written after we had seen trained networks, so they are no candidates for the verdict.

Each is an array (m,) over the bits t of the answer, NaN where undefined: bit 0 has no prefix; the carry into bit 1 is
also the product of the two bits before it; in the last two bits the sum and its column are indistinguishable.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np

from ..bits import ZERO, Array
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..tasks import Add
from .card import USER_MODEL, CardRow
from .place_value import ColumnSums
from .prefixes import Sample, no_ties, predicted_bits, read_prefixes
from .steering import STEERING, SUMS, draw_shifts, shifted_bits, steer

SIMULATED = 4096  # examples behind an expected signature
HYPOTHESES = ("prompt_only", "local_carry", "remainder")
PREFIXES = ("flip_propagate", "flip_settled", *HYPOTHESES)
COMPONENTS = (*PREFIXES, *STEERING)
POST_HOC = ("graded_carry", "local_remainder")
RIVALS = {
    "remainder_over_local_carry": ("remainder", "local_carry"),
    "remainder_over_prompt_only": ("remainder", "prompt_only"),
    "local_remainder_over_remainder": ("local_remainder", "remainder"),
    "graded_carry_over_local_carry": ("graded_carry", "local_carry"),
    "local_remainder_over_graded_carry": ("local_remainder", "graded_carry"),
}
POST_HOC_PREFIXES = (*POST_HOC, "local_remainder_over_graded_carry")
OF_ALL = tuple(f"{name}_of_all" for name in (*HYPOTHESES, *POST_HOC))
EXTRA_COMPONENTS = ("mean_ablation", "far", *RIVALS, *POST_HOC, "ties", *OF_ALL)


class Ideal(NamedTuple):
    """What an algorithm would do."""

    hypothesis: str  # about prefixes
    flip_propagate: float  # share of answers that change with r_(t-1) where a carry propagates; NaN for a tie
    carry: float  # how well answers follow an inverted carry
    stored: str  # the sum that it stores, see `shifted_bits`; empty for none


IDEAL = {
    "erd": Ideal("prompt_only", 0.0, 0.0, "value"),
    "lookahead_carry": Ideal("prompt_only", 0.0, 1.0, ""),
    "prefix_carry": Ideal("local_carry", 1.0, 1.0, ""),
    "remainder": Ideal("remainder", np.nan, 0.0, "remainder"),
    **{name: Ideal(name, np.nan, 1.0, "") for name in POST_HOC},
}
Signature = dict[str, np.ndarray]


@dataclass(frozen=True)
class MeasuredSignature:
    """The signature of a network.

    ``accuracy`` is the share of examples right in all bits; ``steering`` are the scores at all sites.
    """

    accuracy: float
    components: Signature
    steering: list[CardRow] = field(default_factory=list)

    def rows(self) -> Iterator[CardRow]:
        yield CardRow("accuracy", value=self.accuracy)
        for component, of_bits in self.components.items():
            for t in np.flatnonzero(np.isfinite(of_bits)):
                yield CardRow("signature", component, position=str(t), value=float(of_bits[t]))
        yield from self.steering


def measure_signature(
    model: Hooked, pairs: int = 1024, steered: int = 512, seed: int = 0, user_model: CausalModel | None = None
) -> MeasuredSignature:
    """The signature of a network; only additions are steered, along directions of as many other examples."""
    task = model.task
    sample = Sample.without_replacement(CausalModel(task), pairs, np.random.default_rng(seed))
    components = {name: np.full(task.width, np.nan) for name in (*COMPONENTS, *EXTRA_COMPONENTS, USER_MODEL)}
    for (name, t), shares in _after_prefixes(model, sample, seed, user_model).items():
        if name in components and len(together := np.concatenate(shares)):
            components[name][t] = together.mean()
    accuracy = model.accuracy(sample.examples)
    if not isinstance(task, Add):
        return MeasuredSignature(accuracy, components)
    scores = list(steer(model, steered, seed))
    for component in STEERING:
        for t in distinguishable_bits(component, task.width):
            halves = [both for row, both in scores if (row.component, row.position) == (component, str(t))]
            # One half of the examples chooses the site, the other scores it, so the choice does not inflate the score.
            components[component][t] = max(halves, key=lambda both: both[0])[1]
    return MeasuredSignature(accuracy, components, [row for row, _ in scores])


def distinguishable_bits(component: str, width: int) -> range:
    """The bits in which a component of steering differs from others."""
    return range(2 if component == "carry" else 0, width - 2)


def _after_prefixes(
    model: Hooked, sample: Sample, seed: int, user_model: CausalModel | None
) -> dict[tuple[str, int], list[Array]]:
    """Component and bit -> for each reading, whether answers change or agree."""
    columns, (clean, readings) = ColumnSums(model.task), read_prefixes(model, sample.examples, seed)
    responses: dict[tuple[str, int], list[Array]] = defaultdict(list)
    for reading in readings:
        t = reading.position
        changed = reading.tokens != clean[:, t]
        responses[reading.intervention, t].append(changed)
        if reading.intervention == "flip" and columns.adds:
            propagates = sample.values["xor"][:, t - 1] == 1
            responses["flip_propagate", t].append(changed[propagates])
            responses["flip_settled", t].append(changed[~propagates])
        if reading.intervention == "random" and reading.prefix is not None:
            of_prefix = predicted_bits(columns, sample, reading.prefix, user_model)
            responses["ties", t].append(~no_ties(of_prefix))
            for name, expected, counted in expectations(of_prefix):
                agrees = np.where(expected < 0, 0.5, reading.tokens - ZERO == expected)
                responses[name, t].append(agrees[counted])
    return responses


def expectations(expected: Mapping[str, Array]) -> Iterator[tuple[str, Array, Array]]:
    """Component, the bits (N,) that it expects, and where they count.

    Ties, where a hypothesis expects -1, count in `OF_ALL` only; for `RIVALS` only differences count.
    """
    clear = no_ties(expected)
    for name, bits in expected.items():
        yield name, bits, clear
        yield f"{name}_of_all", bits, np.ones_like(clear)
    for name, (first, second) in RIVALS.items():
        if {first, second} <= expected.keys():  # a multiplication has no carry
            yield name, expected[first], clear & (expected[first] != expected[second])


def expected_signatures(task: Add) -> dict[str, Signature]:
    """The ideal signature of each algorithm for addition, `POST_HOC` ones included.

    A remainder ties after a flip, so that is NaN. Only those of `POST_HOC` have the components `POST_HOC_PREFIXES`.
    """
    rng, width, columns = np.random.default_rng(0), task.width, ColumnSums(task)
    sample = Sample.without_replacement(columns.causal_model, SIMULATED, rng)
    signatures: dict[str, Signature] = {name: defaultdict(lambda: np.full(width, np.nan)) for name in IDEAL}
    for t in range(1, width):
        of_prefix = predicted_bits(columns, sample, rng.integers(0, 2, (len(sample), t)))
        for name, (component, bits, counted) in product(IDEAL, list(expectations(of_prefix))):
            compared = (*HYPOTHESES, *POST_HOC_PREFIXES) if name in POST_HOC else HYPOTHESES
            if component in compared and counted.any():
                signatures[name][component][t] = (of_prefix[IDEAL[name].hypothesis] == bits)[counted].mean()
    followed = _followed(task, rng)
    for name, (_, propagate, carry, stored) in IDEAL.items():
        flips = {"flip_propagate": np.full(width, propagate), "flip_settled": np.full(width, 0 * propagate)}
        carries = np.where(np.isin(np.arange(width), distinguishable_bits("carry", width)), carry, np.nan)
        signatures[name] = {**signatures[name], **flips, "carry": carries}
        signatures[name] |= {sum_: followed[stored, sum_] if stored else np.zeros(width) for sum_ in SUMS}
    return signatures


def _followed(task: Add, rng: np.random.Generator) -> dict[tuple[str, str], np.ndarray]:
    """How well machines that store a sum follow its steps: what they store, component -> (m,)."""
    sample = Sample.with_replacement(CausalModel(task), SIMULATED, rng)
    delta, answer = draw_shifts(sample, rng), sample.values["answer"]
    bits = {stored: shifted_bits(sample, delta, stored) for stored in SUMS.values()}
    scores = {}
    for stored, (component, predicted) in product(bits, SUMS.items()):
        shares = scores[stored, component] = np.full(task.width, np.nan)
        for t in range(task.width):
            clear = (bits[stored][:, t] >= 0) & (bits[predicted][:, t] >= 0)
            changed, wanted = ((bits[x][:, t] != answer[:, t])[clear] for x in (stored, predicted))
            if wanted.any() and not wanted.all():
                shares[t] = changed[wanted].mean() - changed[~wanted].mean()
    return scores
