"""Every number in README, in what was found and in the rules follows from ``results/``, or is exempt for a reason."""

import json
import math
import re
from collections.abc import Callable
from functools import cache

import pandas as pd
import pytest
from scipy.stats import fisher_exact

from arith_erd.stats import hodges_lehmann_ratio
from tests.behaviour.pages import RESULTS, cards, check_page, claims


@cache
def probe(name: str) -> pd.DataFrame:
    """The rows of a probe of the authors' addition weights."""
    (path,) = (RESULTS / "runs" / "probes").glob(f"{name}-add-*/rows.csv")
    return pd.read_csv(path)


def correlation(stack: str, space: str, largest: bool = True) -> tuple[int, float]:
    """The layer, and the correlation of its outputs, that is the largest or the smallest."""
    rows = probe("distance_correlation").query("stack == @stack and space == @space and level == 'out'")
    by_layer = rows[rows["method"] == "pearson"].set_index("layer")["correlation"]
    return (by_layer.idxmax(), by_layer.max()) if largest else (by_layer.idxmin(), by_layer.min())


def of_ours(seed: int, task: str = "add", stack: str = "dec") -> pd.Series:
    """By layer, how distances in the decoder of one of our Transformers correlate with those of the value."""
    (path,) = RESULTS.glob(f"runs/{task}-random-transformer-none-seed{seed}-*/probes/distance_correlation/rows.csv")
    rows = pd.read_csv(path).query("stack == @stack and space == 'value' and level == 'out' and method == 'pearson'")
    return rows.set_index("layer")["correlation"]


def joined(values: list[str], last: str = " and ") -> str:
    """``a, b and c``."""
    return f"{', '.join(values[:-1])}{last}{values[-1]}"


def says(claim: str) -> str:
    return str(claims().loc[claim, "ours_says"])


def reached_95() -> list[int]:
    """After which epochs nanoGPT's seeds answer 95% of the validation pairs of the random split, earliest first."""
    return sorted(map(int, claims().loc["figE7-add-efficiency", "values"].split(" / ")[0].split()))


def once_reached_95() -> list[int]:
    """The same at an older commit, of which only the summary was kept."""
    summary = json.loads(next(RESULTS.glob("older/add-random-nanogpt-*/summary.json")).read_text())
    return sorted(seed["epochs_to_95"] for seed in summary["seeds"])


CUTS = {  # ablations of table 3 that learn addition, and how the page begins to tell their epochs
    "one_head": "at 95% by epoch {}",
    "none": "of those of the whole network by epoch {}",
    "squeezed_encoder": "{} without encoder layers",
    "no_feed_forward": "{} without feed-forward layers",
    "d_model_32": "{} with 32 channels in place of 64",
}


def readme() -> list[str]:
    sizes = [claims().loc[f"{model}-parameters", "paper_says"] for model in ("transformer", "nanogpt")]
    small = pd.read_csv(next(RESULTS.glob("runs/add-random-nanogpt-none-seed0-*")) / "metrics.csv")
    after_10 = small.set_index("epoch").loc[10, "val_seq_acc"]
    return [
        f"an encoder-decoder with {sizes[0]} parameters, a nanoGPT with {sizes[1]}",
        f"from {says('training-examples').split()[0]} examples",
        f"Seed 0 reaches {after_10:.1%} on pairs",
    ]


