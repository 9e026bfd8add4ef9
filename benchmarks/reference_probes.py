"""What wrong prefixes, moved sums and transferred sums do to networks written by hand, beside what they should do.

    python benchmarks/reference_probes.py results/reference-probes.csv --seed 0

A row is a network, a test and a stratum; ``expected`` is what the algorithm does, ``least`` and ``most`` are over the
positions (flip), the doses (dose) or the sites (transfer).

    flip       every pair, r_(t-1) inverted, t = 1 .. 7: the share of answers at t that change
    dose       64 pairs, all positions of a site moved along the least-squares direction of the sum by 1, 8 and 64:
               whole answers that become a + b + delta, of the best site
    transfer   50 couples, the least-squares direction of the sum at position t put at t' of another run: the balanced
               share of answers with bit t' of that sum, the mean over all t and t'; 0.5: nothing happens
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from arith_erd.interp.branches import Branch, answers_to

from arith_erd.bits import ONE, ZERO
from arith_erd.interp.causal import CausalTask
from arith_erd.interp.dose import doses
from arith_erd.interp.prefix import strata
from arith_erd.interp.transfer import transfers
from arith_erd.models.decoding import shift_right
from arith_erd.models.network import Network
from arith_erd.models.references import reference
from arith_erd.tasks import Add

COLUMNS = ("network", "seed", "test", "stratum", "n", "least", "most", "expected")
FLIPS = {"erd": (0, 0), "lookahead_carry": (0, 0), "prefix_carry": (1, 0), "prefix_carry_decoy": (1, 0)}
VALUES = {"erd": (1, 1), "lookahead_carry": (0, 0.5), "prefix_carry": (0, 0.5), "prefix_carry_decoy": (0, 0.5)}
Row = tuple[str, str, int, float, float, float]


def flips(network: Network, pairs: CausalTask, expected: tuple[float, float]) -> Iterator[Row]:
    """Of `propagate` and `settled` pairs the answers that change."""
    prompt, completion = torch.from_numpy(pairs.examples.prompt), torch.from_numpy(pairs.examples.completion)
    width = completion.shape[1]
    branches = [Branch(t, ZERO + ONE - completion[:, t - 1 : t]) for t in range(1, width)]
    clean, found = answers_to(network, prompt, shift_right(completion), branches)
    changed = [(tokens[:, 0] != clean[:, t]).numpy() for t, tokens in enumerate(found, 1)]
    for stratum, wanted in zip(("propagate", "settled"), expected, strict=True):
        shares = [float(c[strata(pairs, t)[stratum]].mean()) for t, c in enumerate(changed, 1)]
        yield "flip", stratum, int(strata(pairs, 1)[stratum].sum()), min(shares), max(shares), wanted


def values(network: Network, pairs: CausalTask, expected: tuple[float, float]) -> Iterator[Row]:
    """Of the best site, what follows a dose and what follows a transfer."""
    sites = [f"{stack}.{layer}" for stack in ("enc", "dec") for layer in range(1, 7)]
    by_site = pd.DataFrame(doses(network, pairs, sites, ["slope"], [1, 8, 64], 64, fitted=1024, random=1))
    by_site = by_site[by_site["prefix"] == "target"]
    best = by_site.groupby("site")["answer"].mean().idxmax()
    followed = by_site[by_site["site"] == best]["answer"]
    yield "dose", "", 64, followed.min(), followed.max(), expected[0]
    moved = pd.DataFrame(transfers(network, pairs, sites[6:], ["slope"], 50))
    means = moved[moved["pair"] == "other"].groupby("site")["iia"].mean()
    yield "transfer", "", 50, round(means.min(), 4), round(means.max(), 4), expected[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs = CausalTask(Add())
    rows: list[tuple[object, ...]] = []
    for name in FLIPS:
        network = reference(name, given.seed).network
        for measure, expected in ((flips, FLIPS[name]), (values, VALUES[name])):
            for row in measure(network, pairs, expected):
                print(name, *row, flush=True)
                rows.append((name, given.seed, *row))
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
