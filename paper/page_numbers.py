"""Write every measured number of the pages again from ``paper/results/``: ``make numbers``.

A number stands between marks, ``<!--key-->99.9%<!--/-->``, a table between ``<!-- name:begin -->`` and
``<!-- name:end -->``; the sentences around them are free. Keys are those of `facts`, and for each claim of
``claims.csv`` also ``paper:ID``, ``ours:ID``, ``low:ID`` and ``high:ID``. With ``--check`` nothing is written:
pages that would change are listed, and the exit status is 1.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import bootstrap, fisher_exact, kendalltau

from arith_erd.plots.tables import format_mean
from arith_erd.report.claims import count_verdicts
from arith_erd.report.page import escape_cell
from arith_erd.runs.table import load_table
from arith_erd.stats import LEARNING_ACCURACY, Estimate
from paper import mechanism_numbers
from paper.mechanism_numbers import Facts, format_range, markdown
from paper.studies import methods
from paper.studies.one_sentence import MIN_ACCURACY

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "paper" / "results"
FOUND = ("index", "amnesic", "mechanism", "methods", "length", "appendix")
PAGES = ("README.md", *(f"docs/{name}.md" for name in ("tutorial", "verdicts")), "paper/article.md")
PAGES += tuple(f"paper/found/{name}.md" for name in FOUND)
MARKED_NUMBER = re.compile(r"<!--([\w:.-]+)-->(.*?)<!--/-->", re.S)
HEADLINES = r"fig1-(add|mul)|fig3-add-vs_[tv]|appD-after|figE7-mul"  # claims of README, by their id
CLAIM_HEADINGS = {"statement": "result", "paper_says": "paper", "ours_says": "ours [interval]"}
CLAIM_HEADINGS |= {"n": "seeds", "verdict": "verdict"}  # columns of claims.csv in README, with their headings
ERASURE_HEADINGS = {name: name for name in ("concept", "method", "rank")} | {"seq_acc_after": "accuracy"}
ERASURE_HEADINGS |= {"control_variance_mean": "random, same variance", "control_signs_mean": "signs flipped"}


def join_words(values: Iterable[object]) -> str:
    """``a, b and c``."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}"


def format_share(accuracy: float) -> str:
    return "100%" if accuracy == 1 else f"{accuracy:.1%}"


def read_claims(folder: str = ".") -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "claims.csv", dtype=str, keep_default_na=False).set_index("id")


def read_curves(pattern: str) -> list[pd.DataFrame]:
    """``metrics.csv`` of runs, by epoch: a table for each seed, in the order of the runs' names."""
    files = sorted(RESULTS.glob(f"runs/{pattern}-*/metrics.csv"))
    return [curve for file in files for _, curve in pd.read_csv(file).set_index("epoch").groupby("seed")]


def epoch_of_95(curve: pd.DataFrame) -> str:
    reached = curve.index[curve["val_seq_acc"] >= 0.95]
    return str(reached[0]) if len(reached) else "never"


def training_lead(curve: pd.DataFrame) -> pd.Series:
    """By how much the accuracy on the training pairs is above that on the others."""
    return curve["train_seq_acc"] - curve["val_seq_acc"]


def read_probe(name: str, run: str = "probes") -> pd.DataFrame:
    """Rows of a probe: of the authors' addition weights, or of runs of ours with the column ``run``."""
    if run == "probes":
        (path,) = RESULTS.glob(f"runs/probes/{name}-add-*/rows.csv")
        return pd.read_csv(path)
    paths = sorted(RESULTS.glob(f"runs/{run}-*/probes/{name}/rows.csv"))
    return pd.concat([pd.read_csv(path).assign(run=i) for i, path in enumerate(paths)])


def output_correlations(rows: pd.DataFrame, space: str = "value", stack: str = "dec") -> pd.DataFrame:
    """Pearson's, with the output: a row a layer, a column a run."""
    chosen = rows.query("stack == @stack and space == @space and level == 'out' and method == 'pearson'")
    return chosen.assign(run=chosen.get("run", 0)).pivot_table(index="layer", columns="run", values="correlation")