def held_out() -> list[str]:
    """How training and held-out accuracy part where a region is held out."""

    def curves(split: str, model: str) -> list[pd.DataFrame]:
        files = sorted(RESULTS.glob(f"runs/add-{split}-{model}-none-seed*/metrics.csv"))
        return [pd.read_csv(file).set_index("epoch")[["train_seq_acc", "val_seq_acc"]] for file in files]

    def share(row: pd.Series, half: str) -> str:
        return "100%" if row[f"{half}_seq_acc"] == 1 else f"{row[f'{half}_seq_acc']:.1%}"

    large, small = curves("vs_v", "transformer"), curves("vs_v", "nanogpt")
    balls, small_balls = curves("vs_t", "transformer"), curves("vs_t", "nanogpt")
    assert len(balls) == 5
    assert all((ball.loc[50] == 1).all() for ball in balls)
    late_balls = [end for end in (ball.loc[50] for ball in small_balls) if end["train_seq_acc"] < 1]
    assert (len(small_balls), len(late_balls)) == (5, 2)
    assert sum((ball.loc[50] == 1).all() for ball in small_balls) == 3
    below = max((ball["train_seq_acc"] - ball["val_seq_acc"]).max() for ball in balls)
    gaps = [(curve["train_seq_acc"] - curve["val_seq_acc"]).idxmax() for curve in large]
    apart = [curve.loc[gap] for curve, gap in zip(large, gaps, strict=True)]
    last = [curve.loc[50] for curve in small]
    learned = [share(end, "val") for end in last if end["train_seq_acc"] == 1]
    rest = [end for end in last if end["train_seq_acc"] < 1]
    assert (len(large), len(learned), len(rest)) == (5, 3, 2)
    late_held = len(late_balls) + len(rest)
    held, random = len(small) + len(small_balls), reached_95() + once_reached_95()
    assert (late_held, held, len(random)) == (4, 10, 10)
    chance = fisher_exact([[late_held, held - late_held], [0, len(random)]]).pvalue
    published = [claims().loc[f"{figure}-add-vs_v", "paper_says"] for figure in ("fig3", "figE8")]
    ends = [share(curve.loc[50], "val") for curve in large]
    trained, kept_out = (joined([share(both, half) for both in apart]) for half in ("train", "val"))
    poor = [joined([share(end, half) for end in rest]) for half in ("train", "val")]
    late = [curve.loc[41:] for curve in large]
    assert min(curve["train_seq_acc"].min() for curve in late) == 1
    average = sum(curve.loc[50, "val_seq_acc"] for curve in large) / 5
    lowest = [share(curve.min(), "val") for curve in late]
    return [
        f"more than {math.ceil(1000 * below) / 10} points below",
        f"answer {joined([share(end, 'train') for end in late_balls])} of the pairs they were trained on",
        f"and {joined([share(end, 'val') for end in late_balls])} of those kept out. So",
        f"(Fisher's exact test, p = {chance:.2f})",
        f"the lowest accuracies on the square are {joined(lowest)}.",
        f"{int(says('vs_v-examples').split()[0].replace(',', '')):,} pairs out of training",
        f"Transformer answers {published[0]} of it in the end, its nanoGPT {published[1]}.",
        f"Transformers end at {joined(ends)}: {average:.1%} on average",
        f"after epochs {joined([str(gap) for gap in gaps])}, they answer",
        f"{trained} of the pairs they were trained on",
        f"{kept_out} of those kept out.",
        f"nanoGPTs end at {joined(learned)}.",
        f"{poor[0]} of the pairs they were trained on",
        f"and {poor[1]} of those kept out",
        f"have not learned addition in {max(small[0].index)} epochs",
        f"The paper's {published[1]} may be such a mean",
        f"at 95% within {max(reached_95())} epochs, and the five of the older commit within {max(once_reached_95())}.",
        f"here {sum(end['val_seq_acc'] for end in last) / 5:.0%}, says how many seeds learned",
    ]


def multiplication() -> list[str]:
    """How three Transformers and four nanoGPTs learn to multiply."""
    curves = {}
    for model in ("transformer", "nanogpt"):
        files = sorted(RESULTS.glob(f"runs/mul-random-{model}-none-seed*/metrics.csv"))
        curves[model] = [pd.read_csv(file).set_index("epoch") for file in files]
    assert [len(found) for found in curves.values()] == [3, 4]
    right = {model: [curve["val_seq_acc"] for curve in found] for model, found in curves.items()}
    leads = {
        model: max((curve["train_seq_acc"] - curve["val_seq_acc"]).max() for curve in found)
        for model, found in curves.items()
    }
    late = [accuracy.loc[201:] for accuracy in right["transformer"]]
    spans = [f"between {accuracy.min():.1%} and {accuracy.max():.1%}" for accuracy in late]
    epochs = {
        model: joined([str(accuracy.index[accuracy >= 0.95][0]) for accuracy in found])
        for model, found in right.items()
    }
    layers = pd.DataFrame({seed: of_ours(seed, "mul") for seed in range(3)})
    assert set(layers.idxmin()) == {1}
    assert set(layers.idxmax()) <= {5, 6}
    (scaled,) = of_ours(0, "mul", "scaled bits")
    assert layers.to_numpy().max() < scaled
    paper, errors = claims()["paper_says"], str(claims().loc["mul-mae", "values"]).split()
    return [
        f"after epochs {epochs['transformer']} (the paper: {paper['table3-mul-none'].split()[0]})",
        f"in the last {len(late[0])} epochs {joined(spans, ', and ')}.",
        f"They end at {joined([f'{accuracy.loc[250]:.1%}' for accuracy in late])}",
        f"with mean absolute errors of {joined(errors)}",
        f"the paper has {paper['fig1-mul']} and {paper['mul-mae']}.",
        f"after epochs {epochs['nanogpt']}, and end at {joined([f'{a.loc[250]:.2%}' for a in right['nanogpt']])}.",
        f"more than {math.ceil(1000 * leads['transformer']) / 10} points above",
        f"for nanoGPT {math.ceil(1000 * leads['nanogpt']) / 10}.",
        f"with {layers.max().min():.2f} to {layers.max().max():.2f}, below the {scaled:.2f} of the scaled bits",
    ]


