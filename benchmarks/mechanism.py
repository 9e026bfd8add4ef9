"""How often is the verdict of probe=mechanism right? On networks whose algorithm is known.

    python benchmarks/mechanism.py results/mechanism-calibration.csv --seeds 1000-1019 --decoys 1000-1009 --untrained 10

Hand-written references must get their own name, decoys that of the algorithm they run, untrained networks ``none``. The
seeds must be such that no code was tuned on them; tuning used 0 to 99. Smaller samples than the probe's default, so
that its verdicts are no worse. A network takes 8 s of one CPU core; finished rows in the file are kept.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from arith_erd.interp.signature import expected_signatures, measure
from arith_erd.interp.verdict import decide
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.references import DECOYS, REFERENCES, reference
from arith_erd.seeds import parse_seeds
from arith_erd.tasks import Add

COLUMNS = ("network", "seed", "expected", "verdict", "distance", "nearest", "next_distance", "seconds")


def cases(references: tuple[int, ...], decoys: tuple[int, ...], untrained: int) -> Iterator[tuple[str, int, str]]:
    """Networks, seeds, and the verdicts that are right."""
    yield from ((name, seed, name) for seed in references for name in REFERENCES)
    yield from ((name, seed, name.removesuffix("_decoy")) for seed in decoys for name in DECOYS)
    yield from ((name, seed, "none") for seed in range(untrained) for name in ("Transformer", "NanoGPT"))


def build(name: str, seed: int) -> Network:
    """A reference, a decoy, or an untrained network."""
    if name in REFERENCES | DECOYS:
        return reference(name, seed).network
    torch.manual_seed(seed)
    return {"Transformer": Transformer, "NanoGPT": NanoGPT}[name](15, 8).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="1000-1019")
    parser.add_argument("--decoys", default="1000-1009")
    parser.add_argument("--untrained", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--moved", type=int, default=128)
    parser.add_argument("--part", default="0/1", help="i/n: every n-th network from the i-th on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if options.out.is_file():
        with options.out.open() as file:
            done = {(row["network"], int(row["seed"])) for row in csv.DictReader(file)}
    else:
        options.out.write_text(",".join(COLUMNS) + "\n")
    task = Add()
    expected = expected_signatures(task)
    part, parts = map(int, options.part.split("/"))
    every = list(cases(parse_seeds(options.seeds), parse_seeds(options.decoys), options.untrained))
    for name, seed, right in every[part::parts]:
        if (name, seed) in done:
            continue
        started = time.process_time()
        verdict = decide(measure(build(name, seed), task, options.pairs, options.moved), expected)
        singles = sorted(value for key, value in verdict.distances.items() if key != "mixed")
        row = (name, seed, right, verdict.name, f"{verdict.distance:.4f}", f'"{verdict.nearest}"', f"{singles[1]:.4f}",
               f"{time.process_time() - started:.1f}")  # fmt: skip
        with options.out.open("a") as file:
            file.write(",".join(map(str, row)) + "\n")
        print(*row, "" if verdict.name == right else "WRONG", flush=True)


if __name__ == "__main__":
    main()
