"""A network's signature, and the signatures that known algorithms would have.

A signature describes how each answer bit responds to wrong prefixes and to steering. Its components are arrays (m,)
over the bits t of the answer::

    flip_propagate, flip_settled        share of answers that change when r_(t-1) is inverted, by stratum
    erd, prefix_carry, remainder        share of answers that each algorithm predicts after random prefixes
    carry, value, value_of_remainder    informedness (`steering`) of steps at the best site

To get an algorithm's signature we run its causal model (`interp.algorithms`): we set its variable ``prefix``, invert
``carry`` and shift ``sum``. If the model lacks a variable, nothing changes. Your own causal model is a candidate, too.
After prefixes ``erd`` also stands for ``lookahead_carry``, since neither reads them.

`EXTRA_COMPONENTS` are measured too, but no distance uses them::

    mean_ablation, far      share of answers that change if r_(t-1) is ablated, or an earlier token is inverted
    X_over_Y                how often X is right where X and Y predict different answers after a random prefix
    ties                    share of random prefixes after which an algorithm ties; the agreements leave these out
    X_of_all                agreement over all random prefixes, where a tie counts one half

NaN marks undefined components: bit 0 has no prefix; the carry into bit 1 cannot be distinguished from a_0 b_0, which is
equal to it; nor can the last two bits of the sum be distinguished from their columns.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..digits import ZERO, Array, from_digits
from ..interp.algorithms import POST_HOC, ColumnSums, algorithms_for
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..tasks import Add, Examples
from .prefixes import USER_MODEL, PrefixedExamples, causal_models, predict_bits, run_with_prefixes
from .steering import (
    STEERING_COMPONENTS,
    STORED_SUMS,
    SteeringScore,
    measure_steering,
    sample_shifts,
    shifted_bits,
    summing_models,
)

NUM_SIMULATED = 4096  # examples for an expected signature
COMPARED = ("erd", "prefix_carry", "remainder")
PREFIX_COMPONENTS = ("flip_propagate", "flip_settled", *COMPARED)
COMPONENTS = (*PREFIX_COMPONENTS, *STEERING_COMPONENTS)
COMPARISONS = (
    *(("remainder", "prefix_carry"), ("remainder", "erd"), ("local_remainder", "remainder")),
    *(("graded_carry", "prefix_carry"), ("local_remainder", "graded_carry")),
)
"""``X_over_Y`` for each pair."""
POST_HOC_PREFIXES = (*POST_HOC, "local_remainder_over_graded_carry")
EXTRA_COMPONENTS = ("mean_ablation", "far", *(f"{x}_over_{y}" for x, y in COMPARISONS), *POST_HOC, "ties")
EXTRA_COMPONENTS += tuple(f"{name}_of_all" for name in (*COMPARED, *POST_HOC))

Signature = dict[str, np.ndarray]


class MechanismRow(NamedTuple):
    """One row of ``probe=mechanism``."""

    test: str
    component: str = ""
    site: str = ""
    position: str = "all"
    value: float = math.nan


@dataclass(frozen=True)
class MeasuredSignature:
    """The signature of a network.

    ``accuracy`` is the share of examples with all bits right; ``steering`` holds the scores at all sites.
    """

    accuracy: float
    components: Signature
    steering: list[SteeringScore] = field(default_factory=list)

    def rows(self) -> Iterator[MechanismRow]:
        yield MechanismRow("accuracy", value=self.accuracy)
        for component, values in self.components.items():
            for t in np.flatnonzero(np.isfinite(values)):
                yield MechanismRow("signature", component, position=str(t), value=float(values[t]))
        for score in self.steering:
            yield MechanismRow("steering", score.component, score.site, str(score.t), score.informedness)


def measure_signature(
    model: Hooked,
    num_examples: int = 1024,
    num_steered: int = 512,
    seed: int = 0,
    causal_model: CausalModel | None = None,
) -> MeasuredSignature:
    """Measure a signature on ``num_examples`` examples; with ``RandomSplit(seed=seed)`` they are held out.

    Networks that add are also steered: on ``num_steered`` examples, along directions fitted on as many others.
    """
    column_sums = ColumnSums(model.task)
    examples = column_sums.causal_model.examples.sample(num_examples, np.random.default_rng(seed))
    components = _measure_prefixes(model, column_sums, examples, seed, causal_model)
    scores = list(measure_steering(model, num_steered, seed)) if column_sums.is_addition else []
    for component in STEERING_COMPONENTS if scores else ():
        for t in distinguishable_bits(component, model.task.width):
            halves = [score.halves for score in scores if (score.component, score.t) == (component, t)]
            # One half of the steps chooses the site, the other scores it, so the choice inflates the score less.
            _, components[component][t] = max(halves, key=lambda halves: halves[0])
    return MeasuredSignature(model.accuracy(examples), components, scores)


def _measure_prefixes(
    model: Hooked, column_sums: ColumnSums, examples: Examples, seed: int, causal_model: CausalModel | None
) -> Signature:
    """The components measured after wrong prefixes; all others are NaN."""
    algorithms, width = algorithms_for(model.task), model.task.width
    # post-hoc algorithms are here only for their distances, which are measured in additions
    names = [name for name, x in algorithms.items() if column_sums.is_addition or not x.post_hoc]
    models = causal_models(model.task, names, causal_model)
    clean, prefix_responses = run_with_prefixes(model, examples, seed)
    responses: dict[tuple[str, int], list[Array]] = defaultdict(list)  # component, bit -> changes, agreements
    for t, change, tokens, prefix in prefix_responses:
        changed = tokens != clean[:, t]
        responses[change, t].append(changed)
        if change == "flip" and column_sums.is_addition:
            propagates = (examples.a ^ examples.b) >> (t - 1) & 1 == 1
            responses["flip_propagate", t].append(changed[propagates])
            responses["flip_settled", t].append(changed[~propagates])
        if change == "random" and prefix is not None:
            inputs = PrefixedExamples(column_sums, t, examples.a, examples.b, from_digits(prefix))
            predicted = predict_bits(models, inputs)
            responses["ties", t].append(np.any([bits < 0 for bits in predicted.values()], axis=0))
            for name, expected, counted in compared_predictions(predicted):
                agrees = np.where(expected < 0, 0.5, tokens - ZERO == expected)
                responses[name, t].append(agrees[counted])
    components = {name: np.full(width, np.nan) for name in (*COMPONENTS, *EXTRA_COMPONENTS, USER_MODEL)}
    for (name, t), shares in responses.items():
        if name in components and len(together := np.concatenate(shares)):
            components[name][t] = together.mean()
    return components


def distinguishable_bits(component: str, width: int) -> range:
    """The bits in which a component of steering can be told apart from the others."""
    return range(2 if component == "carry" else 0, width - 2)


def compared_predictions(expected: Mapping[str, Array]) -> Iterator[tuple[str, Array, Array]]:
    """Yield each component's name, the bits (N,) that it predicts, and a mask (N,) of the examples that count.

    Ties (-1) count in ``X_of_all`` only; for `COMPARISONS` only differences count.
    """
    clear = np.all([bits >= 0 for bits in expected.values()], axis=0)
    for name, bits in expected.items():
        yield name, bits, clear
        yield f"{name}_of_all", bits, np.ones_like(clear)
    for first, second in COMPARISONS:
        if {first, second} <= expected.keys():  # a multiplication has no carry
            yield f"{first}_over_{second}", expected[first], clear & (expected[first] != expected[second])


def expected_signatures(task: Add, causal_model: CausalModel | None = None) -> dict[str, Signature]:
    """The signatures of ideal networks: one for each algorithm for addition, and one for ``causal_model``.

    Bits that tie have NaN in ``flip_propagate`` and ``flip_settled``.
    """
    rng, width, column_sums = np.random.default_rng(0), task.width, ColumnSums(task)
    models = causal_models(task, algorithms_for(task), causal_model)
    examples = column_sums.causal_model.examples.sample(NUM_SIMULATED, rng)
    signatures: dict[str, Signature] = {name: defaultdict(lambda: np.full(width, np.nan)) for name in models}

    def predict(t: int, prefix: Array) -> dict[str, Array]:
        return predict_bits(models, PrefixedExamples(column_sums, t, examples.a, examples.b, prefix))

    for t in range(1, width):
        predicted = predict(t, from_digits(rng.integers(0, 2, (len(examples), t))))
        flipped = predict(t, examples.answer % 2**t ^ 2 ** (t - 1))
        right, propagates = examples.answer >> t & 1, (examples.a ^ examples.b) >> (t - 1) & 1 == 1
        for name, signature in signatures.items():
            for component, bits, counted in compared_predictions(predicted):
                if component in _agreements_of(name) and counted.any():
                    signature[component][t] = (predicted[name] == bits)[counted].mean()
            if (flipped[name] >= 0).all():
                for component, stratum in (("flip_propagate", propagates), ("flip_settled", ~propagates)):
                    signature[component][t] = (flipped[name] != right)[stratum].mean()
    steered = task.examples(*rng.integers(0, task.limit, (2, NUM_SIMULATED)))
    for name, steering in _expected_steering(task, models, steered, rng).items():
        signatures[name] |= steering
    return signatures


def _agreements_of(name: str) -> tuple[str, ...]:
    """The agreements in an algorithm's signature; only `POST_HOC` algorithms and ``user_model`` have own ones."""
    own = {USER_MODEL: (USER_MODEL,)} | dict.fromkeys(POST_HOC, POST_HOC_PREFIXES)
    return (*COMPARED, *own.get(name, ()))


