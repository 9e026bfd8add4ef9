"""Every number in README, in what was found and in the rules follows from ``results/``, or is exempt for a reason."""

import re
import runpy
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
# Code, generated tables, targets of links and headings hold no claims of their own.
ASIDE = re.compile(
    r"```.*?```|`[^`\n]*`|<!-- \w+:begin -->.*?<!-- \w+:end -->|\]\([^)]*\)|^#[^\n]*$|<!--.*?-->", re.S | re.M
)
NAMES = re.compile(r"\b(?:figure|layer|seed)s? \d(?: and \d)?", re.I)
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?[%K]?(?!\w)")


@cache
def claims(folder: str = ".") -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "claims.csv", dtype=str, keep_default_na=False).set_index("id")


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


def of_ours(seed: int) -> pd.Series:
    """By layer, how distances in the decoder of one of our Transformers correlate with those of the value."""
    (path,) = RESULTS.glob(f"runs/add-random-transformer-none-seed{seed}-*/probes/distance_correlation/rows.csv")
    rows = pd.read_csv(path).query("stack == 'dec' and space == 'value' and level == 'out' and method == 'pearson'")
    return rows.set_index("layer")["correlation"]


def says(claim: str) -> str:
    return str(claims().loc[claim, "ours_says"])


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
    """How training and held-out accuracy part where a square of values is held out: seed 0 of both models."""
    large, small = (
        pd.read_csv(next(RESULTS.glob(f"runs/add-vs_v-{model}-none-seed0-*")) / "metrics.csv").set_index("epoch")
        for model in ("transformer", "nanogpt")
    )
    held, trained = large["val_seq_acc"], large["train_seq_acc"]
    late = slice(held[held == 1].index[0], 50)
    assert held.iloc[-1] == small["val_seq_acc"].iloc[-1] == 1
    assert trained[late].min() > 0.999
    assert small["val_seq_acc"][6:].min() > 0.998
    published = [claims().loc[f"{figure}-add-vs_v", "paper_says"] for figure in ("fig3", "figE8")]
    return [
        f"{int(says('vs_v-examples').split()[0].replace(',', '')):,} in the middle",
        f"fewer of them: {published[0]}, and nanoGPT {published[1]}.",
        f"after epoch 22 it answers {trained[22]:.1%} of the pairs",
        f"it was trained on and {held[22]:.1%} of those kept out",
        f"in epochs {late.start} to 50 the latter fall to {held[late].min():.1%} at worst",
        f"{small['train_seq_acc'][5]:.1%} and {small['val_seq_acc'][5]:.1%} after epoch 5, and all from epoch 6 on",
    ]


def found() -> list[str]:
    learned, epochs, ratio = says("fig1-add"), claims().loc["table3-add-none"], says("figE7-add-efficiency")
    median, averaged, published = (f"{float(epochs[key]):.0f}" for key in ("ours", "averaged_curve", "paper"))
    low, high = re.findall(r"[\d.]+", ratio)[1:]
    reached = sorted(map(int, claims().loc["figE7-add-efficiency", "values"].split(" / ")[0].split()))
    (token_layer, token), (value_layer, value) = correlation("dec", "token", False), correlation("dec", "value")
    assert token_layer == value_layer
    own = {seed: of_ours(seed) for seed in (0, 1)}
    scaled, untrained = correlation("scaled bits", "value")[1], correlation("untrained dec", "value")[1]
    beyond = own[1].index[own[1] > scaled]
    assert own[0].max() < scaled
    assert len(beyond) == max(beyond) - min(beyond) + 1
    below = f"{-(-untrained // 0.1) / 10:.1f}"  # rounded up
    assert set(claims("older").loc[["appD-after"], "mean"].astype(float)) == {1.0}
    assert (probe("amnesic").query("method == 'inlp'")["seq_acc_after"] > 0.9995).all()
    fresh = pd.read_csv(RESULTS / "mechanism-calibration-fresh.csv")
    return [
        *held_out(),
        f"on {(fresh['verdict'] == fresh['expected']).sum()} of {len(fresh)} networks",
        f"All five Transformers reach {learned.split()[0]} of the pairs that they never saw within 50 epochs",
        f"half of them are at 95% by epoch {median} (the paper: {published})",
        f"the averaged curve by epoch {averaged}",
        f"Their mean absolute error ends at {says('add-mae').split()[0]}",
        f"needs {ratio.split()[0]} times as many epochs to reach 95% (interval {low} to {high})",
        f"at epochs {', '.join(map(str, reached[:-1]))} and {reached[-1]}.",
        f"the tokens ({token:.2f}) and the highest with the value ({value:.2f}) lie at layer {value_layer}",
        f"correlate {scaled:.2f} with the value",
        f"highest at layer {own[0].idxmax()}, and {own[0].max():.2f}.",
        f"seed 1 layers {min(beyond)} to {max(beyond)} do, and layer {own[1].idxmax()} has {own[1].max():.2f}.",
        f"An untrained decoder stays below {below}.",
        f"{says('appendixA-cell')} change 3 bits of the sum",
        f"(the paper: {claims().loc['appendixA-cell', 'paper_says']})",
        f"One operand bit can change all {says('discontinuity').split()[0]} bits of the sum",
    ]


