"""Every number about mechanisms follows from the rows of cards and calibrations in ``results/``."""

from collections.abc import Iterable
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from arith_erd.bits import ZERO
from arith_erd.interp.causal import CausalTask
from arith_erd.interp.prefix import hypotheses, random_prefixes
from arith_erd.interp.signature import LOCAL, RIVALS, some_of
from arith_erd.stats import clopper_pearson
from arith_erd.tasks import Add
from tests.behaviour.pages import RESULTS, ROOT, cards, check_page

EXEMPT = {  # numbers of bits, layers, lists, doses, seeds, steps and pairs; levels, bars and limits of the tests
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
    "0.50",
    "0.25",
    "0.9",
    "100%",
    "254",
    "255",
}


def in_training() -> list[str]:
    """What lasts from when on, in 20 small networks."""
    table, rows = (pd.read_csv(RESULTS / f"mechanism-training{name}.csv") for name in ("", "-epochs"))
    learned = table[table["reaches_95"].notna()]
    names = ("carry_followed", "carry_followed_all", "carry_held")
    followed, both, held = ((learned[name] < learned["reaches_95"]).sum() for name in names)
    assert set(rows["verdict"]) == {"none"}
    assert (rows["sum_followed"].dropna() == 0).all()
    epochs = sorted(set(rows["epoch"]))
    return [
        f"{len(table)} nanoGPTs of three layers",
        f"kept after {len(epochs)} epochs, {epochs[0]} to {epochs[-1]}.",
        f"{len(learned)} of them reach 95%, at epochs {cards()['span'](learned['reaches_95'], '.0f')}.",
        f"before 95% in {followed} of the {len(learned)}, and with both bits in {both}.",
        f"what decides the bit before 95% in {held} of the {len(learned)}.",
    ]


@cache
def rows_of_cards() -> pd.DataFrame:
    return cards()["read"](RESULTS / "mechanism-cards.csv")


def of(network: str, component: str, stage: str | None = "", position: str | None = None) -> pd.Series:
    return cards()["of"](rows_of_cards(), network, component, stage, position)


def span(values: Iterable[float], form: str = ".2f") -> str:
    return str(cards()["span"](values, form))


def over_bits(network: str, component: str, first: int = 2) -> list[float]:
    return [x for t in range(first, 8) for x in of(network, component, position=str(t))]


def verdicts(network: str) -> pd.DataFrame:
    """``seed, component, value``: the verdict, and the distance to the nearest algorithm or mixture."""
    rows = rows_of_cards()
    rows = rows[(rows["network"] == network) & rows["component"].str.startswith("verdict: ")]
    assert len(rows) == cards()["seeds"](rows_of_cards(), network)
    return rows


def prefixes() -> list[str]:
    """What wrong prefixes change."""
    kinds = ("authors", "transformer", "nanogpt")
    most = [f"{max(over_bits(network, 'neutral', 1)):.1%}" for network in kinds]
    flips = [x for stratum in ("propagate", "settled") for x in over_bits("authors", f"flip_{stratum}", 1)]
    assert max(over_bits("remainder", "neutral", 1)) == 0
    differ = [of("authors", "remainder_over_local_carry", position=str(t)).item() for t in range(2, 8)]
    assert min(differ[:-1]) > 0.7
    assert 0.4 < differ[-1] < 0.6
    distances = {network: verdicts(network)["value"] for network in kinds}
    ours = pd.concat([verdicts("transformer"), verdicts("nanogpt")])
    none, undecided = (ours[ours["component"] == f"verdict: {name}"] for name in ("none", "undecided"))
    assert len(none) + len(undecided) == len(ours)
    assert set(undecided["network"]) == {"nanogpt"}
    assert set(verdicts("authors")["component"]) == {"verdict: none"}
    return [
        f"random prefixes change {span([1 - x for x in over_bits('authors', 'prompt_only')], '.0%')} of the bits",
        f"predicts {min(over_bits('authors', 'remainder')):.0%} to {max(over_bits('authors', 'remainder')):.1%} of the",
        f"at most {most[0]} of the answers of the authors' weights change, {most[1]} of our Transformers' and "
        f"{most[2]} of our nanoGPTs'.",
        f"reference changes {span(over_bits('prefix_carry', 'neutral', 1), '.0%')}, the",
        f"It changes {span(flips, '.0%')} of the authors' answers",
        f"The verdict is for {len(none)} of our {len(ours)} networks, and for nanoGPT "
        f"{'seed' if len(undecided) == 1 else 'seeds'} {', '.join(map(str, undecided['seed']))}",
        f"mixture is {span(distances['transformer'])} for our Transformers and {span(distances['nanogpt'])} for our "
        f"nanoGPTs, {span(distances['authors'])} for the authors' weights",
        f"predicts {span(over_bits('nanogpt', 'local_carry'), '.0%')} of its answers",
    ]


