"""Can the running sums of long multiplication be read off a network (Bai et al. 2025, arXiv 2510.00184)?

    python benchmarks/running_sum.py results/running-sum.csv 'results/runs/mul-random-*'

A linear regression on the activation of position t, fitted on a random half of all pairs of operands, gives column t's
running sum of the other half: digit t of the product is its parity. A row is a network, what the regression sees, a
layer and a bit; ``r2`` is the share of variance explained. Controls: the same network before training, and the tokens
themselves (``inputs``: all operand bits and the answer so far), since a sum of the operands' bits is linear already.
"""

import argparse
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LinearRegression

import arith_erd as ae
from arith_erd.bits import to_digits
from arith_erd.errors import bad_value
from arith_erd.interp.sites import layers
from arith_erd.system.boundary import one_line_errors

COLUMNS = ["network", "seed", "seen", "layer", "bit", "r2"]


def r2(x: np.ndarray, y: np.ndarray) -> float:
    """Of a regression fitted on a random half (N, d) and (N,); NaN for a constant target."""
    fitted = np.random.default_rng(0).permutation(len(x)) < len(x) // 2
    return float(LinearRegression().fit(x[fitted], y[fitted]).score(x[~fitted], y[~fitted])) if y.std() else np.nan


def measure(path: Path) -> Iterator[tuple[str, int, str, int, int, float]]:
    trained = ae.load_run(path)
    task, examples = trained.task, trained.task.examples()
    sums = ae.CausalModel(task).table["running_sum"]  # (N, width)
    name, sites = "nanogpt" if "nanogpt" in path.name else "transformer", layers(trained.sites)
    sites = [site for site in sites if site.startswith("dec.")]
    for seen, subject in (("trained", trained), ("untrained", ae.load_run(path, epoch=0))):
        _, cache = subject.run_with_cache(examples, sites)
        for layer, site in enumerate(sites, 1):
            for t in range(task.width):
                yield name, trained.seed, seen, layer, t, r2(cache[site][:, t].numpy(), sums[:, t])
    operands, answer = task.operand_digits(examples.operands), to_digits(examples.answer, task.width)
    for t in range(task.width):
        yield name, trained.seed, "inputs", 0, t, r2(np.hstack([operands, answer[:, :t]]), sums[:, t])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", help="a glob of run directories; those without weights are left out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = [path for path in map(Path, sorted(glob(options.runs))) if any(path.glob("weights/*"))]
    if not paths:
        raise bad_value("runs", options.runs, "a glob of run directories with weights, in quotes")
    found = pd.DataFrame([row for path in paths for row in measure(path)], columns=COLUMNS)
    found.to_csv(options.out, index=False, float_format="%.5g")
    best = found.groupby(["network", "seed", "seen", "bit"])["r2"].max().unstack()
    print(best.round(2).to_string())


if __name__ == "__main__":
    with one_line_errors():
        main()
