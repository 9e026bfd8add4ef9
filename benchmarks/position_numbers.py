"""The tables of ``docs/found/length.md``, for `page_numbers`."""

import math
from pathlib import Path

import pandas as pd

from arith_erd.runs.table import load_table, percent
from arith_erd.stats import Estimate, Mean

RESULTS = Path(__file__).parents[1] / "results"


def positions() -> dict[str, str]:
    """The held-out square by position encoding, and means of ``arith-runs --by length,model.net.positions --csv``."""
    lines = ["| positions | training pairs learnt | VS_v, of these seeds | VS_v, all seeds |", "| --- |" + " --- |" * 3]
    for name, seeds in pd.read_csv(RESULTS / "positions.csv").groupby("positions"):
        learnt = seeds[seeds["train_seq_acc"] >= 0.95]["val_seq_acc"]
        ends = f"{learnt.min():.0%} to {learnt.max():.0%}" if len(learnt) else ""
        estimate = Estimate.of_means([Mean.of(seeds["val_seq_acc"])], (0.0, 1.0))
        everyone = percent(float(seeds["val_seq_acc"].mean()), *(estimate.interval or (math.nan, math.nan)))
        lines.append(f"| `{name}` | {len(learnt)} of {len(seeds)} seeds | {ends} | {everyone} |")
    told = pd.read_csv(RESULTS / "length.csv").query(
        "length >= 4"
    )  # of shorter operands at most seven pairs are held out
    wide = told.pivot(index="model.net.positions", columns="length", values="accuracy")
    by_length = [" | ".join(["| positions", *(f"{n} bits" for n in wide)]) + " |", "| --- |" + " --- |" * wide.shape[1]]
    by_length += [" | ".join([f"| `{name}`", *(f"{x:.0%}" for x in row)]) + " |" for name, row in wide.iterrows()]
    return {"positions": "\n".join(lines), "lengths": "\n".join(by_length), "baselines": baselines()}


def baselines() -> str:
    """Validation accuracy of networks without attention on each split, and of nanoGPT in miniature."""
    splits = ["random", "vs_t", "vs_v"]
    runs = load_table(str(RESULTS / "mini" / "runs" / "add-*-nanogpt-*")).assign(**{"model.name": "nanogpt"})
    every = pd.concat([pd.read_csv(RESULTS / "baselines.csv"), runs])
    lines = ["| model | random | VS_t | VS_v |", "| --- | --- | --- | --- |"]
    for model, of_model in every.groupby("model.name", sort=False):
        cells = []
        for split in splits:
            seeds = of_model[of_model["split.name"] == split]
            learnt = int((seeds["train_seq_acc"] >= 0.95).sum())
            estimate = Estimate.of_means([Mean.of(seeds["val_seq_acc"])], (0.0, 1.0))
            everyone = percent(float(seeds["val_seq_acc"].mean()), *(estimate.interval or (math.nan, math.nan)))
            cells.append(f"{everyone}, {learnt} of {len(seeds)} learnt" if len(seeds) else "")
        lines.append(" | ".join([f"| `{model}`", *cells]) + " |")
    return "\n".join(lines)