def held() -> list[str]:
    """Two algorithms that the verdict cannot name: how near they are, and the cases that tell them from others."""

    def distance(network: str, name: str) -> pd.Series:
        return of(network, f"distance_{name}")

    near = int((distance("nanogpt", "graded_carry") <= 1).sum())
    small = of("later_five_bits", "right") == 1
    within = {name: int((distance("later_five_bits", name)[small] <= 1).sum()) for name in LOCAL}
    first, second, third = (
        span([number for t, number in cases()[pair].items() if t < 7], ".0f")
        for pair in (
            "local_remainder_over_graded_carry",
            "local_remainder_over_remainder",
            "graded_carry_over_local_carry",
        )
    )
    return [
        f"{near} of 5 within the limit.",
        f"{first} of 2,048 by bit in the first, {second} in the second, {third} in the third.",
        f"is at a distance of {span(distance('authors', 'local_remainder'))} from the authors' weights and "
        f"{span(distance('transformer', 'local_remainder'))} from our Transformers.",
        f"is at {span(distance('nanogpt', 'graded_carry'))} from our nanoGPTs, {near} of which are within 1.",
        f"it predicts {span(over_bits('nanogpt', 'graded_carry'), '.0%')} of their answers by bit",
        f"is at a distance of {span(distance('later_transformer', 'local_remainder'))} from ,",
        f"are at {span(distance('later_nanogpt', 'graded_carry'))} from , too far.",
        f"Of the {small.sum()} nanoGPTs of three layers and five bits that answer every pair right, "
        f"{within['local_remainder']} is within 1 of and {within['graded_carry']} of .",
    ]


@cache
def cases() -> dict[str, dict[int, int]]:
    """Of the random prefixes that cards use, those after which two hypotheses expect different bits."""
    pairs = some_of(CausalTask(Add()), 1024, np.random.default_rng(0))
    counts = {name: dict.fromkeys(range(2, 8), 0) for name in RIVALS}
    for _, branch in random_prefixes(torch.from_numpy(pairs.examples.completion), 2, 0):
        for t in range(2, 8):
            expected = hypotheses(pairs, (branch.tokens[:, :t] - ZERO).numpy())
            clear = np.all([bits >= 0 for bits in expected.values()], axis=0)
            for name, (first, second) in RIVALS.items():
                counts[name][t] += int((clear & (expected[first] != expected[second])).sum())
    return counts


def doses() -> list[str]:
    """The best layer of each network, by the slope and between centroids."""
    best = {
        (network, method, delta): of(network, f"dose_{method}_{delta}", None).groupby("seed").max()
        for network in ("authors", "transformer", "nanogpt")
        for method in ("slope", "centroids")
        for delta in (1, 8, 64)
    }
    assert all(best[network, "slope", delta].max() == 0 for network in ("authors", "transformer") for delta in (1, 8))
    slope = [span(best[network, "slope", 64], ".0%") for network in ("authors", "transformer")]
    theirs, ours, small = (
        [span(best[network, "centroids", delta], ".0%") for delta in (1, 8, 64)]
        for network in ("authors", "transformer", "nanogpt")
    )
    return [
        f"brings it in {slope[0]} of the answers of the authors' weights and in {slope[1]} of ours",
        f"in the best layer {theirs[0]}, {theirs[1]} and {theirs[2]} of the answers of the authors' weights",
        f"{ours[0]}, {ours[1]} and {ours[2]} of our Transformers'",
        f"bring the new sum in {ours[0]} of our Transformers' answers.",
        f"{small[0]}, {small[1]} and {small[2]} of our nanoGPTs'",
    ]


