"""Is c a carry potential? What ``paper/preregistrations/4-potential.md`` predicts, counted.

    python -m arith_erd.paper.studies.potential 'runs/add*-seed2000-2004-*'

puts a row for each network, epoch, bit and distance into ``potential.csv``, the slips and what mended them into
``potential-slips.csv``, and draws ``potential.png``. Then it prints the predictions with what came.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import Tensor

import arith_erd as ae
from arith_erd.bundled import RESULTS
from arith_erd.digits import ONE, ZERO, decoder_tokens
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Replace
from arith_erd.interp.sites import layers
from arith_erd.mechanism.certificate import fit_probit
from arith_erd.plots.panels import Lines
from arith_erd.plots.style import save_png
from arith_erd.runs.directory import Run, require_runs
from arith_erd.system.cli_errors import one_line_errors
from arith_erd.tasks import Task

from ..formats import format_range, markdown

FILE, SLIPS = RESULTS / "potential.csv", RESULTS / "potential-slips.csv"
STEP = 1 / 8  # of the distance
NEAR, FAR, SLIP = 1 / 8, 3 / 8, 1 / 4
NUM_COMPLETIONS = {2: 16, 3: 4}  # by the number of operands
MIN_WRONG, MAX_WRONG = 0.01, 0.3
MIN_RATIO, MIN_CORRELATION, MAX_OFF, MIN_SLIPS = 3.0, 0.3, 0.15, 100
MIN_SHARE, MIN_MENDED, MAX_MENDED, MIN_SEEDS = 0.8, 0.9, 0.3, 4
NULL_RATIO, NULL_CORRELATION = (0.8, 1.25), 0.1
CONFIGURATIONS = {
    ("add", "nanogpt"): "nanoGPT",
    ("add", "transformer"): "Transformer",
    ("add3", "nanogpt"): "nanoGPT, three operands",
}
BY = ["task", "model", "seed", "epoch"]


def questions(task: Task) -> pd.DataFrame:
    """Each bit from 2 on of each example after each of its random completions, where c is between its ends.

    ``example`` is a row of ``task.examples()``, ``prefix`` the number that the first bits of the completion ``answer``
    spell.
    """
    operands = task.examples().operands
    count = NUM_COMPLETIONS[operands.shape[1]]
    completions = np.random.default_rng(0).integers(0, 2**task.width, (len(operands), count))
    largest = operands.shape[1] - 1
    found = []
    for t in range(2, task.width):
        lower = (operands % 2**t).sum(axis=1)[:, None]
        c = (lower - completions % 2**t) / 2**t
        column = np.broadcast_to((operands >> t & 1).sum(axis=1)[:, None], c.shape)
        distance = np.abs(c - np.clip(np.floor(c), 0, largest - 1) - 0.5)
        rows, columns = np.nonzero((c >= 0) & (c <= largest) & (distance > 0))
        values = {"c": c, "column": column, "distance": distance, "prefix": completions % 2**t, "answer": completions}
        table = {name: x[rows, columns] for name, x in values.items()}
        found.append(pd.DataFrame({"bit": t, "example": rows} | table))
    table = pd.concat(found, ignore_index=True)
    table["carry"] = np.round(table["c"]).astype(int)
    table["expected"] = (table["column"] + table["carry"]) % 2
    return table


def answered(questions: pd.DataFrame, margins: np.ndarray) -> pd.DataFrame:
    """The questions with the ``margin``, logit of 1 - logit of 0, of each, and whether the answer is ``wrong``."""
    wrong = (margins > 0) != (questions["expected"] == 1)
    return questions.assign(margin=margins, wrong=wrong)


def ask(model: Hooked, asked: pd.DataFrame) -> np.ndarray:
    """The margins (N,) of questions, from one pass over their completions."""
    run = asked[["example", "answer"]].drop_duplicates()
    which = pd.MultiIndex.from_frame(run).get_indexer(pd.MultiIndex.from_frame(asked[["example", "answer"]]))
    last = model.task.width - 1
    logits = model.run(inputs(model, last, run.assign(prefix=run["answer"] % 2**last)))
    return _margins(logits)[which, asked["bit"]]


def _margins(logits: Tensor) -> np.ndarray:
    return np.asarray((logits[..., ONE] - logits[..., ZERO]).double().detach().cpu())


def ask_patched(model: Hooked, asked: pd.DataFrame, site: str, source: pd.DataFrame) -> np.ndarray:
    """The margins (N,) of questions if position t of a site comes from the runs of ``source``, row by row."""
    margins = np.zeros(len(asked))
    for t, of_bit in asked.groupby("bit"):
        _, cache = model.run_with_cache(inputs(model, int(t), source.loc[of_bit.index]), [site])
        patch = Replace(site, int(t), cache[site][:, -1])
        logits = model.run(inputs(model, int(t), of_bit), [patch])[:, -1]
        margins[asked.index.get_indexer(of_bit.index)] = _margins(logits)
    return margins


def inputs(model: Hooked, t: int, of_bit: pd.DataFrame) -> tuple[Tensor, Tensor]:
    """The prompts (N, P) of questions about bit t, and the decoder's inputs (N, t + 1)."""
    prompt = model.task.examples().prompt[of_bit["example"]]
    answer_in = decoder_tokens(of_bit["prefix"], t)
    return torch.as_tensor(prompt, device=model.device), torch.as_tensor(answer_in, device=model.device)