def in_training() -> list[str]:
    """What becomes causal when, in 20 small networks."""
    table, rows = (pd.read_csv(RESULTS / f"mechanism-training{name}.csv") for name in ("", "-epochs"))
    learned = table[table["reaches_95"].notna()]
    before = {name: (learned[name] < learned["reaches_95"]).sum() for name in ("carry_followed", "carry_held")}
    assert table["carry_followed"].notna().all()
    assert table["sum_followed"].isna().all()
    assert set(rows["verdict"]) == {"none"}
    assert (rows["sum_followed"].dropna() == 0).all()
    epochs, held = sorted(set(rows["epoch"])), learned["xor_held"] - learned["carry_held"]
    assert (held >= 0).all()
    return [
        f"{len(table)} nanoGPTs of three layers",
        f"kept after {len(epochs)} epochs, {epochs[0]} to {epochs[-1]}.",
        f"{len(learned)} of them reach 95%, at epochs {cards()['span'](learned['reaches_95'], '.0f')}.",
        f"in all {len(table)}, and in {before['carry_followed']} of the {len(learned)} already",
        f"before 95% in {before['carry_held']} of the {len(learned)}, at the same kept epoch as the xor in "
        f"{(held == 0).sum()}, and before it in {(held > 0).sum()}.",
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


@cache
def cards() -> dict[str, Any]:
    """The functions of ``benchmarks/cards.py``, which writes the tables of the page."""
    return runpy.run_path(str(ROOT / "benchmarks" / "cards.py"))


def mechanism() -> list[str]:
    """Of several seeds the range, so that these sentences stay true when seeds are added."""
    rows = cards()["read"](RESULTS / "mechanism-cards.csv")
    of, span = partial(cards()["of"], rows), cards()["span"]
    bits = range(2, 8)

    def over_bits(network: str, component: str) -> list[float]:
        return [x for t in bits for x in of(network, component, position=str(t))]

    def entrance(network: str, bit: int) -> str:
        """The first layer whose cross-attention gives a position the carry, of each seed, in the way of a card."""
        first = {}
        for n in range(1, 7):
            held, noise = (of(network, f"exchange_{name}", f"dec.{n}.cross", str(bit)) for name in ("carry", "neither"))
            first |= {seed: n for seed in held[held - noise >= 0.5].index if seed not in first}
        return span(first.values(), "d")

    def subspace(network: str, variable: str, position: str) -> str:
        return span(of(network, f"subspace_{variable}", None, position))

    def tiled(layer: int) -> str:
        return span(of("nanogpt", "exchange_mosaic", f"dec.{layer}"), ".0%")

    needed = span([1 - x for x in over_bits("authors", "prompt_only")], ".0%")
    followed = over_bits("authors", "remainder")
    doses = {
        network: {delta: of(network, f"dose_slope_{delta}", None).groupby("seed").max() for delta in (1, 8, 64)}
        for network in ("authors", "transformer")
    }
    assert all(moved[delta].max() == 0 for moved in doses.values() for delta in (1, 8))
    theirs, ours = (span(moved[64], ".0%") for moved in doses.values())
    for network in ("authors", "transformer", "nanogpt"):
        assert of(network, "verdict: none", None).notna().all()
        assert of(network, "value").max() == 0
    assert of("nanogpt", "exchange_neither", None).max() == 0
    whole = {test: of("nanogpt", f"exchange_{test}", "dec.1.self").groupby("seed").mean() for test in ("carry", "xor")}
    first = {test: of("nanogpt", f"exchange_{test}", "dec.1.self", "1") for test in whole}
    assert all(of("nanogpt", f"exchange_{test}", "dec.3.self").min() == 1 for test in whole)
    assert all(
        of("nanogpt", f"exchange_{test}", "dec.1.self", str(t)).min() == 1 for test in whole for t in range(2, 7)
    )
    assert of("nanogpt", "exchange_mosaic", "dec.3").max() == 0
    fresh, before = (pd.read_csv(RESULTS / f"mechanism-calibration{name}.csv") for name in ("-fresh", ""))
    sizes = fresh.groupby("network").size()
    known = fresh[fresh["expected"] != "none"]
    right = [(rows["verdict"] == rows["expected"]).sum() for rows in (fresh, before)]
    probes = pd.read_csv(RESULTS / "reference-probes.csv").set_index(["network", "test"])
    assert probes.loc[("erd", "dose"), "least"].min() == 1
    return [
        *in_training(),
        f"random prefixes change {needed} of the bits",
        f"predicts {min(followed):.0%} to {max(followed):.1%} of the answers",
        f"predicts {span(over_bits('nanogpt', 'local_carry'), '.0%')} of its answers",
        f"bit 6 after layer {entrance('authors', 6)} and bit 1 after layer {entrance('authors', 1)} in the authors' "
        f"weights, {entrance('transformer', 6)} and {entrance('transformer', 1)} in ours",
        f"in {theirs} of the answers of the authors' weights and in {ours} of ours",
        f"bit 4 of the sum, with {subspace('authors', 'sum', '4')} of the balanced answers in the authors' weights and "
        f"{subspace('transformer', 'sum', '4')} in ours, where the same subspace with other signs reaches "
        f"{subspace('authors', 'sum_flipped_max', '4')} and {subspace('transformer', 'sum_flipped_max', '4')}",
        f"gives {subspace('authors', 'sum', 'all')} and {subspace('transformer', 'sum', 'all')}, its control "
        f"{subspace('authors', 'sum_flipped_max', 'all')} and {subspace('transformer', 'sum_flipped_max', 'all')}",
        f"tiled after layer 1, they change {tiled(1)} of the answers, after layer 2 {tiled(2)}, and from layer 3 on",
        f"change {span(whole['carry'], '.0%')} of the answers where only the carry differs and "
        f"{span(whole['xor'], '.0%')} where only the xor does",
        f"and {span(first['carry'], '.0%')} and {span(first['xor'], '.0%')} in bit 1",
        f"0 of 512 means fewer than {1 - 0.05 ** (1 / 512):.1%}",
        f"{right[0]} of {len(fresh)} verdicts are right",
        f"{sizes['erd']} references of each of five algorithms and {sizes['erd_decoy']} decoys of each of three",
        f"{sizes['Transformer']} untrained Transformers and {sizes['NanoGPT']} untrained nanoGPTs",
        f"The largest distance of a reference is {known['distance'].max():.2f},",
        f"{len(before)} references of seeds from 1000 on were measured before ( ), {right[1]} of {len(before)} right",
        f"{probes.loc[('lookahead_carry', 'dose'), 'most'].max():.0%} of the answers of the reference",
        f"gives {probes.loc[('erd', 'transfer'), 'most'].max():.2f} of the balanced answers at the best layer",
        f"on {len(fresh)} networks",
    ]


FACTS: dict[str, Callable[[], list[str]]] = {
    "README.md": readme,
    "docs/found/index.md": found,
    "docs/found/amnesic.md": amnesic,
    "docs/found/mechanism.md": mechanism,
}
EXEMPT = {  # numbers that are no results
    # a year, Python, epochs of a run, the level of intervals; megabytes and seconds on one machine; published
    "README.md": {"2024", "3.11", "50", "95%", "11", "5", "96", "207", "0.13%"},
    "docs/found/index.md": {"95%", "2", "0.13%", "100%"},  # levels, bits; published; as tested above
    "docs/found/amnesic.md": {"0.13%", "100%", "2", "20", "1,024", "512", "99.99%"},  # published; sizes; a bound
    # numbers of bits, layers, lists, doses, seeds, steps and pairs; levels, bars and limits of the tests
    "docs/found/mechanism.md": {
        *map(str, range(9)),
        "15",
        "30",
        "50",
        "64",
        "95%",
        "128",
        "512",
        "1000",
        "2000",
        "0.1",
        "0.25",
        "0.9",
        "100%",
    },
}


@pytest.mark.parametrize("page", FACTS)
def test_every_number_of_a_page_is_recomputed(page: str) -> None:
    text = " ".join(ASIDE.sub(" ", (ROOT / page).read_text()).split())
    for sentence in FACTS[page]():
        assert sentence in text, f"{page} lacks: {sentence}"
        text = text.replace(sentence, " ")
    left = {number.rstrip(",") for number in NUMBER.findall(NAMES.sub(" ", text))}
    assert left <= set(EXEMPT[page]), f"{page}: no rows behind {sorted(left - set(EXEMPT[page]))}"


def test_tables_of_the_mechanism_page_are_those_of_the_cards() -> None:
    text = (ROOT / "docs" / "found" / "mechanism.md").read_text()
    for name, table in cards()["tables"](cards()["read"](RESULTS / "mechanism-cards.csv")).items():
        assert f"<!-- {name}:begin -->\n{table}\n<!-- {name}:end -->" in text, name


def test_own_claims_are_those_of_the_cards() -> None:
    """By bit where a component belongs to no stage, else means by stage, in the decoder behind cross-attention."""
    rows = cards()["read"](RESULTS / "mechanism-cards.csv")
    for claim in yaml.safe_load((RESULTS / "found.yaml").read_text())["claims"]:
        card = rows[(rows["network"] == claim["network"]) & (rows["seed"] == claim["seed"])]
        card = card[card["component"] == claim["column"]]
        of_bits = card[card["stage"] == ""]
        if len(of_bits):
            measured = of_bits.loc[of_bits["position"].astype(int) >= claim.get("from_bit", 0), "value"]
        else:
            answers = card["stage"].str.endswith(".cross") | (card["position"] == "all")
            measured = card[answers].groupby("stage", sort=False)["value"].mean()
        assert claim["value"] == pytest.approx([*measured], abs=0.006), claim["id"]