def subspaces() -> list[str]:
    """What was searched, beside the best control; and in references."""
    controls = ("random_max", "flipped_max", "untrained", "decoy")

    def found(network: str, variable: str, position: str, end: str = "") -> str:
        return span(of(network, f"subspace_{variable}{end}", None, position))

    def control(network: str, variable: str, position: str) -> str:
        of_each = [of(network, f"subspace_{variable}_{name}", None, position) for name in controls]
        return span(pd.concat(of_each, axis=1).max(axis=1))

    def passes(network: str, variable: str, position: str) -> bool:
        of_each = pd.concat([of(network, f"subspace_{variable}_{name}", None, position) for name in controls], axis=1)
        least = (of_each.max(axis=1) + 0.1).clip(lower=0.9)
        return bool((of(network, f"subspace_{variable}", None, position) >= least).any())

    local = ("a_bit", "b_bit", "xor", "carry", "sum", "partial_sum")
    assert not any(passes(network, variable, "4") for network in ("authors", "transformer") for variable in local)

    assert not any(passes(network, "sum", "all") for network in ("authors", "transformer", "nanogpt"))
    known = pd.read_csv(RESULTS / "mechanism-subspaces.csv")
    whole = known[(known["variable"] == "sum") & (known["position"] == "all")].set_index("network")["iia"]
    passed = known[known["passes"] == 1]
    assert set(passed.loc[passed["position"] == "all", "network"]) == {"erd"}
    assert set(passed.loc[(passed["position"] == "4") & (passed["variable"] == "sum"), "network"]) == {
        "erd",
        "erd_decoy",
        "lookahead_carry",
    }
    others = whole.drop(["erd", "erd_decoy"])
    return [
        f"passes, by the first two parts of the bar, in , with {whole['erd']:.2f}, and in none of the {len(others)} "
        f"machines of another kind "
        f"(at most {others.max():.2f}).",
        f"stores carries and operand bits beside the sum: {whole['erd_decoy']:.2f}.",
        f"at all positions gives {found('authors', 'sum', 'all')} in the authors' weights and "
        f"{found('transformer', 'sum', 'all')} in ours, the best control {control('authors', 'sum', 'all')} and "
        f"{control('transformer', 'sum', 'all')}, the whole embeddings {found('authors', 'sum', 'all', '_whole')} and "
        f"{found('transformer', 'sum', 'all', '_whole')}.",
        f"Bit 4 of the sum alone gives {found('authors', 'sum', '4')} and {found('transformer', 'sum', '4')}, and "
        f"{found('transformer', 'sum', '4', '_decoy')} in a carry machine.",
    ]


def nanogpt() -> list[str]:
    def tiled(layer: int) -> str:
        return span(of("nanogpt", "exchange_mosaic", f"dec.{layer}"), ".0%")

    means = {
        (test, layer): of("nanogpt", f"exchange_{test}", f"dec.{layer}.self").groupby("seed").mean()
        for test in ("carry", "xor")
        for layer in (1, 3)
    }
    late = max(of("nanogpt", "exchange_mosaic", f"dec.{layer}").max() for layer in range(3, 6))
    neither = of("nanogpt", "exchange_neither", None).max()
    third = pd.concat([means["carry", 3], means["xor", 3]])
    return [
        f"tiled after layer 1, they change {tiled(1)} of the answers, after layer 2 {tiled(2)}, and later at most "
        f"{late:.0%}.",
        f"change {span(means['carry', 1], '.0%')} of the answers where only the carry differs and "
        f"{span(means['xor', 1], '.0%')} where only the xor does",
        f"After the attention of layer 3 they change {span(third, '.0%')}.",
        f"Exchanges where neither differs change at most {neither:.0%}.",
    ]