def by_distance(table: pd.DataFrame) -> pd.DataFrame:
    """By bit and distance, rounded down to a multiple of `STEP`: answers, ``wrong`` ones, and mean |margin|."""
    binned = table.assign(distance=np.floor(table["distance"] / STEP) * STEP, margin=table["margin"].abs())
    aggregate = {"n": ("wrong", "size"), "wrong": ("wrong", "sum"), "margin": ("margin", "mean")}
    return binned.groupby(["bit", "distance"], as_index=False).agg(**aggregate)


def ratio(counts: pd.DataFrame) -> float:
    """How many times more frequent errors are near the threshold than far from it; infinite without far ones."""
    near, far = (counts[rows][["wrong", "n"]].sum() for rows in (counts["distance"] < NEAR, counts["distance"] >= FAR))
    shares = near["wrong"] / near["n"], far["wrong"] / far["n"]
    return float(shares[0] / shares[1]) if shares[1] else float("inf")


def thresholds(table: pd.DataFrame) -> dict[str, float]:
    """Medians over bits of the threshold of rounding up from 0 and, with three operands, from 1."""
    found: dict[str, list[float]] = {}
    for (_, below), rows in table.assign(below=np.floor(table["c"])).groupby(["bit", "below"]):
        if rows["c"].nunique() == 1:  # the largest carry itself
            continue
        up = ((rows["margin"] > 0) + rows["column"] + below) % 2 == 1
        counts = pd.DataFrame({"x": rows["c"] - below, "up": up}).groupby("x")["up"].agg(["sum", "size"])
        threshold, _ = fit_probit(counts.index.to_numpy(), counts["sum"].to_numpy(), counts["size"].to_numpy())
        found.setdefault(f"threshold_{below:.0f}", []).append(threshold)
    return {name: float(np.nanmedian(values)) for name, values in found.items()}


def summary(table: pd.DataFrame) -> dict[str, float]:
    """The share of wrong answers, the correlation of distance and |margin|, and the thresholds."""
    correlation = spearmanr(table["distance"], table["margin"].abs()).statistic
    return {"share_wrong": float(table["wrong"].mean()), "correlation": float(correlation), **thresholds(table)}


