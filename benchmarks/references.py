"""Do the networks written by hand add? Every variant on all 16,384 pairs, teacher forced and greedy, in float32.

    python benchmarks/references.py results/references.csv --seeds 0-19

Writes a row for each network: right answers of either kind, and the smallest logit margin. About 8 s of one CPU core a
network. What the file holds already is kept, so the same command continues.
"""

import argparse
import csv
from pathlib import Path

import torch

from arith_erd.models.decoding import greedy, shift_right
from arith_erd.models.references import DECOYS, REFERENCES, reference
from arith_erd.seeds import parse_seeds
from arith_erd.tasks import Add

COLUMNS = ("network", "seed", "pairs", "right_teacher_forced", "right_greedy", "margin")
BATCH = 1024


@torch.no_grad()
def check(name: str, seed: int) -> tuple[str, int, int, int, int, float]:
    """One row."""
    examples = Add().examples()
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    network = reference(name, seed).network
    batches = zip(prompt.split(BATCH), shift_right(completion).split(BATCH), strict=True)
    logits = torch.cat([network(p, a) for p, a in batches])  # (N, m, V)
    right = logits.gather(-1, completion[..., None])[..., 0]
    wrong = logits.scatter(-1, completion[..., None], -torch.inf).amax(-1)
    forced = (logits.argmax(-1) == completion).all(-1).sum()
    decoded = (greedy(network, prompt, completion.shape[-1], BATCH) == completion).all(-1).sum()
    return name, seed, len(prompt), int(forced), int(decoded), round(float((right - wrong).min()), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="0-19")
    given = parser.parse_args()
    there = given.out.is_file()
    with given.out.open("a+", newline="") as file:
        file.seek(0)
        done = {(row["network"], row["seed"]) for row in csv.DictReader(file)}
        writer = csv.writer(file)
        if not there:
            writer.writerow(COLUMNS)
        for seed in parse_seeds(given.seeds):
            for name in (*REFERENCES, *DECOYS):
                if (name, str(seed)) not in done:
                    row = check(name, seed)
                    writer.writerow(row)
                    file.flush()
                    print(*row)


if __name__ == "__main__":
    main()
