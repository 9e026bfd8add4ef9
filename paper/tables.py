"""Write every generated table of the pages again from ``results/``: ``make tables``.

A table stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``. Names are those of `tables`, or
``claims ID ..``: rows of ``claims.csv``. With ``--check`` nothing is written: pages that would change are listed, and
the exit status is 1.
"""

import argparse
import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import bootstrap, kendalltau

from arith_erd.bundled import RESULTS
from arith_erd.plots.tables import format_mean
from arith_erd.report.page import escape_cell
from arith_erd.report.verdicts import count_verdicts
from arith_erd.runs.table import load_table
from arith_erd.stats import LEARNING_ACCURACY

from . import mechanism_tables
from .formats import MODELS, format_range, grid, markdown
from .studies import angles, certificates, fresh, methods, one_sentence, potential, thousand, zoo

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "verdicts.md", *sorted((ROOT / "paper" / "found").glob("*.md"))]
TABLE = re.compile(r"<!-- ([^:]+):begin -->\n.*?<!-- \1:end -->", re.S)
TASKS = {"add": "addition", "mul": "multiplication"}
HEADLINES = "fig1-add fig1-mul fig3-add-vs_t fig3-add-vs_v appD-after figE7-mul"  # claims of README
CLAIM_HEADINGS = {"statement": "result", "paper_text": "paper", "ours_text": "ours [interval]"}
CLAIM_HEADINGS |= {"n": "seeds", "verdict": "verdict"}  # columns of claims.csv, with their headings
ERASURE_HEADINGS = {name: name for name in ("concept", "method", "rank")} | {"seq_acc_after": "accuracy"}
ERASURE_HEADINGS |= {"control_variance_mean": "random, same variance", "control_signs_mean": "signs flipped"}


def read_claims(folder: str = ".") -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "claims.csv", dtype=str, keep_default_na=False).set_index("id")


def claims(names: str) -> str:
    """The rows of some claims, in the given order."""
    rows = read_claims().loc[names.split(), [*CLAIM_HEADINGS]]
    return markdown(CLAIM_HEADINGS.values(), *([escape_cell(text) for text in row] for row in rows.values))


def verdicts() -> dict[str, str]:
    """The main results, and how many of all were reproduced; a claim counts once."""
    own, mini = (table.query("same_as == ''") for table in (read_claims(), read_claims("mini")))
    counted = f"Of {len(own)} results of the paper: {count_verdicts(own['verdict'])}. The main ones so far:"
    return {
        "results": f"{counted}\n\n{claims(HEADLINES)}",
        "mini": f"Of {len(mini)} claims about the miniature: {count_verdicts(mini['verdict'])}.",
    }


def read_probe(name: str, run: str) -> pd.DataFrame:
    """Rows of a probe of some runs, by run; or of the authors' addition weights for ``runs``."""
    paths = sorted(RESULTS.glob(f"runs/{run}-*/probes/{name}/rows.csv"))
    paths = [*RESULTS.glob(f"runs/probes/{name}-add-*/rows.csv")] if run == "authors" else paths
    return pd.concat([pd.read_csv(path).assign(run=i) for i, path in enumerate(paths)])


def erasures() -> str:
    """Accuracy after erasure on the authors' weights, beside its controls."""
    rows = read_probe("amnesic", "authors").query("site == 'dec.3'")
    rows = rows.replace({"method": "_", "concept": "_"}, " ", regex=True)
    lines = ([f"{x:.1%}" if isinstance(x, float) else x for x in row] for row in rows[[*ERASURE_HEADINGS]].values)
    return markdown(ERASURE_HEADINGS.values(), *lines)


def own_erasures() -> str:
    """Accuracy after erasure in our networks, beside a control."""
    rows = read_probe("amnesic", "add-random-transformer-none").set_index(["concept", "method"])
    erased = {("value", "inlp"): "value, two steps of INLP", ("value", "leace"): "value, LEACE"}
    columns = {"probe_error_after": "error of a new probe", "seq_acc_after": "accuracy"}
    columns |= {"control_signs_mean": "accuracy after a random concept is erased in the same way (mean)"}
    return grid(
        "erased in our networks",
        erased | {("carries", "leace"): "carries, LEACE"},
        columns,
        lambda what, column: format_range(rows.loc[what, column].dropna(), ".2f" if "error" in column else ".1%"),
    )


def nullspace() -> str:
    """How many answers of the authors' weights stay right after INLP."""
    right = pd.read_csv(RESULTS / "nullspace.csv").set_index("variant")["right"]
    variants = {"nothing erased": "nothing erased", "INLP, 2 iterations": "INLP, 2 iterations, as published"}
    shown = variants | {"INLP, 160 iterations": "INLP, 160 iterations"}
    return grid("variant", shown, {0: "right answers"}, lambda name, _: f"{right[name]:,} ({right[name] / 2**14:.2%})")


def distances() -> str:
    """The best layer's correlation of distances with distances between values."""
    networks = {"authors": "the authors' network, addition"}
    networks |= {f"{task}-random-transformer-none": f"our Transformers, {name}" for task, name in TASKS.items()}
    stacks = {"dec": "trained, decoder", "untrained dec": "untrained, decoder", "scaled bits": "bits by place value"}

    def best(network: str, stack: str) -> str:
        rows = read_probe("distance_correlation", network)
        rows = rows.query("stack == @stack and space == 'value' and level == 'out' and method == 'pearson'")
        return format_range(rows.groupby("run")["correlation"].max())

    return grid("correlation with the value, best layer", networks, stacks, best)