def claim_facts() -> Facts:
    """The first word of what the paper and we say, and the ends of our interval as it is printed."""
    found: Facts = {}
    for name, row in read_claims().iterrows():
        numbers = re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", row["ours_says"])
        found |= {f"paper:{name}": (row["paper_says"].split() or [""])[0]}
        found |= dict(zip((f"low:{name}", f"high:{name}"), numbers[1:], strict=False))
        found |= {f"ours:{name}": row["ours_says"].split()[0]} if numbers else {}
    return found


def learning() -> Facts:
    """Addition and nanoGPT's speed, now and at an older commit of which only the summary was kept."""
    table = read_claims()
    reached = sorted(map(int, table.loc["figE7-add-efficiency", "values"].split(" / ")[0].split()))
    summary = json.loads(next(RESULTS.glob("older/add-random-nanogpt-*/summary.json")).read_text())
    once = sorted(seed["epochs_to_95"] for seed in summary["seeds"])
    large = [float(epoch) for epoch in table.loc["table3-add-none", "values"].split()]
    ratio = Estimate.of_ratio(*[(sample, sample) for sample in (reached + once, large)])
    held = [curve for split in ("vs_v", "vs_t") for curve in read_curves(f"add-{split}-nanogpt-none")]
    late = sum(curve.loc[50, "train_seq_acc"] < LEARNING_ACCURACY for curve in held)
    seen = len(reached) + len(once)
    fresh = pd.read_csv(RESULTS / "one-sentence.csv").query("network == 'nanogpt' and measure == 'accuracy'")["value"]
    failed, every = (fresh < LEARNING_ACCURACY).sum(), seen + len(fresh)
    beside = [late, len(held) - late]
    return {
        "quick_start": f"{read_curves('add-random-nanogpt-none-seed0')[0].loc[10, 'val_seq_acc']:.1%}",
        "averaged_curve": f"{float(table.loc['table3-add-none', 'averaged_curve']):.0f}",
        "nanogpt_epochs": join_words(reached),
        "prompt_plain": join_words(table.loc["figC6-add-prompt", "values"].split(" / ")[0].split()),
        "mul_prompt_plain": epoch_of_95(read_curves("mul-random-transformer-none-prompt_plain")[0]),
        "plain": format_range(map(float, table.loc["figC6-add", "values"].split(" / ")[0].split()), ".0f"),
        "older_epochs": join_words(once),
        "older_last": str(once[-1]),
        "pooled": f"{ratio.low:.2f}",
        "pooled_interval": format_range(ratio.interval or ()),
        "fresh_ends": join_words(format_share(end) for end in fresh if end < MIN_ACCURACY),
        "late_by_chance_first": f"{fisher_exact([beside, [0, seen]]).pvalue:.2f}",
        "late_by_chance": f"{fisher_exact([beside, [failed, every - failed]]).pvalue:.2f}",
    }


