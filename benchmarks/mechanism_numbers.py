"""The numbers of ``docs/found/mechanism.md`` and its appendix, by their keys; `page_numbers` writes them."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from cards import of, published, seeds, span  # beside this file
from scipy.stats import binomtest

RESULTS = Path(__file__).parents[1] / "results"
TRAINED = ("authors", "transformer", "nanogpt")
SUBSPACE_CONTROLS = ("random_max", "flipped_max", "untrained", "decoy")
Facts = dict[str, str]


def mechanism() -> Facts:
    rows = published()
    return prefixes(rows) | doses(rows) | patches(rows) | subspaces(rows) | values() | training() | calibration()


def by_bit(rows: pd.DataFrame, network: str, component: str, first: int = 2) -> list[float]:
    """A component of the signature, at bits ``first`` to 7, of all seeds."""
    return [x for t in range(first, 8) for x in of(rows, network, "signature", component, position=str(t))]


def prefixes(rows: pd.DataFrame) -> Facts:
    """Wrong prefixes, and distances to algorithms."""
    verdicts = rows[(rows["test"] == "verdict") & rows["network"].isin(TRAINED)]
    ours = verdicts[verdicts["network"] != "authors"]
    undecided = ours[ours["component"] == "undecided"]
    assert set(undecided["network"]) == {"nanogpt"}
    assert set(verdicts["component"]) == {"none", "undecided"}
    flips = [x for part in ("propagate", "settled") for x in by_bit(rows, "authors", f"flip_{part}", 1)]
    found = {
        "prefix_changes": span([1 - x for x in by_bit(rows, "authors", "prompt_only_of_all")], ".0%"),
        "remainder_agreement": span(by_bit(rows, "authors", "remainder_of_all"), ".0%"),
        "ties": f"{of(rows, 'authors', 'signature', 'ties', position='2').item():.0%}",
        "inverted_token": span(flips, ".0%"),
        "ablation_prefix_carry": span(by_bit(rows, "prefix_carry", "mean_ablation", 1), ".0%"),
        "verdict_none": str(len(ours) - len(undecided)),
        "verdict_all": str(len(ours)),
        "verdict_undecided_seeds": ", ".join(map(str, undecided["seed"])),
        "prefix_carry_nanogpt": span(by_bit(rows, "nanogpt", "local_carry"), ".0%"),
        "graded_agreement_nanogpt": span(by_bit(rows, "nanogpt", "graded_carry"), ".0%"),
    }
    for name in TRAINED:
        found[f"ablation_{name}"] = f"{max(by_bit(rows, name, 'mean_ablation', 1)):.1%}"
        found[f"nearest_{name}"] = span(verdicts.loc[verdicts["network"] == name, "value"])
    for name in (*TRAINED, "later_transformer", "later_nanogpt"):
        for algorithm in ("local_remainder", "graded_carry"):
            found[f"{algorithm}_{name}"] = span(of(rows, name, "distance", algorithm))
    small = of(rows, "later_five_bits", "accuracy") == 1
    for algorithm in ("local_remainder", "graded_carry"):
        near = of(rows, "later_five_bits", "distance", algorithm)[small] <= 1
        found[f"small_near_{algorithm}"] = str(near.sum())
    found["graded_near"] = str((of(rows, "nanogpt", "distance", "graded_carry") <= 1).sum())
    return found | {"small_right": str(small.sum())}


def doses(rows: pd.DataFrame) -> Facts:
    """The share of answers that follow a shift of the sum, in the best layer of each network."""
    found: Facts = {}
    for name in TRAINED:
        for method in ("slope", "centroids"):
            best = {
                delta: of(rows, name, "dose_response", method, "", str(delta)).groupby("seed").max()
                for delta in (1, 8, 64)
            }
            found |= {f"{method}_{delta}_{name}": span(shares, ".0%") for delta, shares in best.items()}
            if method == "slope" and name != "nanogpt":
                assert max(best[1].max(), best[8].max()) == 0
    return found


def patches(rows: pd.DataFrame) -> Facts:
    def means(what: str, layer: int) -> pd.Series:
        return of(rows, "nanogpt", "interchange", what, site=f"dec.{layer}.resid_mid").groupby("seed").mean()

    def resampled(*layers: int) -> list[float]:
        return [x for n in layers for x in of(rows, "nanogpt", "position_wise_resampling", site=f"dec.{n}")]

    changed = of(rows, "transformer", "position_wise_resampling").groupby("seed").max() * 512
    few = changed[changed > 0]
    return {
        "encoder_changed": span(few, ".0f"),
        "encoder_changed_seed": ", ".join(map(str, few.index)),
        "none_of_512": f"{binomtest(0, 512).proportion_ci(0.95).high:.2%}",
        "nanogpt_prompt_1": span(resampled(1), ".0%"),
        "nanogpt_prompt_2": span(resampled(2), ".0%"),
        "nanogpt_prompt_later": f"{max(resampled(3, 4, 5)):.0%}",
        "nanogpt_carry_1": span(means("carry", 1), ".0%"),
        "nanogpt_xor_1": span(means("xor", 1), ".0%"),
        "nanogpt_both_3": span(pd.concat([means("carry", 3), means("xor", 3)]), ".0%"),
        "nanogpt_neither": f"{of(rows, 'nanogpt', 'interchange', 'neither').max():.0%}",
    }


def subspaces(rows: pd.DataFrame) -> Facts:
    """Learned subspaces beside their best control."""
    found: Facts = {}
    for name in ("authors", "transformer"):
        whole = [of(rows, name, "subspace", "sum", control, position="all") for control in ("", *SUBSPACE_CONTROLS)]
        found |= {
            f"subspace_{name}": span(whole[0]),
            f"subspace_control_{name}": span(pd.concat(whole[1:], axis=1).max(axis=1)),
            f"subspace_full_{name}": span(of(rows, name, "subspace", "sum", "full_patch", position="all")),
            f"subspace_bit_{name}": span(of(rows, name, "subspace", "sum", position="4")),
        }
    known = pd.read_csv(RESULTS / "mechanism-subspaces.csv")
    whole_sum = known[(known["variable"] == "sum") & (known["position"] == "all")].set_index("network")["iia"]
    return found | {
        "subspace_bit_decoy": span(of(rows, "transformer", "subspace", "sum", "decoy", position="4")),
        "subspace_erd": f"{whole_sum['erd']:.2f}",
        "subspace_erd_decoy": f"{whole_sum['erd_decoy']:.2f}",
        "subspace_others": f"{whole_sum.drop(['erd', 'erd_decoy']).max():.2f}",
    }


def values() -> Facts:
    """The sum's directions of one position, at another one."""
    rows = pd.read_csv(RESULTS / "mechanism-values.csv")
    trained, known = rows[rows["network"].isin(TRAINED)], rows[rows["network"] == "erd"]

    def found(rows: pd.DataFrame, methods: Iterable[str], *what: str) -> pd.Series:
        return rows[rows["method"].isin(methods) & rows["what"].isin(what)]["value"]

    stored = known[(known["site"] == "dec.3") & (known["test"] == "transfer")]
    return {
        "transfer": span(found(trained, ["slope", "das"], "elsewhere")),
        "transfer_erd": f"{found(stored, ['das'], 'elsewhere').item():.2f}",
        "transfer_same": span(found(trained, ["das"], "same")),
        "shift_in_subspace": f"{found(trained, ['das'], '1', '8').max():.2f}",
    }


def training() -> Facts:
    """In 20 small networks, what lasts from which epoch on."""
    table, rows = (pd.read_csv(RESULTS / f"mechanism-training{name}.csv") for name in ("", "-epochs"))
    learned = table[table["reaches_95"].notna()]
    names = ("carry_followed", "carry_followed_all", "carry_held")
    followed, both, held = ((learned[name] < learned["reaches_95"]).sum() for name in names)
    assert set(rows["verdict"]) == {"none"}
    assert (rows["sum_followed"].dropna() == 0).all()
    return {
        "small_networks": str(len(table)),
        "small_learned": str(len(learned)),
        "small_epochs": span(learned["reaches_95"], ".0f"),
        "small_followed": str(followed),
        "small_followed_all": str(both),
        "small_held": str(held),
    }


def calibration() -> Facts:
    sizes = pd.read_csv(RESULTS / "mechanism-calibration-fresh.csv").groupby("network").size()
    return {
        "calibration_references": str(sizes["erd"]),
        "calibration_decoys": str(sizes["erd_decoy"]),
        "calibration_post_hoc": str(sizes["local_remainder"]),
        "calibration_untrained": str(sizes["NanoGPT"]),
        "calibration_seeds": str(seeds(published(), "transformer")),
    }