def regions() -> str:
    """How many seeds learn with a region held out, and the accuracies of these and of the others after training."""
    lines = [["task", "held out", "network", "seeds that learned", "their region", "region of the others"]]
    for task, region, model in product(TASKS, ("vs_t", "vs_v"), MODELS):
        runs = (pd.read_csv(path) for path in RESULTS.glob(f"runs/{task}-{region}-{model}-none-*/metrics.csv"))
        ends = pd.concat(runs).query("epoch == @last", local_dict={"last": {"add": 50, "mul": 250}[task]})
        learned = ends["train_seq_acc"] >= LEARNING_ACCURACY
        cells = (format_range(ends.loc[chosen, "val_seq_acc"], ".1%") for chosen in (learned, ~learned))
        count = f"{learned.sum()} of {len(ends)}"
        lines.append([TASKS[task], region.replace("vs", "VS"), MODELS[model], count, *cells])
    return markdown(*lines)


def learning_order() -> str:
    """The median epoch at which each bit of a sum is learned, and Kendall's tau of epoch and place over the seeds."""
    lines = [["written first", *(f"bit {t}" for t in range(6)), "Kendall's tau"]]
    for order, table in pd.read_csv(RESULTS / "learning-order.csv").groupby("order", sort=False):
        taus = [kendalltau(rows["bit"], rows["epoch"]).statistic for _, rows in table.groupby("seed")]
        low, high = bootstrap((taus,), np.mean, rng=np.random.default_rng(0)).confidence_interval
        epochs = (f"{epoch:g}" for epoch in table.groupby("bit")["epoch"].median())
        first = {"reverse": "the lowest bit", "plain": "the highest bit"}[str(order)]
        lines.append([first, *epochs, f"{np.mean(taus):.2f} [{low:.2f}, {high:.2f}]"])
    return markdown(*lines)


def positions(file: str) -> str:
    """VS_v by position encoding."""
    lines = [["positions", "seeds that learned", "VS_v, of these seeds", "VS_v, all seeds"]]
    for name, seeds in pd.read_csv(RESULTS / file).groupby("positions"):
        ends = seeds.loc[seeds["train_seq_acc"] >= LEARNING_ACCURACY, "val_seq_acc"]
        every = format_mean(seeds["val_seq_acc"], "accuracy")
        lines.append([f"`{name}`", f"{len(ends)} of {len(seeds)}", format_range(ends, ".0%"), every])
    return markdown(*lines)


def lengths(file: str, shortest: int) -> str:
    """Means of ``arith-runs --by length,model.net.positions --csv``, of pairs of at least ``shortest`` bits."""
    table = pd.read_csv(RESULTS / file).query("length >= @shortest")
    wide = table.pivot(index="model.net.positions", columns="length", values="accuracy")
    lines = ([f"`{name}`", *(f"{x:.0%}" for x in row)] for name, row in wide.iterrows())
    return markdown(["positions", *(f"{n} bits" for n in wide)], *lines)


def baselines() -> str:
    """Validation accuracy of networks without attention on each split, and of nanoGPT in miniature."""
    runs = load_table(str(RESULTS / "mini" / "runs" / "add-*-nanogpt-*")).assign(**{"model.name": "nanogpt"})
    every = pd.concat([pd.read_csv(RESULTS / "baselines.csv"), runs])
    lines = [["model", "random", "VS_t", "VS_v"]]
    for model, of_model in every.groupby("model.name", sort=False):
        lines.append([f"`{model}`"])
        for split in ("random", "vs_t", "vs_v"):
            seeds = of_model[of_model["split.name"] == split]
            learned = f", {(seeds['train_seq_acc'] >= LEARNING_ACCURACY).sum()} of {len(seeds)} learned"
            lines[-1].append(format_mean(seeds["val_seq_acc"], "accuracy") + learned if len(seeds) else "")
    return markdown(*lines)


def tables() -> dict[str, str]:
    """Every generated table of the pages, by the name of its marks."""
    found = {"amnesic": erasures(), "own_erasures": own_erasures(), "nullspace": nullspace()}
    found |= {"distances_value": distances(), "regions": regions()}
    found |= {"baselines": baselines(), "learning_order": learning_order()}
    found |= {"lengths": lengths("length-14.csv", 6), "lengths_short": lengths("length.csv", 4)}
    found |= {"positions": positions("positions.csv"), "positions_full": positions("positions-full.csv")}
    scored = methods.read_results(RESULTS / "methods.csv")
    found |= {"methods": methods.table(scored), "gaps": methods.gaps(scored)}
    found |= {"zoo": zoo.table(), "angles": angles.table()} | certificates.tables()
    found |= {"thousand": thousand.predictions(pd.read_csv(thousand.FILE)), "thousand_ranges": thousand.ranges()}
    found |= {"fresh": fresh.table(), "potential": potential.table(), "slips": potential.slip_table()}
    return verdicts() | found | mechanism_tables.tables() | one_sentence.tables()


def fill(text: str, generated: dict[str, str]) -> str:
    """A page with the tables of today; a `KeyError` for a mark with an unknown name."""

    def table(mark: re.Match[str]) -> str:
        kind, _, names = mark[1].partition(" ")
        made = claims(names) if kind == "claims" else generated[mark[1]]
        return f"<!-- {mark[1]}:begin -->\n{made}\n<!-- {mark[1]}:end -->"

    return TABLE.sub(table, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which pages would change")
    options = parser.parse_args()
    generated, changed = tables(), 0
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        if (new := fill(old, generated)) != old:
            changed += 1
            print(f"{page.relative_to(ROOT)}: a table differs from results/: make tables")
            if not options.check:
                page.write_text(new, encoding="utf-8")
    return int(changed > 0 and options.check)


if __name__ == "__main__":
    sys.exit(main())
