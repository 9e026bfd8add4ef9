"""Do answer positions use carries that earlier positions computed? Two runs with the same prefix and other carries.

Low sums p and p + 2^t have the same t answer bits p and opposite carries into bit t: in ``3 + 1`` and ``0 + 0`` the two
lowest bits of the answer are 0, but only the first one carries into bit 2. Whatever position t gets from its prefix is
equal in both runs. So it can tell them apart in two ways only: it reads the prompt itself, or other answer positions
have read it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..bits import from_digits
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import layers
from .place_value import Columns, Inputs, generator, with_low


def swap_inputs(columns: Columns, t: int, count: int) -> tuple[Inputs, Inputs]:
    """Bases and sources with the same right prefix, the same sum of column t, and opposite bits t, in either order.

    In an addition all bits from t on are the same. In a multiplication there may be fewer pairs than ``count``.
    """
    rng = generator("swap", t)
    if not columns.adds:
        return _swap_products(columns, t, count, rng)
    prefix = rng.integers(0, 2**t - 1, count)
    without, carrying = rng.integers(0, prefix + 1), rng.integers(prefix + 1, 2**t)
    run = with_low(rng, columns, t, np.zeros((2, count), dtype=np.int64), prefix, empty=False)
    pairs = [(run.a + low, run.b + total - low) for low, total in ((without, prefix), (carrying, prefix + 2**t))]
    turned = rng.random(count) < 0.5
    (a, b), (other_a, other_b) = (np.where(turned, v, u) for u, v in (pairs, pairs[::-1]))
    return Inputs(columns, t, a, b, prefix), Inputs(columns, t, other_a, other_b, prefix)


def _swap_products(columns: Columns, t: int, count: int, rng: np.random.Generator) -> tuple[Inputs, Inputs]:
    table = columns.model.examples.operands
    answers = columns.model.table["answer"]
    low, bit = from_digits(answers[:, :t]), answers[:, t]
    group = low * (columns.most[t] + 1) + columns(*table.T)[:, t]
    found = []
    for base in rng.permutation(len(table))[:count]:
        partners = np.flatnonzero((group == group[base]) & (bit != bit[base]))
        if len(partners):
            found.append((base, rng.choice(partners)))
    bases, sources = np.array(found, dtype=np.int64).reshape(-1, 2).T
    first, second = (Inputs(columns, t, table[which, 0], table[which, 1], low[which]) for which in (bases, sources))
    return first, second


def swaps(model: Hooked, columns: Columns, count: int) -> Iterator[dict[str, Any]]:
    """Bits t that flip if position t, or all earlier positions, read the source's prompt in layers 1 .. ``layer``.

    Position t runs in the source with the earlier positions' stream of the base run (``own``), or the reverse
    (``earlier``). After ``layer`` everything reads the base's prompt.
    """
    stream = [site for site in layers(model.sites) if site.startswith("dec.")]
    for t in range(1, columns.task.width):
        base, source = swap_inputs(columns, t, count)
        if not len(base.a):
            continue
        runs = []
        for one in (base, source):
            logits, cache = model.run_with_cache(one.tensors(), stream)
            runs.append((logits, cache))
        before = base.answers(model)
        held = [[Replace(site, j, runs[0][1][site][:, j]) for j in range(t)] for site in stream]
        given = [[Replace(site, j, runs[1][1][site][:, j]) for j in range(t)] for site in stream]
        _, own = model.run_with_cache(source.tensors(), stream, [one for layer in held for one in layer])
        for depth, site in enumerate(stream, 1):
            of_own = base.answers(model, Replace(site, t, own[site][:, t]))
            earlier = base.answers(model, *(one for layer in given[:depth] for one in layer))
            for positions, found in (("own", of_own), ("earlier", earlier)):
                row = {"bit": t, "positions": positions, "layer": depth}
                yield row | {"flipped": float((found != before).mean()), "n": len(before)}