def _expected_steering(
    task: Add, models: Mapping[str, CausalModel], examples: Examples, rng: np.random.Generator
) -> dict[str, Signature]:
    """Informedness (m,) of each component of steering, for an ideal network that runs each algorithm."""
    width, operands = task.width, examples.operands
    answer = examples.completion - ZERO
    delta = sample_shifts(examples.answer, task.bits, rng)
    shifted = {key: shifted_bits(pair, operands, delta) for key, pair in summing_models(task).items()}
    own_bits = {name: shifted_bits([m], operands, delta) for name, m in models.items() if _num_dims(m, "sum") == 1}
    own_bits |= {STORED_SUMS[key]: bits for key, bits in shifted.items()}  # -1 where rounding is a close call
    expected: dict[str, Signature] = {}
    for name, model in models.items():
        signature = expected[name] = {component: np.full(width, np.nan) for component in STEERING_COMPONENTS}
        for t in distinguishable_bits("carry", width):
            inverted = invert_carry(model, operands, t) if _num_dims(model, "carry") == 2 else answer
            signature["carry"][t] = (inverted != answer)[:, t].mean()
        own = own_bits.get(name, answer)
        for key, bits in shifted.items():
            for t in range(width):
                clear = (own[:, t] >= 0) & (bits[:, t] >= 0)
                changed = (own != answer)[clear, t]
                should_change = (bits != answer)[clear, t]
                if should_change.any() and not should_change.all():
                    signature[key][t] = changed[should_change].mean() - changed[~should_change].mean()
    return expected


def _num_dims(model: CausalModel, variable: str) -> int:
    """1 for a number, 2 for a column for each bit, 0 without the variable; a user's may have any shape."""
    return model.table[variable].ndim if variable in model.table else 0


def invert_carry(model: CausalModel, operands: Array, t: int) -> Array:
    """The bits (N, m) that a causal model answers if its carry into bit t is inverted."""
    carry = model.values(operands)["carry"].copy()
    carry[:, t] = 1 - carry[:, t]
    return model.answers(model.values(operands, {"carry": carry}))
