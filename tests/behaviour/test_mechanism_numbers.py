"""Every number about mechanisms follows from the rows of cards and calibrations in ``results/``."""

from functools import partial

import pandas as pd
import pytest
import yaml

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
    "0.25",
    "0.9",
    "100%",
}


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