def values() -> list[str]:
    """Transfers and doses by other definitions of the sum's direction."""
    rows = pd.read_csv(RESULTS / "mechanism-values.csv")
    known, trained = rows[rows["network"] == "erd"], rows[rows["network"].isin(("authors", "transformer", "nanogpt"))]
    assert (trained["seed"] == 0).all()

    def of_method(rows: pd.DataFrame, method: str, *what: str) -> pd.Series:
        return rows[(rows["method"] == method) & rows["what"].isin(what)]["value"]

    elsewhere = pd.concat([of_method(trained, method, "elsewhere") for method in ("slope", "das")])
    stored, later = (known[(known["site"] == site) & (known["test"] == "transfer")] for site in ("dec.3", "dec.4"))
    assert of_method(trained, "leace", "1", "8").max() == 0
    assert all(of_method(known, method, "1", "8").min() == 1 for method in ("leace", "das"))
    return [
        f"they bring bit t' of its sum in {span(elsewhere)} of the balanced answers",
        f"a learned subspace brings it in {of_method(stored, 'das', 'elsewhere').item():.2f} behind layer 3, which "
        f"stores the sum, and least squares in {of_method(stored, 'slope', 'elsewhere').item():.2f};",
        f"both find these: {of_method(later, 'das', 'elsewhere').item():.2f} and "
        f"{of_method(later, 'slope', 'elsewhere').item():.2f}.",
        f"At t itself learned subspaces bring bit t in {span(of_method(trained, 'das', 'same'))}.",
        f"bring a + b + delta in at most {of_method(trained, 'das', '1', '8').max():.2f} of the answers within learned",
    ]


def calibration() -> list[str]:
    fresh, before = (pd.read_csv(RESULTS / f"mechanism-calibration{name}.csv") for name in ("-fresh", ""))
    sizes = fresh.groupby("network").size()
    known = fresh[fresh["expected"] != "none"]
    right = [(rows["verdict"] == rows["expected"]).sum() for rows in (fresh, before)]
    probes = pd.read_csv(RESULTS / "reference-probes.csv").set_index(["network", "test"])
    assert probes.loc[("erd", "dose"), "least"].min() == 1
    assert all((fresh.loc[fresh["network"] == name, "near"] == name).all() for name in LOCAL)
    return [
        f"{right[0]} of {len(fresh)} verdicts are right",
        f"and {sizes['local_remainder']} references of each of the two algorithms that are no candidates.",
        f"{sizes['erd']} references of each of five algorithms and {sizes['erd_decoy']} decoys of each of three",
        f"{sizes['Transformer']} untrained Transformers and {sizes['NanoGPT']} untrained nanoGPTs",
        f"The largest distance of a candidate's reference is {known['distance'].max():.2f},",
        f"{len(before)} references of seeds from 1000 on were measured before ( ), {right[1]} of {len(before)} right",
        f"{probes.loc[('lookahead_carry', 'dose'), 'most'].max():.0%} of the answers of the reference",
        f"on {len(fresh)} networks",
    ]


def mechanism() -> list[str]:
    """Of several seeds the range, so that these sentences stay true when seeds are added."""
    assert max(of(network, "value").max() for network in ("authors", "transformer", "nanogpt")) == 0
    right = rows_of_cards()[rows_of_cards()["component"] == "right"]
    right = right[right["network"] != "later_five_bits"]
    assert (right["value"] == 1).all()
    tiles = of("transformer", "exchange_mosaic", None).groupby("seed").max() * 512
    few = tiles[tiles > 0]
    return [
        *in_training(),
        *prefixes(),
        *held(),
        *values(),
        *doses(),
        *subspaces(),
        *nanogpt(),
        *calibration(),
        f"all but {span(few, '.0f')} of 512 in our network of seed {few.index.item()}.",
        f"0 of 512 means at most {clopper_pearson(0, 512)[1]:.2%}",
    ]


def test_every_number_of_the_page_is_recomputed() -> None:
    check_page("docs/found/mechanism.md", mechanism(), EXEMPT)


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
