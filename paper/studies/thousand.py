"""A thousand small networks, of one kind or of several? ``paper/preregistrations/3-thousand.md`` predicts one.

    python -m arith_erd.paper.studies.thousand 'runs/add-random-nanogpt-none-bits5-*' [--weights FILE]

puts a row for each network and bit into ``thousand.csv``; networks that it has already are not measured again. Then it
prints the predictions with what came, draws ``thousand.png`` and, with ``--weights``, writes the weights of all
networks into one file and prints its SHA-256.
"""

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from diptest import diptest
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from safetensors.torch import save_file
from scipy.stats import spearmanr

import arith_erd as ae
from arith_erd.bundled import RESULTS
from arith_erd.mechanism.certificate import CLEAR, LOCAL_REMAINDER, Certificate, certificate, make_blocks
from arith_erd.plots.style import BLUE, format_axes, save_png, set_panel_title, subplots
from arith_erd.runs.directory import Run, require_runs
from arith_erd.stats import clopper_pearson
from arith_erd.system.cli_errors import one_line_errors

from ..formats import markdown
from .certificates import RIVAL

FILE = RESULTS / "thousand.csv"
LEARNED = 0.985  # share of pairs with the bit right, after a right prefix
BITS = range(2, 5)
FINGERPRINTS = ("threshold", "log_sigma", "slope")
ALPHA, MAX_SMALL = 0.01, 1  # of the dip tests; so many may be significant
MAX_RULE, MAX_STUCK = 0.05, 0.15


def fingerprints(found: Certificate) -> pd.DataFrame:
    """For each bit: the share ``right`` after a right prefix, and the fingerprints of the preregistration.

    ``clear_rule`` was added after the first count: it is ``rule`` at least `CLEAR` away from a rounding point, where
    there are no ties.
    """
    contrasts = found.contrasts()
    differ = contrasts[(contrasts["algorithm"] == LOCAL_REMAINDER) & (contrasts["against"] == RIVAL)]
    differ = differ.assign(right=differ["right"] * differ["n"])
    whole, clear = (rows.groupby("bit")[["right", "n"]].sum() for rows in (differ, differ[differ["distance"] >= CLEAR]))
    answer, pairs = found.task.examples().answer, np.arange(found.task.size)
    table = found.precision().set_index("bit")
    table["right"] = [(bits[pairs, answer % 2**t] == answer >> t & 1).mean() for t, bits in enumerate(found.answers)]
    table["rule"], table["clear_rule"] = whole["right"] / whole["n"], clear["right"] / clear["n"]
    table["slope"] = pd.Series(dict(slopes(found)))
    return table.reset_index()


def slopes(found: Certificate) -> Iterator[tuple[int, float]]:
    """Bit t >= 2 -> the weight of column t - 2 over that of column t - 1, in the carry that the bit implies.

    A column is its sum minus the prefix's bit there. Only answers count with c from -1/2 to 3/2, where the parity of
    the carry is the carry.
    """
    width = found.task.width
    products = {t: np.zeros((t + 2, t + 2)) for t in range(2, width)}
    for block in make_blocks(found.task):
        x = block.inputs
        t = x.t
        if t < 2:
            continue
        columns = x.column_sums(np.stack([x.a, x.b], axis=1))[:, :t] - (x.prefix[:, None] >> np.arange(t) & 1)
        carry = found.answers[t][block.pairs].ravel() ^ x.column_sum % 2
        z = np.column_stack([np.ones(len(carry)), columns, carry])[(x.c >= -0.5) & (x.c < 1.5)]
        products[t] += z.T @ z
    for t, product in products.items():
        weights = np.linalg.solve(product[:-1, :-1], product[:-1, -1])
        yield t, float(weights[t - 1] / weights[t]) if weights[t] else np.nan


def measure(run: Run, known: set[int]) -> Iterator[pd.DataFrame]:
    """The rows of each network of a run that is not ``known``."""
    reached = pd.DataFrame(run.metrics()).query("train_seq_acc >= 0.95").groupby("seed")["epoch"].min()
    for entry in run.summary()["seeds"]:
        if (seed := entry["seed"]) in known:
            continue
        model = ae.load_run(run.path, seed=seed)
        yield fingerprints(certificate(model)).assign(seed=seed, epochs_to_95=reached.get(seed, np.nan))


