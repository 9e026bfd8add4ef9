"""What wrong prefixes and shifted sums do to networks written by hand, beside what they should do.

    python benchmarks/reference_probes.py results/reference-probes.csv --seed 0

A row is a network, a test and a stratum; ``expected`` is what the algorithm does, ``least`` and ``most`` are over the
positions (flip) or the doses (dose).

    flip       every pair, r_(t-1) inverted, t = 1 .. 7: the share of answers at t that change
    dose       64 pairs, all positions of a site steered along the least-squares direction of the sum by 1, 8 and 64:
               whole answers that become a + b + delta, of the best site
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from arith_erd.bits import ONE, ZERO
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.dose import doses
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.prefixes import Sample, strata
from arith_erd.models.references import reference
from arith_erd.tasks import Add

COLUMNS = ("network", "seed", "test", "stratum", "n", "least", "most", "expected")
FLIPS = {"erd": (0, 0), "lookahead_carry": (0, 0), "prefix_carry": (1, 0), "prefix_carry_decoy": (1, 0)}
DOSES = {"erd": 1, "lookahead_carry": 0, "prefix_carry": 0, "prefix_carry_decoy": 0}
Row = tuple[str, str, int, float, float, float]


def flips(model: Hooked, adder: CausalModel, expected: tuple[float, float]) -> Iterator[Row]:
    """Of `propagate` and `settled` pairs the answers that change."""
    sample = Sample.of(adder, adder.examples.operands)
    prompt, answer_in = model.inputs(sample.examples)
    clean, changed = model.run((prompt, answer_in), batch_size=256).argmax(-1), []
    for t in range(1, answer_in.shape[1]):
        given = answer_in[:, : t + 1].clone()
        given[:, t] = ZERO + ONE - given[:, t]
        changed.append((model.run((prompt, given), batch_size=256)[:, t].argmax(-1) != clean[:, t]).numpy())
    for stratum, wanted in zip(("propagate", "settled"), expected, strict=True):
        shares = [float(np.mean(c[strata(sample, t)[stratum]])) for t, c in enumerate(changed, 1)]
        yield "flip", stratum, int(strata(sample, 1)[stratum].sum()), min(shares), max(shares), wanted


def dose(model: Hooked, adder: CausalModel, expected: float) -> Row:
    """What follows a dose, of the best site."""
    sites = [f"{stack}.{layer}" for stack in ("enc", "dec") for layer in range(1, 7)]
    by_site = pd.DataFrame(doses(model, adder, sites, ["slope"], [1, 8, 64], 64, fitted=1024, random=1))
    best = by_site.groupby("site")["answer"].mean().idxmax()
    followed = by_site[by_site["site"] == best]["answer"]
    return "dose", "", 64, followed.min(), followed.max(), expected


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    adder = CausalModel(Add())
    rows: list[tuple[object, ...]] = []
    for name in FLIPS:
        model = Hooked(reference(name, given.seed).network, task=adder.task)
        for row in (*flips(model, adder, FLIPS[name]), dose(model, adder, DOSES[name])):
            print(name, *row, flush=True)
            rows.append((name, given.seed, *row))
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
