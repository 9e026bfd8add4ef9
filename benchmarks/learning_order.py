"""Which answer bit is learnt when? The first epoch at which each token is right, from ``tokens.csv`` of runs.

    python train.py task.bits=5 model=nanogpt model.net.num_layers=3 data.batch_size=32 trainer.max_epochs=56 seed=0-9
    python train.py task.bits=5 model=nanogpt model.net.num_layers=3 data.batch_size=32 trainer.max_epochs=150 \\
        task.prompt_order=plain task.completion_order=plain seed=0-9
    python benchmarks/learning_order.py results/learning-order.csv runs/add-*

A token counts as learnt at the first epoch at which its validation accuracy, given the right tokens before it, is at
least 95%. Kendall's tau compares the order in which the bits of a network are learnt with their order of
significance: 1 if the lowest bit comes first, -1 if it comes last.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import bootstrap, kendalltau

import arith_erd as ae
from arith_erd.system.boundary import one_line_errors

LEARNT = 0.95


def learnt(path: Path) -> pd.DataFrame:
    """A row for each seed and bit of a run: the epoch, or one beyond the last if the bit was never learnt."""
    tokens = pd.read_csv(path / "tokens.csv").query("split == 'val'")
    task = ae.load_run(path).task
    last, rows = tokens["epoch"].max(), []
    for seed, of_seed in tokens.groupby("seed"):
        for name in task.answer_names:
            reached = of_seed.loc[of_seed[name] >= LEARNT, "epoch"]
            epoch = int(reached.min()) if len(reached) else last + 1
            rows.append((task.completion_order, seed, int(name.removeprefix("r")), epoch, len(reached) > 0))
    return pd.DataFrame(rows, columns=["order", "seed", "bit", "epoch", "learnt"])


def orders(table: pd.DataFrame) -> pd.DataFrame:
    """By order of the answer: mean of tau over the seeds, its bootstrap interval, and their number."""
    rows = {}
    for order, of_order in table.groupby("order"):
        taus = np.array([kendalltau(rows["bit"], rows["epoch"]).statistic for _, rows in of_order.groupby("seed")])
        interval = bootstrap((taus,), np.mean, rng=np.random.default_rng(0)).confidence_interval
        rows[order] = {"tau": taus.mean(), "low": interval.low, "high": interval.high, "seeds": len(taus)}
    return pd.DataFrame(rows).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    table = pd.concat([learnt(path) for path in options.runs])
    table.to_csv(options.out, index=False)
    print(orders(table).round(2).to_string())
    print(table.groupby(["order", "bit"])["epoch"].agg(["median", "min", "max"]).to_string())


if __name__ == "__main__":
    with one_line_errors():
        main()