def wide(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Fingerprint -> its values of learned bits, a row for each network and a column for each of `BITS`."""
    learned = rows[(rows["right"] >= LEARNED) & rows["bit"].isin(BITS)]
    learned = learned.assign(log_sigma=np.log(learned["sigma"]))
    return {name: learned.pivot(index="seed", columns="bit", values=name) for name in (*FINGERPRINTS, "rule")}


def dips(tables: dict[str, pd.DataFrame]) -> dict[tuple[str, int], float]:
    """Fingerprint and bit -> p of Hartigan's dip test: small if there is more than one hump."""
    columns = ((name, bit, tables[name][bit].dropna()) for name in FINGERPRINTS for bit in BITS)
    return {(name, bit): float(diptest(values.to_numpy())[1]) for name, bit, values in columns}


def control_two_kinds(tables: dict[str, pd.DataFrame]) -> float:
    """The largest p of the dip test where half of the thresholds are moved by four standard deviations."""
    columns = [tables["threshold"][bit].dropna().to_numpy() for bit in BITS]
    return max(float(diptest(x + np.where(np.arange(len(x)) % 2, 4 * x.std(), 0))[1]) for x in columns)


def control_one_kind(count: int, draws: int, moved: float = 0.0) -> float:
    """The share of normal samples whose p is below `ALPHA`, with one value in five ``moved`` by standard deviations."""
    samples = np.random.default_rng(0).standard_normal((draws, count)) + moved * (np.arange(count) % 5 == 0)
    return float(np.mean([diptest(sample)[1] < ALPHA for sample in samples]))


def predictions(rows: pd.DataFrame) -> str:
    """A table: what was predicted, what came, and whether it holds."""
    tables, networks = wide(rows), rows["seed"].nunique()
    small = {where: p for where, p in dips(tables).items() if p < ALPHA}
    where = ", ".join(f"{name} of bit {bit} (p = {p:.1g})" for (name, bit), p in small.items()) or "none"
    two_kinds = control_two_kinds(tables)
    said = "holds" if not small else "open" if len(small) <= MAX_SMALL else "refuted"
    if not small and two_kinds >= ALPHA:
        said = "undecided: the control finds no two kinds in so few networks"
    median, many = tables["rule"].stack().median(), (tables["rule"] > 0.5).any(axis=1).mean()
    stuck = int((rows.groupby("seed")["right"].min() < LEARNED).sum())
    low, high = clopper_pearson(stuck, networks)
    pairs = pd.concat([rows.groupby("seed")["epochs_to_95"].first(), tables["log_sigma"].mean(axis=1)], axis=1).dropna()
    rho, p = spearmanr(pairs)
    few, mostly = stuck <= MAX_STUCK * networks, bool(median < MAX_RULE and many <= MAX_RULE)
    verdict = {True: "holds", False: "refuted"}
    mostly_rule = f"`rule`: median below {MAX_RULE:.0%}, above 50% in at most {MAX_RULE:.0%} of networks"
    rule = f"median {median:.1%}; in {many:.1%} of the networks above 50% in some bit"
    largest = f"= {two_kinds:.1g}" if two_kinds >= 0.001 else "< 0.001"
    learned = len(tables["rule"])
    alone = f"p < {ALPHA} in {control_one_kind(learned, 1000):.1%} of 1,000 samples"
    small_kind = f"p < {ALPHA} in {control_one_kind(learned, 200, moved=4):.1%} of 200 samples"
    return markdown(
        ["prediction", "what came", "verdict"],
        [f"no dip test of nine below {ALPHA}", f"below it: {where}", said],
        [mostly_rule, rule, verdict[mostly]],
        [f"a stuck bit in at most {MAX_STUCK:.0%}", f"{stuck} of {networks} [{low:.1%}, {high:.1%}]", verdict[few]],
        ["slow learners are blurred: rho above 0", f"rho = {rho:.2f} (p = {p:.1g})", verdict[bool(rho > 0)]],
        ["control: two kinds", f"largest p {largest}", "found" if two_kinds < ALPHA else "not found"],
        ["control: one kind", alone, ""],
        ["control, added afterwards: a kind of one network in five", small_kind, ""],
    )


def ranges() -> str:
    """Fingerprints of learned bits: median, and the middle 90% of the networks."""
    rows = pd.read_csv(FILE)
    rows = rows[rows["right"] >= LEARNED]
    lines = [["bit", "networks", *(names := ("threshold", "sigma", "slope", "rule", "clear_rule"))]]
    for bit, of_bit in rows[rows["bit"] >= BITS.start].groupby("bit"):
        quantiles = of_bit[[*names]].quantile([0.05, 0.5, 0.95]).T.values
        cells = ("" if np.isnan(median) else f"{median:.2f} [{low:.2f}, {high:.2f}]" for low, median, high in quantiles)
        lines.append([str(bit), str(len(of_bit)), *cells])
    return markdown(*lines)


def draw(rows: pd.DataFrame) -> Figure:
    """Histograms of the fingerprints, a row for each and a column for each bit."""
    tables, p = wide(rows), dips(wide(rows))
    figure, axes = subplots(9.6, 6.4, len(FINGERPRINTS), len(BITS))
    for (name, bit), ax in zip(p, axes.flat, strict=True):
        ax.hist(tables[name][bit].dropna(), bins="auto", color=BLUE, alpha=0.85)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        format_axes(ax)
        set_panel_title(ax, f"bit {bit}", f"dip test: p = {p[name, bit]:.2g}")
        ax.set_xlabel(name.replace("log_sigma", "log of sigma"), fontsize=8)
        if bit == BITS.start:
            ax.set_ylabel("networks", fontsize=8)
    return figure


def save_weights(runs: list[Run], path: Path) -> str:
    """The weights of all networks as ``SEED.NAME`` in one file, in the order of their seeds; its SHA-256."""
    tensors = {
        f"{seed}.{name}": tensor.contiguous()
        for seed, run in sorted((entry["seed"], run) for run in runs for entry in run.summary()["seeds"])
        for name, tensor in ae.load_run(run.path, seed=seed).network.state_dict().items()
    }
    save_file(tensors, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*", help="run directories, or patterns of them")
    parser.add_argument("--weights", type=Path, help="file for the weights of all networks")
    options = parser.parse_args()
    paths = sorted({path for pattern in options.runs for path in require_runs(pattern, "runs")})
    runs = [run for run in map(Run, paths) if run.finished]
    rows = pd.read_csv(FILE) if FILE.is_file() else pd.DataFrame(columns=["seed"])
    for run in runs:
        rows = pd.concat([rows, *measure(run, set(rows["seed"]))])
        rows.sort_values(["seed", "bit"]).to_csv(FILE, index=False, float_format="%.5g")  # after each run: resumable
    save_png(draw(rows), FILE.with_suffix(".png"))
    print(predictions(rows), ranges(), sep="\n\n")
    if options.weights:
        print("SHA-256", save_weights(runs, options.weights))


if __name__ == "__main__":
    with one_line_errors():
        main()