def multiplication() -> Facts:
    found: Facts = {"mul_errors": format_range(map(float, read_claims().loc["mul-mae", "values"].split()), ".1f")}
    for model, form in (("transformer", ".1%"), ("nanogpt", ".2%")):
        runs = read_curves(f"mul-random-{model}-none-seed[0-9]")
        found |= {
            f"mul_{model}_epochs": format_range((float(epoch_of_95(curve)) for curve in runs), ".0f"),
            f"mul_{model}_ends": format_range((curve.loc[250, "val_seq_acc"] for curve in runs), form),
            f"mul_{model}_lead": f"{math.ceil(1000 * max(training_lead(curve).max() for curve in runs)) / 10}",
            f"mul_{model}_late": format_range(pd.concat([curve.loc[201:, "val_seq_acc"] for curve in runs]), ".1%"),
        }
        for region in ("vs_t", "vs_v"):
            runs, key = read_curves(f"mul-{region}-{model}-none"), f"mul_{region}_{model}"
            late = pd.concat([curve.loc[201:] for curve in runs])
            found |= {
                f"{key}_ends": format_range((curve.loc[250, "val_seq_acc"] for curve in runs), ".1%"),
                f"{key}_late": format_range(late["val_seq_acc"], ".1%"),
                f"{key}_late_trained": format_range(late["train_seq_acc"], ".1%"),
            }
    wrong = pd.read_csv(RESULTS / "errors-mul-vs_v.csv").query("subset == 'validation' and by == 'token'")
    shares = (wrong["wrong"] / wrong["examples"]).set_axis(wrong["name"].str.removeprefix("r").astype(int))
    unstable = [curve.loc[250, "val_seq_acc"] for curve in read_curves("mul-vs_v-nanogpt-none")]
    return found | {
        "mul_vs_v_nanogpt": join_words(f"{end:.0%}" for end in sorted(unstable)),
        "mul_vs_v_nanogpt_mean": f"{np.mean(unstable):.0%}",
        "mul_vs_v_bit": str(shares.idxmax()),
        "mul_vs_v_bit_wrong": f"{shares.max():.1%}",
        "mul_vs_v_others_wrong": f"{shares.nlargest(2).iloc[1]:.1%}",
        "mul_vs_v_right_up_to": str(shares[shares > 0].index.min() - 1),
    }


def regions() -> Facts:
    """Addition with a region held out."""
    square, small_square = (read_curves(f"add-vs_v-{model}-none") for model in ("transformer", "nanogpt"))
    ball, small_ball = (read_curves(f"add-vs_t-{model}-none") for model in ("transformer", "nanogpt"))
    gaps = [int(training_lead(curve).idxmax()) for curve in square]
    apart = [curve.loc[gap] for curve, gap in zip(square, gaps, strict=True)]
    late = {"square": [curve.loc[50] for curve in small_square], "ball": [curve.loc[50] for curve in small_ball]}
    found = {
        "ball_below": f"{math.ceil(1000 * max(training_lead(curve).max() for curve in ball)) / 10}",
        "square_lowest": format_range((curve.loc[41:, "val_seq_acc"].min() for curve in square), ".1%"),
        "square_ends": format_range((curve.loc[50, "val_seq_acc"] for curve in square), ".1%"),
        "gap_epochs": format_range(gaps, ".0f"),
        "gap_trained": format_range((row["train_seq_acc"] for row in apart), ".1%"),
        "gap_held_out": format_range((row["val_seq_acc"] for row in apart), ".1%"),
        "square_nanogpt_mean": f"{np.mean([row['val_seq_acc'] for row in late['square']]):.0%}",
    }
    for region, ends in late.items():
        learned = [row["train_seq_acc"] >= LEARNING_ACCURACY for row in ends]
        found[f"{region}_learned"] = f"{sum(learned)} of {len(learned)}"
        for half, name in (("train", "trained"), ("val", "held_out")):
            for kind, wanted in (("learned", True), ("failed", False)):
                shares = (row[f"{half}_seq_acc"] for row, ok in zip(ends, learned, strict=True) if ok == wanted)
                found[f"{region}_{kind}_{name}"] = format_range(shares, ".1%")
    return found


def random_answers() -> Facts:
    runs = read_curves("random_output-random-transformer-none")
    addition = read_claims().loc["fig2-memorising", "values"].split(" / ")[1].split()
    return {
        "random_trained": f"{max(run.loc[60, 'train_seq_acc'] for run in runs):.1%}",
        "random_addition": " to ".join(end(addition, key=int) for end in (min, max)),
    }


def ablations() -> Facts:
    table = read_claims()
    paper, mul = (
        {name: float(table.loc[f"table3-{task}-{name}", "paper"]) for name in ("squeezed_encoder", "none")}
        for task in ("add", "mul")
    )
    authors = pd.read_csv(RESULTS / "authors-epochs.csv").query("what == 'add d_model=32' and seed == 23")
    return {
        "paper_squeezing": f"{paper['squeezed_encoder'] / paper['none']:.1f}",
        "paper_mul_squeezing": f"{mul['squeezed_encoder'] / mul['none']:.1f}",
        "authors_narrow": str(authors.loc[authors["val_seq_acc"] >= 0.95, "epoch"].min()),
    }


