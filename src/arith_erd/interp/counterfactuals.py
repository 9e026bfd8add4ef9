"""Counterfactual pairs: a base, and a source whose activations replace the base's.

Base and source are row numbers of ``CausalModel.examples``, which holds all combinations of operands. A family says
which variables they share, and in which they differ, at one digit of the answer or at all. If they share a_t xor b_t
and differ in the carry into t, an interchange that changes bit t has transferred the carry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..checks import require_integer, require_type
from ..digits import Array
from ..errors import UserError, bad_value, warn
from ..tasks import Examples, Task
from .causal_model import CausalModel, distinguishable_variables

MAX_ROUNDS = 200  # attempts to draw a source that differs in every variable of ``vary``
SOURCES_PER_BASE = 8  # sources drawn for each base of a balanced dataset
MIN_DISTINCT = 50  # a dataset with fewer distinct pairs gives a warning

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

    @classmethod
    def of(cls, vary: str | Sequence[str] = (), keep: str | Sequence[str] = ()) -> "Family":
        """The family of these variables; a string is the name of one."""
        return cls(*(tuple(x) if isinstance(x, Iterable) and not isinstance(x, str) else (x,) for x in (vary, keep)))

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
        family = families[name] = Family.of(spec.get("vary", ()), spec.get("keep", ()))
        causal_model.require_variables([*family.vary, *family.keep], f"{key}.{name}")
    return families


def sample_sources(
    causal_model: CausalModel,
    family: Family,
    digit: int | None,
    base: Array,
    rng: np.random.Generator,
    pool: Array | None = None,
) -> Array:
    """Draw a source for each base (n,), uniformly among all that fit the family at a digit (None: at all digits).

    A source is -1 if none fits. ``pool`` holds the rows (M,) to draw from, ascending, with all bases; None for all.
    """
    for key, names in (("vary", family.vary), ("keep", family.keep)):
        causal_model.require_variables([name for name in names if name != causal_model.output], key)
    pool = np.arange(causal_model.task.size) if pool is None else np.asarray(pool)

    def value_ids(name: str) -> Array:
        values = causal_model.table[name][pool]
        return _group_ids(values if values.ndim == 1 or digit is None else values[:, digit])

    group = _group_ids(np.stack([np.zeros(len(pool), dtype=np.int64), *map(value_ids, family.keep)], axis=1))
    varied = np.stack([value_ids(name) for name in family.vary] or [np.arange(len(pool))])
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
    # Search the whole group of each base that still lacks a source, unless a varied variable is constant in the group.
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


@dataclass(frozen=True, eq=False)
class CounterfactualDataset:
    """n pairs of runs of one family: `sample` draws them with ``seed``, and `of` takes your own.

    ``base`` and ``source`` (n,) are row numbers of ``task.examples()``, drawn from the rows in ``pool``. ``digit`` is
    the digit t of the answer, counted from the lowest, at which the family holds; None for all digits.
    """

    causal_model: CausalModel
    base: Array
    source: Array
    family: Family = ANY_PAIR
    digit: int | None = None
    pool: Array | None = None
    seed: int | None = None  # None for your own pairs

    def __post_init__(self) -> None:
        size, pairs = self.causal_model.task.size, (self.base, self.source)
        base, source = (np.zeros(0) if isinstance(x, Examples) else np.asarray(x) for x in pairs)
        are_rows = all(x.dtype.kind in "iu" and ((x >= 0) & (x < size)).all() for x in (base, source))
        if not are_rows or base.ndim != 1 or base.shape != source.shape:
            problem = f"base, source: expected row numbers below {size}, equally many of each"
            raise UserError(f"{problem}; .sample(..) draws pairs, .of(..) takes your own")
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "source", source)

    def __repr__(self) -> str:
        where = "" if self.digit is None else f" at digit {self.digit}"
        distinct = f" ({self.num_distinct} distinct)" * (self.num_distinct < len(self))
        return f"CounterfactualDataset({len(self)} pairs{distinct}, {self.family}{where})"

    @property
    def num_distinct(self) -> int:
        return len(np.unique(np.stack([self.base, self.source]), axis=1).T)

    @classmethod
    def of(cls, causal_model: CausalModel, base: Examples, source: Examples) -> "CounterfactualDataset":
        """Pair the examples of two batches, one by one.

        >>> from arith_erd.tasks import Add
        >>> task = Add(3)
        >>> pairs = CounterfactualDataset.of(CausalModel(task), task.examples([3], [5]), task.examples([1], [4]))
        >>> pairs.base_examples.answer, pairs.source_examples.answer
        (array([8]), array([5]))
        """
        require_type("causal_model", causal_model, CausalModel)
        task = causal_model.task
        task.require_enumerable("a dataset of pairs")
        for batch in (base, source):
            if not isinstance(batch, Examples):
                raise UserError(f"base, source: received {type(batch).__name__}; expected batches of task.examples(..)")
            task.require_own_examples(batch, "base, source")
        if len(base) != len(source):
            raise UserError(f"base, source: received {len(base)} and {len(source)} examples; expected equal numbers")
        return cls(causal_model, *(np.ravel_multi_index(tuple(x.operands.T), task.shape) for x in (base, source)))

    @classmethod
    def sample(
        cls,
        causal_model: CausalModel,
        vary: str | Sequence[str] = (),
        keep: str | Sequence[str] = (),
        n: int = 1000,
        digit: int | None = None,
        seed: int = 0,
        pool: Array | None = None,
    ) -> "CounterfactualDataset":
        """Draw n pairs of a family; bases are uniform over the operands that have a source.

        >>> from arith_erd.tasks import Add
        >>> data = CounterfactualDataset.sample(CausalModel(Add(3)), vary="carry", keep=["xor"], n=50, digit=2)
        >>> bool((data.base_examples.answer != data.source_examples.answer).all())
        True

        Args:
            vary, keep: variables of the causal model in which base and source differ, and those that they share.
            digit: the digit of the answer, counted from the lowest, at which this holds. With None ``keep`` holds at
                every digit, ``vary`` at one or more.
            pool: rows to draw from, in any order; None for all.

        Raises:
            UserError: for an unknown variable, or if there are no such pairs.
        """
        require_type("causal_model", causal_model, CausalModel)
        require_integer("n", n, 1)
        require_integer("seed", seed, 0)
        causal_model.task.require_enumerable("a dataset of pairs")
        if digit is not None:
            require_integer("digit", digit, 0, causal_model.task.width - 1)
        family = Family.of(vary, keep)
        rng = np.random.default_rng(seed)
        size = causal_model.task.size
        if isinstance(pool, Examples):
            raise UserError("pool: received Examples; expected their rows among the examples of the causal model")
        rows = np.arange(size) if pool is None else np.unique(pool)  # ascending
        if len(rows) and (rows.dtype.kind not in "iu" or not 0 <= rows[0] <= rows[-1] < size):
            raise bad_value("pool", f"{rows[0]} .. {rows[-1]}", f"rows from 0 to {size - 1}")
        rows = rows.astype(np.int64)  # an empty list makes an array of floats
        pool = None if pool is None else rows
        base = rng.choice(rows, 4 * n + 64) if len(rows) else rows  # some have no source
        source = sample_sources(causal_model, family, digit, base, rng, rows)
        usable = np.flatnonzero(source >= 0)
        if not len(usable):
            where = "(vary at some digit, keep at every digit)" if digit is None else f"at digit {digit}"
            raise UserError(f"{family}: no pair of operands has this {where}; keep or vary other variables")
        usable = np.resize(usable, n)  # repeated where bases with a source are rare
        return cls(causal_model, base[usable], source[usable], family, digit, pool, seed)

    def __len__(self) -> int:
        return len(self.base)

    @property
    def base_examples(self) -> Examples:
        return self.causal_model.examples[self.base]

    @property
    def source_examples(self) -> Examples:
        return self.causal_model.examples[self.source]

    def expected(self, variable: str) -> Array:
        """Digits (n, width) of the predicted answers to the bases, with the variable at ``digit`` from the sources."""
        return self.causal_model.interchange(self.base_examples, self.source_examples, variable, self.digit)

    def part(self, rows: slice | Array) -> "CounterfactualDataset":
        return replace(self, base=self.base[rows], source=self.source[rows])

    def split(self, shares: Sequence[float] = (0.5, 0.5)) -> "tuple[CounterfactualDataset, ...]":
        """Split into parts that share no operand. Their sizes are these shares of the dataset's size; they sum to 1.

        Each value of an operand belongs to one part. Few of the old pairs lie within a part, so each part draws new
        pairs of the same family. In a small task pairs repeat, and fewer than 50 distinct ones give a warning.

        Raises:
            UserError: for shares that do not sum to 1, or if a part has too few operands for the family.
        """
        if self.seed is None:
            raise UserError("split: needs pairs of `sample`, to draw more; for your own pairs use part(rows)")
        accepted = "shares above 0 that add up to 1, such as (0.8, 0.2)"
        try:
            shares = tuple(np.atleast_1d(np.asarray(shares, dtype=float)).tolist())
        except (TypeError, ValueError):
            raise bad_value("shares", shares, accepted) from None
        if not (min(shares, default=0) > 0 and abs(sum(shares) - 1) <= 1e-6):  # nan fails too
            raise bad_value("shares", shares, accepted)
        rng = np.random.default_rng([self.seed, 2])
        ends = np.round(np.cumsum(shares) * len(self)).astype(int)
        pools = split_operands(self.causal_model.task, shares, rng)
        pools = pools if self.pool is None else [np.intersect1d(part, self.pool) for part in pools]
        arguments, parts = (self.causal_model, self.family.vary, self.family.keep), []
        for i, (n, pool, share) in enumerate(zip(np.diff([0, *ends]).tolist(), pools, shares, strict=True)):
            try:
                parts.append(self.sample(*arguments, n, self.digit, self.seed + i, pool))
            except UserError as error:
                problem = f"a share of {share:g} leaves {n} of {len(self)} pairs and {len(pool)} examples, too few"
                raise UserError(f"{problem}: {error}") from error
        if few := [part.num_distinct for part in parts if part.num_distinct < min(MIN_DISTINCT, len(part))]:
            advice = "more bits, a larger share, or part(rows) of these pairs give more"
            warn(f"split: a part has only {min(few)} distinct pairs; {advice}")
        return tuple(parts)


def sample_balanced_pairs(
    causal_model: CausalModel, variable: str, base: Array, pool: Array, rng: np.random.Generator, digits: Sequence[int]
) -> CounterfactualDataset:
    """Draw sources such that in about half of the pairs the variable's interchange changes the predicted answer.

    Only changes in ``digits`` count; for a single digit, only its column of the variable is interchanged.
    """
    digit = digits[0] if len(digits) == 1 else None
    candidates = pool[rng.integers(len(pool), size=(SOURCES_PER_BASE, len(base)))]
    change = rng.integers(2, size=len(base)).astype(bool)  # whether the answer should change
    source = candidates[-1].copy()
    for candidate in candidates[:-1][::-1]:  # the first that fits, else the last candidate
        predicted = CounterfactualDataset(causal_model, base, candidate, digit=digit).expected(variable)
        fits = (predicted != causal_model.table["answer"][base])[:, digits].any(axis=1) == change
        fits &= candidate != base
        source[fits] = candidate[fits]
    pairs = CounterfactualDataset(causal_model, base, source, Family(vary=(variable,)), digit, pool)
    if pairs.num_distinct < min(MIN_DISTINCT, len(pairs) // 2):
        problem = f"{causal_model.task}: some datasets have fewer than {MIN_DISTINCT} distinct pairs"
        warn(f"{problem}; more bits give more")
    return pairs


def split_operands(task: Task, shares: npt.ArrayLike, rng: np.random.Generator) -> list[Array]:
    """Pools of rows of all examples that share no operand: each value is in one pool, with all pairs of its values.

    ``(0.5, 0.25, 0.25)`` at seven bits gives 64, 32 and 32 values, hence 4,096, 1,024 and 1,024 pairs.
    """
    values = rng.permutation(task.limit)
    ends = np.round(np.cumsum(shares) * len(values)).astype(int)[:-1]
    operands = task.examples().operands
    return [np.flatnonzero(np.isin(operands, part).all(axis=1)) for part in np.split(values, ends)]
