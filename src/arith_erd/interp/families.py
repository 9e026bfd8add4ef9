"""Families of counterfactual pairs: the variables in which base and source differ, and those that they share.

If they share a_t xor b_t and differ in the carry into t, an interchange that changes bit t has transferred the carry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ..digits import Array
from ..errors import UserError
from .causal_model import CausalModel

MAX_ROUNDS = 200  # attempts to draw a source that differs in every variable of ``vary``


FamilySpec: TypeAlias = Mapping[Literal["vary", "keep"], str | Sequence[str]]
"""A `Family` as an option: ``{"vary": "carry", "keep": ["xor"]}``."""


@dataclass(frozen=True)
class Family:
    """Variables in which base and source differ (``vary``), and those that they share (``keep``).

    `sample_sources` applies this at one digit; without a digit, ``keep`` holds at every digit and ``vary`` at one or
    more. A variable without columns has one value for all digits. Base and source are never the same operands.
    """

    vary: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``carry``, ``carry+xor`` or ``same sum``; ``random`` without any condition."""
        return "+".join(self.vary) or (f"same {'+'.join(self.keep)}" if self.keep else "random")

    def __str__(self) -> str:
        return f"vary={','.join(self.vary)} keep={','.join(self.keep)}"


ANY_PAIR = Family()


def default_families(causal_model: CausalModel, variables: Sequence[str] | None = None) -> dict[str, Family]:
    """Families by name for a causal model: of addition ``xor``, .., ``carry``, ``same sum``, ``random``.

    A variable's family keeps the variables that act together with it (`CausalModel.co_parents`). ``same sum`` has
    different operands with the same sum, ``random`` any two examples.
    """
    if variables is None:
        variables = [name for name in distinguishable_variables(causal_model) if name not in causal_model.roots]
    families = [Family(vary=(name,), keep=keep) for name in variables if (keep := causal_model.co_parents(name))]
    same = [Family(keep=(causal_model.answer_variable,))] if causal_model.answer_variable else []
    return {family.name: family for family in (*families, *same, ANY_PAIR)}


def parse_families(causal_model: CausalModel, specs: Mapping[str, FamilySpec], key: str) -> dict[str, Family]:
    """Families by name, from ``vary`` and ``keep``; a `UserError` for unknown variables."""
    families = {}
    for name, spec in specs.items():
        family = families[name] = Family(as_names(spec.get("vary", ())), as_names(spec.get("keep", ())))
        causal_model.require_variables([*family.vary, *family.keep], f"{key}.{name}")
    return families


def distinguishable_variables(
    causal_model: CausalModel,
    among: Sequence[str] | None = None,
    digits: Sequence[int | None] | None = None,
    n: int = 256,
) -> list[str]:
    """The variables whose interchange changes some answer, one from each group with the same predictions.

    At digit t, for example, ``sum`` and ``sum_mod`` always predict the same. A group is represented by the variable
    that equals the whole answer, such as ``sum``, or else by its first one.

    Args:
        among: variables of the model; None for all.
        digits: digits that are read, each with only its column interchanged; an entry None reads all at once. By
            default every digit.
        n: number of random pairs on which predictions are compared.
    """
    rng = np.random.default_rng(0)
    base, source = (causal_model.examples.operands[rng.integers(causal_model.task.size, size=n)] for _ in range(2))
    scored_digits = range(causal_model.task.width) if digits is None else digits

    def predict(source: Array, name: str) -> Array:
        answers = {t: causal_model.interchange(base, source, name, t) for t in scored_digits}
        return np.concatenate([x[:, slice(None) if t is None else [t]] for t, x in answers.items()], axis=1)

    seen, names = [predict(base, causal_model.roots[0])], set()  # the right answers
    candidates = causal_model.variables if among is None else among
    for name in sorted(candidates, key=lambda name: name != causal_model.answer_variable):
        predicted = predict(source, name)
        if not any(np.array_equal(predicted, other) for other in seen):
            names.add(name)
            seen.append(predicted)
    return [name for name in candidates if name in names]


def require_distinguishable(
    causal_model: CausalModel, names: Sequence[str], key: str, digits: Sequence[int | None] | None = None
) -> None:
    """Raise a `UserError` for an unknown variable, one that changes no answer, or two with the same predictions."""
    causal_model.require_variables(names, key)
    distinct = distinguishable_variables(causal_model, names, digits, n=4096)
    if missing := [name for name in names if name not in distinct]:
        alone = distinguishable_variables(causal_model, missing[:1], digits, n=4096)
        reason = "it predicts the same as another variable" if alone else "its interchange changes no answer here"
        accepted = ", ".join(distinguishable_variables(causal_model))
        raise UserError(f"{key}={missing[0]}: {reason}; expected some of {accepted}")


def sample_sources(
    causal_model: CausalModel,
    family: Family,
    digit: int | None,
    base: Array,
    rng: np.random.Generator,
    pool: Array | None = None,
) -> Array:
    """Draw a source for each base (n,), uniform over its family at a digit, or at all; -1 if there is none.

    Sources are drawn from ``pool``, ascending rows (M,) with the bases among them; None for all.
    """
    for key, names in (("vary", family.vary), ("keep", family.keep)):
        causal_model.require_variables([name for name in names if name != causal_model.output], key)
    pool = np.arange(causal_model.task.size) if pool is None else np.asarray(pool)

    def group_ids_of(name: str) -> Array:
        values = causal_model.table[name][pool]
        return _group_ids(values if values.ndim == 1 or digit is None else values[:, digit])

    group = _group_ids(np.stack([np.zeros(len(pool), dtype=np.int64), *map(group_ids_of, family.keep)], axis=1))
    varied = np.stack([group_ids_of(name) for name in family.vary] or [np.arange(len(pool))])
    order, group_size = np.argsort(group, kind="stable"), np.bincount(group)
    group_start = np.cumsum(group_size) - group_size  # index in ``order`` of each group's first member
    base_index = np.searchsorted(pool, base)
    sources = np.full(len(base), -1)
    for _ in range(MAX_ROUNDS):
        if not len(pending := np.flatnonzero(sources < 0)):
            break
        group_id = group[base_index[pending]]
        drawn = order[group_start[group_id] + (rng.random(len(pending)) * group_size[group_id]).astype(np.int64)]
        differs = (varied[:, drawn] != varied[:, base_index[pending]]).all(axis=0)
        sources[pending[differs]] = pool[drawn[differs]]
    # Few members of a base's group fit, or none: look at all, unless a varied variable has one value in the group.
    counts = [np.bincount(np.unique(np.stack([group, values]), axis=1)[0]) for values in varied]
    for i in np.flatnonzero((sources < 0) & np.all([x[group[base_index]] > 1 for x in counts], axis=0)):
        start, size = (x[group[base_index[i]]] for x in (group_start, group_size))
        members = order[start : start + size]
        fitting = members[(varied[:, members] != varied[:, [base_index[i]]]).all(axis=0)]
        sources[i] = pool[rng.choice(fitting)] if len(fitting) else -1
    return sources


def _group_ids(values: Array) -> Array:
    """Values (M,) or (M, k) -> integers (M,), equal exactly where the values are."""
    return np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
