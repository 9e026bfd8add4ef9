"""Do the networks written by hand add? Every variant on all 16,384 pairs, teacher forced and greedy, in float32.

    python benchmarks/references.py results/references.csv --seeds 0-19

Writes a row for each network: right answers of either kind, and the smallest logit margin.

Greedy decoding follows from teacher forcing. Suppose that every teacher-forced argmax of a pair is right. At position 0
both read the same input, <start>, so greedy decoding gives the right r_0. If it has given the right r_0 .. r_(t-1), its
input at position t is the teacher-forced one (the decoder is causal, so nothing later counts), and so r_t is right too.
By induction the whole answer is. The margin, far above the rounding of float32, covers the other order of summation. So
``right_greedy`` counts the pairs whose argmaxes are all right; ``right_decoded`` of the ``decoded`` pairs, drawn at
random, were really decoded as a check.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from arith_erd.models.decoding import greedy, shift_right
from arith_erd.models.references import DECOYS, OTHERS, REFERENCES, reference
from arith_erd.seeds import parse_seeds
from arith_erd.tasks import Add

COLUMNS = ("network", "seed", "pairs", "right_greedy", "decoded", "right_decoded", "margin")
BATCH = 128  # larger ones spend their time on fresh memory


@torch.no_grad()
def check(name: str, seed: int, decoded: int) -> tuple[str, int, int, int, int, int, float]:
    """One row."""
    examples = Add().examples()
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    network = reference(name, seed).network
    batches = zip(prompt.split(BATCH), shift_right(completion).split(BATCH), strict=True)
    logits = torch.cat([network(p, a) for p, a in batches])  # (N, m, V)
    right = logits.gather(-1, completion[..., None])[..., 0]
    wrong = logits.scatter(-1, completion[..., None], -torch.inf).amax(-1)
    forced = (logits.argmax(-1) == completion).all(-1).sum()
    some = torch.from_numpy(np.random.default_rng(seed).permutation(len(prompt))[:decoded])
    answers = greedy(network, prompt[some], completion.shape[-1], BATCH)
    agreed = (answers == completion[some]).all(-1).sum()
    margin = round(float((right - wrong).min()), 2)
    return name, seed, len(prompt), int(forced), len(some), int(agreed), margin


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="0-19")
    parser.add_argument("--decoded", type=int, default=512, help="pairs to decode as a check")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in parse_seeds(given.seeds):
        for name in (*REFERENCES, *OTHERS, *DECOYS):
            rows.append(check(name, seed, given.decoded))
            print(*rows[-1], flush=True)
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