def without_components() -> list[str]:
    """How many epochs addition takes without one component of the network."""
    rows = claims().loc[[f"table3-add-{name}" for name in CUTS]]
    assert set(rows["n"]) == {"5"}
    sentences = {}
    for name, row in zip(CUTS, rows.itertuples(), strict=True):
        median, low, high, paper = (f"{float(x):.0f}" for x in (row.ours, row.low, row.high, row.paper))
        sentences[name] = CUTS[name].format(median) + f" ({low} to {high}; the paper: {paper})"
    late = sorted(map(int, rows.loc["table3-add-no_feed_forward", "values"].split()))
    ratio, again = (
        says("squeezing-add"),
        [float(rows.loc[f"table3-add-{k}", "paper"]) for k in ("squeezed_encoder", "none")],
    )
    low, high = re.findall(r"[\d.]+", ratio)[1:]
    assert min(map(int, rows.loc["table3-add-d_model_32", "values"].split())) > 66
    authors = pd.read_csv(RESULTS / "authors-epochs.csv").query("what == 'add d_model=32' and seed == 23")
    theirs = authors.loc[authors["val_seq_acc"] >= 0.95, "epoch"].min()
    return [
        *sentences.values(),
        f"is late, at epoch {late[-1]}, beside {', '.join(map(str, late[:-2]))} and {late[-2]}.",
        f"its own table has {again[0] / again[1]:.1f} times as many epochs",
        f"Ours need {ratio.split()[0]} times as many ({low} to {high})",
        "With 32 channels each of our five seeds takes longer than the published 66 epochs",
        f"with its seed, 23, it is at 95% after epoch {theirs}.",
    ]


def not_run() -> list[str]:
    """What the claims without a verdict for want of runs would cost on two cores."""
    (file,) = RESULTS.glob("runs/mul-random-transformer-none-seed2-*/metrics.csv")
    seconds = pd.read_csv(file)["seconds"].median()
    cuts = claims().loc[[f"table3-mul-{name}" for name in CUTS if name != "none"], "paper"].astype(float).sum()
    never = claims().loc[
        [f"table3-{task}-{cut}" for task in ("add", "mul") for cut in ("no_attention", "no_positional_encoding")]
    ]
    assert set(never["verdict"]) == {"not run"}
    rows = {
        "three without each region, five on the random split": 250 * (2 * 2 * 2 + 2 + 1),
        "as many epochs as the paper's network needs": 5 * int(cuts),
        "three seeds of both tasks, 1,000 epochs each": 3 * 1000 * len(never),
        "random output, three seeds, 4,000 epochs each": 3 * 4000,
        "150 epochs of addition and 1,500 of multiplication": 5 * 3 * (150 + 1500),
    }
    hours = {what: epochs * seconds / 2 / 3600 for what, epochs in rows.items()}
    return [
        f"takes the Transformer {seconds:.1f} s with one thread",
        *(f"{what} | {epochs:,} | {hours[what]:.0f} |" for what, epochs in rows.items()),
        f"That is {sum(hours.values()) / 24:.0f} days",
    ]


def over_training() -> list[str]:
    """How distances follow the value, epoch by epoch, in nanoGPT with seed 2."""
    rows = pd.read_csv(RESULTS / "value-over-training.csv")
    value = rows[rows["space"] == "value"].pivot_table(index="epoch", columns="layer", values="correlation")
    tokens = rows[rows["space"] == "token"].pivot_table(index="epoch", columns="layer", values="correlation")
    metrics = pd.read_csv(next(RESULTS.glob("runs/add-random-nanogpt-none-seed2-*")) / "metrics.csv").set_index("epoch")
    (highest,) = set(value.idxmax())
    right = metrics["val_seq_acc"]
    assert (tokens.loc[50] > tokens.loc[highest]).all()
    span = cards()["span"]
    return [
        f"after epoch {highest}, {span(value.loc[highest])}, when the network answers {right[highest]:.1%} of the",
        f"It reaches 95% at epoch {right.index[right >= 0.95][0]}; by epoch 50",
        f"has fallen to {span(value.loc[50])},",
    ]


