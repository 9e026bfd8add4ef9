"""Pairs of runs that distinguish the hypotheses: a base, and a source whose embedding replaces the base's.

A family says which causal variables base and source share and which differ, at one position t of the answer. If they
share a_t xor b_t and the carry into t differs (``carry_only``), anything that changes bit t must have transferred the
carry.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..bits import Array
from .causal import CausalTask

ROUNDS = 200  # of redrawing sources that are not in the family


@dataclass(frozen=True)
class Family:
    """Variables that base and source have in common at t (``same``) or at every position (``same_everywhere``).

    Those of ``differ`` have different values at t. Base and source are never the same pair.
    """

    same: tuple[str, ...] = ()
    differ: tuple[str, ...] = ()
    same_everywhere: tuple[str, ...] = ()

    @property
    def everywhere(self) -> bool:
        """Whether a couple belongs to the family at every position or at none."""
        return not self.same and not self.differ

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that a task must have."""
        return self.same + self.differ + self.same_everywhere


FAMILIES = {
    "carry_only": Family(same=("xor",), differ=("carry",)),
    "xor_only": Family(same=("carry",), differ=("xor",)),
    "both": Family(differ=("carry", "xor")),
    "equal_sum": Family(same_everywhere=("sum",)),
    "equal_carries": Family(same_everywhere=("carry",)),
    "column_carry_only": Family(same=("column_sum",), differ=("column_carry",)),
    "column_sum_only": Family(same=("column_carry",), differ=("column_sum",)),
    "equal_products": Family(same_everywhere=("product",)),
    "equal_column_sums": Family(same_everywhere=("column_sum",)),
    "random": Family(),
}


@dataclass(frozen=True)
class Couples:
    """Indices (n,) into all pairs of a task: the run that is changed, and the source of its new embedding."""

    base: Array
    source: Array

    def __len__(self) -> int:
        return len(self.base)


def families_of(pairs: CausalTask) -> tuple[str, ...]:
    """The families whose variables the task has."""
    return tuple(name for name, family in FAMILIES.items() if set(family.variables) <= set(pairs.values))


def sources(
    pairs: CausalTask,
    family: str | Family,
    position: int,
    base: Array,
    rng: np.random.Generator,
    pool: Array | None = None,
) -> Array:
    """A source (n,) for each base (n,), uniform over those in its family at position t; -1 where there is none.

    Args:
        pairs: of a task that has the family's variables.
        family: one of `FAMILIES` by name, or another `Family`.
        position: t.
        base: indices of pairs, all of them in the pool.
        rng: draws the sources.
        pool: ascending indices (M,) of the pairs to draw from; None for all.
    """
    family = FAMILIES[family] if isinstance(family, str) else family
    pool = np.arange(len(pairs.a)) if pool is None else np.asarray(pool)
    columns = [pairs.values[name][pool, position] for name in family.same]
    columns += [column for name in family.same_everywhere for column in pairs.values[name][pool].T]
    order, first, size = _classes(columns, len(pool))
    differing = np.stack([pairs.values[name][pool, position] for name in family.differ] or [np.arange(len(pool))])

    at = np.searchsorted(pool, base)
    found = np.full(len(base), -1)
    for _ in range(ROUNDS):
        open_ = np.flatnonzero(found < 0)
        if not len(open_):
            break
        b = at[open_]
        s = order[first[b] + (rng.random(len(b)) * size[b]).astype(np.int64)]
        member = (differing[:, s] != differing[:, b]).all(axis=0)
        found[open_[member]] = pool[s[member]]
    return found


def draw(
    pairs: CausalTask,
    family: str | Family,
    position: int,
    n: int,
    rng: np.random.Generator,
    pool: Array | None = None,
) -> Couples:
    """Draw n couples of a family at position t; fewer or none where it has few members (no carry enters bit 0).

    Bases are uniform over the pairs that have a source. A couple can be drawn twice. Arguments as in `sources`.
    """
    pool = np.arange(len(pairs.a)) if pool is None else np.asarray(pool)
    base = pool[rng.integers(len(pool), size=4 * n + 64)]  # more than needed, since some have no source
    source = sources(pairs, family, position, base, rng, pool)
    found = np.flatnonzero(source >= 0)[:n]
    return Couples(base[found], source[found])


def _classes(columns: list[Array], length: int) -> tuple[Array, Array, Array]:
    """Sort members into classes that agree in all columns: order (M,), start and size of each member's class (M,)."""
    if not columns:
        return np.arange(length), np.zeros(length, dtype=np.int64), np.full(length, length)
    _, label = np.unique(np.stack(columns), axis=1, return_inverse=True)
    label = label.reshape(-1)
    count = np.bincount(label)
    begin = np.concatenate([[0], np.cumsum(count)[:-1]])
    return np.argsort(label, kind="stable"), begin[label], count[label]


def split_operands(pairs: CausalTask, shares: npt.ArrayLike, rng: np.random.Generator) -> list[Array]:
    """Pools of pairs that share no operand: each value 0 .. 2^n - 1 goes to one pool, with the pairs of its values.

    ``(0.5, 0.25, 0.25)`` at seven bits gives 64, 32 and 32 values, hence 4,096, 1,024 and 1,024 pairs.

    Args:
        shares: of the values, with sum 1.
        rng: assigns the values.
    """
    values = rng.permutation(2**pairs.task.bits)
    ends = np.round(np.cumsum(shares) * len(values)).astype(int)[:-1]
    pools = []
    for part in np.split(values, ends):
        own = np.isin(np.arange(len(values)), part)
        pools.append(np.flatnonzero(own[pairs.a] & own[pairs.b]))
    return pools
