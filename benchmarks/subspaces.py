"""Does the bar for subspaces tell apart what a network computes with from what it only stores?

    python benchmarks/subspaces.py results/mechanism-subspaces.csv --seeds 0-1

Searches, as the card of ``probe=mechanism`` does, in networks written by hand: references, whose variables are known,
and decoys, which store another variable unread. Writes a row for each network and variable. What the file holds already
is kept, so the same command continues.
"""

import argparse
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch
from continued import ContinuedTable

from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.evidence import gather
from arith_erd.models.references import DECOYS, OTHERS, REFERENCES, reference
from arith_erd.seeds import parse_seeds
from arith_erd.tasks import Add


@dataclass(frozen=True)
class Row:
    """The chosen subspace of a variable, beside its best control."""

    network: str
    seed: int
    site: str
    position: str
    variable: str
    rank: int
    span: int
    iia: float
    control: float
    passes: int


def rows(name: str, seed: int) -> list[Row]:
    """Those of one network."""
    found = gather(Hooked(reference(name, seed).network, task=Add())).searched
    return [
        Row(
            name, seed, one.site, one.position, one.variable, one.found.rank, one.found.span,
            round(one.found.iia, 4), round(one.found.best_control, 4), int(one.passes),
        )
        for one in found
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="0-1")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = ContinuedTable(given.out, [field.name for field in fields(Row)], ("network", "seed"))
    for seed in parse_seeds(given.seeds):
        for name in REFERENCES | OTHERS | DECOYS:
            if (name, str(seed)) not in table.done:
                table.add(astuple(row) for row in rows(name, seed))


if __name__ == "__main__":
    main()