def not_run() -> Facts:
    """Hours on two cores for the claims without a run."""
    seconds = read_curves("mul-random-transformer-none-seed2")[0]["seconds"].median()
    epochs = {"random": 3 * 4000, "orders": 5 * 3 * 1500}
    hours = {name: number * seconds / 2 / 3600 for name, number in epochs.items()}
    found = {"epoch_seconds": f"{seconds:.1f}", "days_to_run": f"{sum(hours.values()) / 24:.0f}"}
    for name, number in epochs.items():
        found |= {f"{name}_epochs": f"{number:,}", f"{name}_hours": f"{hours[name]:.0f}"}
    return found


def distances() -> Facts:
    authors, ours = (
        read_probe("distance_correlation"),
        read_probe("distance_correlation", "add-random-transformer-none"),
    )
    value, token = (output_correlations(authors, space)[0] for space in ("value", "token"))
    scaled = output_correlations(authors, stack="scaled bits")[0].max()
    untrained = max(output_correlations(rows, stack="untrained dec").max(axis=None) for rows in (authors, ours))
    highest = output_correlations(ours).max()
    mul = read_probe("distance_correlation", "mul-random-transformer-none")
    rows = pd.read_csv(RESULTS / "value-over-training.csv").query("space == 'value'")
    course = rows.pivot_table(index="epoch", columns="layer", values="correlation")
    (peak,) = set(course.idxmax())
    (small,) = read_curves("add-random-nanogpt-none-seed2")
    return {
        "token_correlation": f"{token.min():.2f}",
        "value_correlation": f"{value.max():.2f}",
        "value_layer": str(value.idxmax()),
        "scaled_bits": f"{scaled:.2f}",
        "untrained_below": f"{math.ceil(10 * untrained) / 10}",
        "value_beyond": format_range(highest[highest > scaled]),
        "value_not_beyond": format_range(highest[highest <= scaled]),
        "mul_value": format_range(output_correlations(mul).max()),
        "mul_scaled_bits": f"{output_correlations(mul, stack='scaled bits').max(axis=None):.2f}",
        "peak_epoch": str(peak),
        "peak_value": format_range(course.loc[peak]),
        "peak_accuracy": f"{small.loc[peak, 'val_seq_acc']:.1%}",
        "peak_learned": epoch_of_95(small),
        "final_value": format_range(course.loc[50]),
    }


def erasure() -> Facts:
    rows = read_probe("amnesic", "add-random-transformer-none")
    inlp, value, carries = (
        rows.query("concept == @concept and method == @method")
        for concept, method in (("value", "inlp"), ("value", "leace"), ("carries", "leace"))
    )
    authors = read_probe("amnesic").query("concept == 'value' and method == 'inlp' and site == 'dec.3'").iloc[0]
    right = pd.read_csv(RESULTS / "nullspace.csv").set_index("variant")["right"]
    pairs = 2**14
    two, many = right["INLP, 2 iterations"], right["INLP, 160 iterations"]
    return {
        "inlp_after": format_range(inlp["probe_error_after"]),
        "inlp_before": format_range(inlp["probe_error_before"]),
        "guessing_error": f"{value['probe_error_after'].mean():.1f}",
        "without_value": format_range(value["seq_acc_after"], ".1%"),
        "without_random": format_range(value["control_signs_mean"], ".1%"),
        "without_carries": format_range(carries["seq_acc_after"], ".1%"),
        "without_random_carries": format_range(carries["control_signs_mean"], ".1%"),
        "right_before": f"{right['nothing erased']:,}",
        "right_after_2": f"{two:,}",
        "share_after_2": f"{two / pairs:.0%}",
        "right_after_160": f"{many:,}",
        "share_after_160": f"{many / pairs:.2%}",
        "authors_error_before": f"{authors['probe_error_before']:.3f}",
        "authors_error_after": f"{authors['probe_error_after']:.3f}",
        "paper_right": str(round(float(read_claims().loc["appD-after", "paper"]) * pairs)),
    }


