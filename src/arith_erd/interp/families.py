"""Families of counterfactual pairs, and the variables that their interchanges can tell apart.

A family says which variables base and source share, and in which they differ, at one digit of the answer or at all.
If they share a_t xor b_t and differ in the carry into t, an interchange that changes bit t has transferred the carry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ..digits import Array
from ..errors import UserError
from .causal_model import CausalModel

FamilySpec: TypeAlias = Mapping[Literal["vary", "keep"], str | Sequence[str]]
"""A `Family` as an option: ``{"vary": "carry", "keep": ["xor"]}``."""


@dataclass(frozen=True)
class Family:
    """Variables in which base and source differ (``vary``), and those that they share (``keep``).

    `sample_sources` applies both at one digit. Without a digit, ``keep`` holds at every digit, and ``vary`` at one or
    more. A variable without columns has one value for all digits. Base and source always have different operands.
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
    """Families by name for a causal model. For addition: ``xor``, .., ``carry``, ``same sum``, ``random``.

    A variable's family keeps the variables that act together with it (`CausalModel.co_parents`). In ``same sum``
    different operands have the same sum; ``random`` pairs any two examples.
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
        digits: digits of the answer to compare, each with only its column interchanged; None in this list compares
            all digits, with all columns interchanged. By default each digit.
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


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