def mend(model: Hooked, table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """For each layer, the share of slips that become right with c clamped, and with c from another slip.

    Slips without a partner are left out: another slip with the same bit, column and carry, or an example with the same
    operand bits t and a right prefix with that carry.
    """
    rng = np.random.default_rng(0)
    operands = model.task.examples().operands
    slips = table[table["wrong"] & (table["distance"] < SLIP)]
    clamped, other = [], []
    for (t, _, _), group in slips.groupby(["bit", "column", "carry"]):
        low = (operands % 2**t).sum(axis=1)
        bits = (operands >> t & 1) @ (1 << np.arange(operands.shape[1]))
        for row, slip in group.iterrows():
            same = np.flatnonzero((bits == bits[slip["example"]]) & (low >> t == slip["carry"]))
            others = group.index[group.index != row]
            if len(same) and len(others):
                example = rng.choice(same)
                clamped.append({"index": row, "bit": t, "example": example, "prefix": low[example] % 2**t})
                other.append({"index": row} | slips.loc[rng.choice(others), ["bit", "example", "prefix"]].to_dict())
    if not clamped:
        return
    sources = {name: pd.DataFrame(rows).set_index("index") for name, rows in (("clamped", clamped), ("slip", other))}
    slips = slips.loc[sources["clamped"].index]
    for depth, site in enumerate(stream := layers(model.sites, "dec")):
        for name, source in sources.items():
            right = ~answered(slips, ask_patched(model, slips, site, source))["wrong"]
            layer = depth - len(stream)  # -1: the last one, where the answer is settled
            yield {"source": name, "site": site, "layer": layer, "slips": len(slips), "right": right.mean()}


def measure(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of all networks of a run: of each kept epoch, and of its slips."""
    rows, mended = [], []
    settings = {key: run.config()[key]["name"] for key in ("task", "model")}
    for seed in (entry["seed"] for entry in run.summary()["seeds"]):
        last_with_slips: tuple[int, Hooked, pd.DataFrame] | None = None
        for epoch in [0, *run.saved_epochs(seed)]:
            model = ae.load_run(run.path, seed=seed, epoch=epoch)
            asked = questions(model.task)
            table = answered(asked, ask(model, asked))
            key = settings | {"seed": seed, "epoch": epoch or -1}  # -1: before training
            rows.append(by_distance(table).assign(**key, **summary(table)))
            slips = int((table["wrong"] & (table["distance"] < SLIP)).sum())
            if epoch > 0 and slips >= MIN_SLIPS and model.task.num_operands == 2:
                last_with_slips = epoch, model, table
        if last_with_slips:
            epoch, model, table = last_with_slips
            mended += [settings | {"seed": seed, "epoch": epoch} | row for row in mend(model, table)]
    return pd.concat(rows), pd.DataFrame(mended)


def table() -> str:
    """What was predicted, what came, and whether it holds."""
    rows, mended = pd.read_csv(FILE), pd.read_csv(SLIPS)
    ratios = rows.groupby(BY)[["distance", "wrong", "n"]].apply(ratio)
    networks = rows.groupby(BY).first().assign(ratio=ratios).reset_index()
    untrained, last = (networks[networks["epoch"] == epoch] for epoch in (-1, networks["epoch"].max()))
    lines = []

    def line(prediction: str, part: pd.Series | pd.DataFrame, came: str, holds: bool | None) -> None:
        verdict = {True: "holds", False: "refuted", None: "open"}[holds]
        lines.append([prediction, str(len(part)), came, verdict])

    for (task, model), label in CONFIGURATIONS.items():
        own, at_end = (table[(table["task"] == task) & (table["model"] == model)] for table in (networks, last))
        counted = own.loc[own["share_wrong"].between(MIN_WRONG, MAX_WRONG) & (own["epoch"] > 0), "ratio"]
        agree = (counted >= MIN_RATIO).mean()
        came = f"{agree:.0%}; times as frequent: {format_range(counted, '.1f')}" if len(counted) else "none to count"
        line(f"1 errors near the threshold, {label}", counted, came, bool(agree >= MIN_SHARE) if len(counted) else None)
        ends = at_end["correlation"]
        line(f"2 margin against distance, {label}", ends, format_range(ends), bool((ends >= MIN_CORRELATION).all()))
    three = last[last["task"] == "add3"]
    near = sum(((three[f"threshold_{k}"] - 0.5).abs() <= MAX_OFF).astype(int) for k in (0, 1)) == 2
    came = ", ".join(f"{k}.5: {format_range(three[f'threshold_{k}'] + k)}" for k in (0, 1))
    line("3 two thresholds", three, came, bool(near.sum() >= MIN_SEEDS))
    for model in ("nanogpt", "transformer"):
        if not len(mended) or not len(part := mended[(mended["model"] == model) & (mended["layer"] == -2)]):
            lines.append([f"4 clamping c, {CONFIGURATIONS['add', model]}", "0", "no network has so many slips", "open"])
            continue
        right = part.groupby("source")["right"].median()
        came = f"right with c clamped: {right['clamped']:.0%}, from another slip: {right['slip']:.0%}"
        holds = bool(right["clamped"] >= MIN_MENDED and right["slip"] <= MAX_MENDED)
        line(f"4 clamping c, {CONFIGURATIONS['add', model]}", part[part["source"] == "slip"], came, holds)
    times, null = untrained["ratio"], untrained["correlation"]
    line("control: ratio before training", times, format_range(times), bool(times.between(*NULL_RATIO).all()))
    line("control: correlation before training", null, format_range(null), bool(null.abs().le(NULL_CORRELATION).all()))
    return markdown(["prediction", "counted", "what came", "verdict"], *lines)


def slip_table() -> str:
    """For each layer: how many slips become right, medians over networks."""
    mended = pd.read_csv(SLIPS)
    lines = []
    for (model, site), rows in mended.groupby(["model", "site"]):
        right = rows.groupby("source")["right"].median()
        networks, slips = rows["seed"].nunique(), int(rows.groupby("seed")["slips"].first().sum())
        cells = (f"{right[name]:.0%}" for name in ("clamped", "slip"))
        lines.append([f"{CONFIGURATIONS['add', str(model)]}, `{site}`", str(networks), f"{slips:,}", *cells])
    return markdown(["after layer", "networks", "slips", "right, c clamped", "right, from another slip"], *lines)


def draw(rows: pd.DataFrame) -> Figure:
    """Wrong answers by distance at some epochs, a panel for each configuration: mean and range over seeds."""
    panels = [CONFIGURATIONS[key] for key in zip(rows["task"], rows["model"], strict=True)]
    counts = rows.assign(panel=panels).groupby(["panel", "epoch", "seed", "distance"], sort=False)[["wrong", "n"]].sum()
    shown = counts.assign(share=counts["wrong"] / counts["n"]).reset_index()
    epochs = sorted(shown["epoch"].unique())
    names = {epoch: f"after epoch {epoch}" for epoch in (*epochs[1:4:2], epochs[-1])} | {-1: "before training"}
    shown = shown.assign(line=shown["epoch"].map(names), distance=np.minimum(shown["distance"] + STEP / 2, 1 / 2))
    look: dict[str, Any] = {"xlabel": "distance of c to the nearest threshold", "ylabel": "wrong answers"}
    picture = Lines("share", "distance", "line", "panel", size=(3, 2.4), percent=True, **look)
    return picture.draw(shown.dropna(subset="line"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*", help="run directories, or patterns of them")
    options = parser.parse_args()
    paths = sorted({path for pattern in options.runs for path in require_runs(pattern, "runs")})
    found = [measure(Run(path)) for path in paths]
    if found:
        for path, tables in zip((FILE, SLIPS), zip(*found, strict=True), strict=True):
            pd.concat(tables).to_csv(path, index=False, float_format="%.5g")
    save_png(draw(pd.read_csv(FILE)), FILE.with_suffix(".png"))
    print(table(), slip_table(), sep="\n\n")


if __name__ == "__main__":
    with one_line_errors():
        main()