def multiplied_without(region: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The curves of one Transformer and one nanoGPT."""
    found = []
    for model in ("transformer", "nanogpt"):
        (file,) = RESULTS.glob(f"runs/mul-{region}-{model}-none-seed*/metrics.csv")
        found.append(pd.read_csv(file).set_index("epoch"))
    return found[0], found[1]


def multiplied_without_a_region() -> list[str]:
    paper = claims()["paper_says"]

    def span(curve: pd.DataFrame, half: str) -> str:
        accuracy = curve.loc[201:, f"{half}_seq_acc"]
        return f"between {accuracy.min():.1%} and {accuracy.max():.1%}"

    def both(curve: pd.DataFrame) -> str:
        return f"In its last 50 epochs that is {span(curve, 'val')}, and {span(curve, 'train')} of the pairs"

    large, small = multiplied_without("vs_t")
    least = math.floor(1000 * small.loc[201:, "val_seq_acc"].min()) / 10
    ball = [
        f"nanoGPT ends at {small.loc[250, 'val_seq_acc']:.2%} of it (the paper: {paper['figE8-mul-vs_t']})",
        f"and never falls below {least}% in the last 50 epochs.",
        f"The Transformer ends at {large.loc[250, 'val_seq_acc']:.1%} (the paper: {paper['fig3-mul-vs_t']}).",
        both(large),
    ]
    large, small = multiplied_without("vs_v")
    right, late = small["val_seq_acc"], small.loc[201:]
    return [
        *ball,
        f"ends at {large.loc[250, 'val_seq_acc']:.1%} of it (the paper: {paper['fig3-mul-vs_v']}).",
        both(large),
        f"ends at {right[250]:.1%} (the paper: {paper['figE8-mul-vs_v']})",
        f"After epoch {right.index[right >= 0.95][0]} it is at 95% for the first time",
        f"{len(late)} epochs anywhere {span(small, 'val')}",
        f"while it answers {late['train_seq_acc'].min():.1%} or more",
    ]


def erased() -> list[str]:
    """What our Transformers still answer without the value or the carries, beside random concepts."""
    paths = sorted(RESULTS.glob("runs/add-random-transformer-none-seed*/probes/amnesic/rows.csv"))
    rows = pd.concat([pd.read_csv(path) for path in paths])
    authors = probe("amnesic").query("concept == 'carries' and method == 'leace' and site == 'dec.3'").iloc[0]
    inlp, value, carries = (
        rows.query("concept == @concept and method == @method")
        for concept, method in (("value", "inlp"), ("value", "leace"), ("carries", "leace"))
    )
    assert len(inlp) == len(value) == len(carries) == 5
    assert (inlp["seq_acc_after"] == 1).all()
    harmless = (value["seq_acc_after"] > value["control_signs_mean"]).sum()
    assert harmless == 4
    assert (carries["seq_acc_after"] < carries["control_signs_mean"]).all()
    assert authors["seq_acc_after"] < authors["control_signs_mean"]
    assert (carries["seq_acc_after"] >= carries["control_signs_min"]).sum() == 2
    assert authors["seq_acc_after"] >= authors["control_signs_min"]

    def span(column: pd.Series, digits: str) -> str:
        return f"{column.min():{digits}} to {column.max():{digits}}"

    def each(column: pd.Series) -> str:
        shares = [f"{share:.1%}" for share in column]
        return f"{', '.join(shares[:-1])} and {shares[-1]}"

    return [
        f"with an error of {span(inlp['probe_error_after'], '.2f')}, hardly more than before",
        f"({span(inlp['probe_error_before'], '.2f')}).",
        f"(an error of {value['probe_error_after'].mean():.1f})",
        f"answer {span(value['seq_acc_after'], '.1%')}.",
        f"random concepts leaves {span(value['control_signs_mean'], '.1%')}: in four of the five it hurts more.",
        f"the five answer {each(carries['seq_acc_after'])}, each less",
        f"({each(carries['control_signs_mean'])})",
    ]


def found() -> list[str]:
    learned, epochs, ratio = says("fig1-add"), claims().loc["table3-add-none"], says("figE7-add-efficiency")
    median, averaged, published = (f"{float(epochs[key]):.0f}" for key in ("ours", "averaged_curve", "paper"))
    low, high = re.findall(r"[\d.]+", ratio)[1:]
    reached = reached_95()
    (token_layer, token), (value_layer, value) = correlation("dec", "token", False), correlation("dec", "value")
    assert token_layer == value_layer
    own = pd.DataFrame({seed: of_ours(seed) for seed in range(5)})
    scaled = correlation("scaled bits", "value")[1]
    highest = own.max()
    beyond = highest[highest > scaled]
    assert list(highest.index.difference(beyond.index)) == [0]
    assert set(own.idxmax()) == {2, 3}
    once = once_reached_95()
    large = [float(epoch) for epoch in str(epochs["values"]).split()]
    (pooled, _), span = hodges_lehmann_ratio(*[(sample, sample) for sample in (reached + once, large)])
    untrained = max(
        correlation("untrained dec", "value")[1], *(of_ours(k, stack="untrained dec").max() for k in range(5))
    )
    below = f"{-(-untrained // 0.1) / 10:.1f}"  # rounded up
    assert (probe("amnesic").query("method == 'inlp'")["seq_acc_after"] > 0.9995).all()
    fresh = pd.read_csv(RESULTS / "mechanism-calibration-fresh.csv")
    return [
        *held_out(),
        *multiplication(),
        *without_components(),
        *over_training(),
        *multiplied_without_a_region(),
        *not_run(),
        *erased(),
        f"on {(fresh['verdict'] == fresh['expected']).sum()} of {len(fresh)} networks",
        f"All five Transformers reach {learned.split()[0]} of the pairs that they never saw within 50 epochs",
        f"half of them are at 95% by epoch {median} (the paper: {published})",
        f"the averaged curve by epoch {averaged}",
        f"Their mean absolute error ends at {says('add-mae').split()[0]}",
        f"needs {ratio.split()[0]} times as many epochs to reach 95% (interval {low} to {high})",
        f"at epochs {', '.join(map(str, reached[:-1]))} and {reached[-1]}.",
        f"older commit got there at {', '.join(map(str, once[:-1]))} and {once[-1]}.",
        f"All ten together need {pooled:.2f} times as many epochs ({span[0]:.2f} to {span[1]:.2f})",
        f"the tokens ({token:.2f}) and the highest with the value ({value:.2f}) lie at layer {value_layer}",
        f"correlate {scaled:.2f} with the value",
        f"with {beyond.min():.2f} to {beyond.max():.2f}; in that of seed 0 it does not, with {highest[0]:.2f}.",
        f"An untrained decoder stays below {below}.",
        f"{says('appendixA-cell')} change 3 bits of the sum",
        f"(the paper: {claims().loc['appendixA-cell', 'paper_says']})",
        f"One operand bit can change all {says('discontinuity').split()[0]} bits of the sum",
    ]


def amnesic() -> list[str]:
    value = probe("amnesic").query("concept == 'value' and method == 'inlp' and site == 'dec.3'").iloc[0]
    before, after = value["probe_error_before"], value["probe_error_after"]
    pairs = int(says("examples").split()[0].replace(",", ""))
    right = pd.read_csv(RESULTS / "nullspace.csv").set_index("variant")["right"]
    none, two, many = (right[name] for name in ("nothing erased", "INLP, 2 iterations", "INLP, 160 iterations"))
    published = round(float(claims().loc["appD-after", "paper"]) * pairs)
    return [
        f"over all {pairs:,} pairs",
        f"| nothing erased | {none:,} |",
        f"| INLP, 2 iterations, as published | {two:,} ({two / pairs:.0%}) |",
        f"| INLP, 160 iterations | {many:,} ({many / pairs:.2%}) |",
        f"root mean squared error is {before:.3f} here and {claims().loc['appD-rmse', 'paper_says']} in the paper",
        f"accuracy is {published} of {pairs:,}, below",
        f"guessing the most frequent sum would give (128 of {pairs:,})",
        f"goes from {before:.3f} to {after:.3f}",
        f"stays at {before:.3f} after both",
    ]


FACTS: dict[str, Callable[[], list[str]]] = {
    "README.md": readme,
    "docs/found/index.md": found,
    "docs/found/amnesic.md": amnesic,
}
EXEMPT = {  # numbers that are no results
    # a year, Python, epochs of a run, the level of intervals; megabytes and seconds on one machine; published
    "README.md": {"2024", "3.11", "50", "95%", "11", "5", "96", "207", "0.13%"},
    "docs/found/index.md": {"95%", "2", "0.13%", "100%"},  # levels, bits; published; as tested above
    "docs/found/amnesic.md": {"0.13%", "100%", "2", "20", "1,024", "512", "99.99%"},  # published; sizes; a bound
}


@pytest.mark.parametrize("page", FACTS)
def test_every_number_of_a_page_is_recomputed(page: str) -> None:
    check_page(page, FACTS[page](), EXEMPT[page])