def method_facts() -> Facts:
    return methods.facts(methods.read_results(RESULTS / "methods.csv"))


FACTS: tuple[Callable[[], Facts], ...] = (
    claim_facts, learning, multiplication, regions, ablations, random_answers, not_run, distances, erasure,
    mechanism_numbers.facts, method_facts,
)  # fmt: skip


def facts() -> Facts:
    """Every number of the pages by its key, as it is printed."""
    return {key: text for function in FACTS for key, text in function().items()}


def verdicts() -> Facts:
    """The main results, and how many of all were reproduced; a claim counts once."""
    own, mini = (table.query("same_as == ''") for table in (read_claims(), read_claims("mini")))
    shown = own[own.index.str.fullmatch(HEADLINES) & (own["verdict"] != "not run")]
    table = markdown(
        CLAIM_HEADINGS.values(), *([escape_cell(text) for text in row] for row in shown[[*CLAIM_HEADINGS]].values)
    )
    counted = f"Of {len(own)} results of the paper: {count_verdicts(own['verdict'])}. The main ones so far:"
    return {
        "results": f"{counted}\n\n{table}",
        "mini": f"Of {len(mini)} claims about the miniature: {count_verdicts(mini['verdict'])}.",
    }


def erasures() -> str:
    """Accuracy after erasure on the authors' weights, beside its controls."""
    rows = read_probe("amnesic").query("site == 'dec.3'").replace({"method": "_", "concept": "_"}, " ", regex=True)
    lines = ([f"{x:.1%}" if isinstance(x, float) else x for x in row] for row in rows[[*ERASURE_HEADINGS]].values)
    return markdown(ERASURE_HEADINGS.values(), *lines)


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
        reached = " to ".join(dict.fromkeys(f"{end:.0%}" for end in (ends.min(), ends.max()))) if len(ends) else ""
        every = format_mean(seeds["val_seq_acc"], "accuracy")
        lines.append([f"`{name}`", f"{len(ends)} of {len(seeds)}", reached, every])
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


def tables() -> Facts:
    """Every generated table of the pages, by the name of its marks."""
    found = {"amnesic": erasures(), "baselines": baselines(), "learning_order": learning_order()}
    found |= {"lengths": lengths("length-14.csv", 6), "lengths_short": lengths("length.csv", 4)}
    found |= {"positions": positions("positions.csv"), "positions_full": positions("positions-full.csv")}
    scored = methods.table(methods.read_results(RESULTS / "methods.csv"))
    return verdicts() | found | mechanism_numbers.tables() | {"methods": scored}


def fill_marks(text: str, found: Facts, generated: Facts) -> str:
    """A page with the numbers and tables of today.

    Raises:
        KeyError: for a mark with an unknown key.
        ValueError: for a mark at the start of a line, where Markdown takes it for a block of its own.
    """
    if at_start := re.search(r"^<!--[\w:.-]+-->", text, re.M):
        raise ValueError(f"{at_start[0]} must not begin a line")
    for name, table in generated.items():
        begin, end = (f"<!-- {name}:{where} -->" for where in ("begin", "end"))
        before, mark, rest = text.partition(begin)
        if mark:
            text = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return MARKED_NUMBER.sub(lambda mark: f"<!--{mark[1]}-->{found[mark[1]]}<!--/-->", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which pages would change")
    options = parser.parse_args()
    found, generated, changed = facts(), tables(), 0
    for page in PAGES:
        old = (ROOT / page).read_text()
        new = fill_marks(old, found, generated)
        if new != old:
            changed += 1
            print(f"{page}: numbers differ from results/: make numbers")
            if not options.check:
                (ROOT / page).write_text(new)
    return int(changed > 0 and options.check)


if __name__ == "__main__":
    sys.exit(main())
