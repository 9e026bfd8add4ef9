"""Numbers and tables of the count in ``results/one-sentence.csv``; `page_numbers` writes them into the pages."""

from pathlib import Path

import pandas as pd
from cards import span  # beside this file
from one_sentence import COUNTED, COUNTS, GRADED, TRANSFORMER, score, with_errors
from scipy.stats import binomtest

RESULTS = Path(__file__).parents[1] / "results"
Facts = dict[str, str]
FRESH = range(5, 15)
ACCEPTED = 0.99  # of interchanges between held-out pairs that a network of known variables has to follow
CRITERIA = {
    "slopes": ("slopes", "0.20"), "agreement": ("agreement", "90%"), "swap_own": ("own", "99%"),
    "swap_earlier": ("earlier", "1%"), "vectors": ("vectors", "99%"), "equal_c": ("equal c", "15%"),
    "more_c": ("c + 1", "90%"), "graded_agreement": ("agreement with c as a carry", "90%"),
    "graded_form": ("sides with the number, not the carry", "10%"), "graded_range": ("c + 1, where c is 1", "10%"),
}  # fmt: skip
CLAUSES = {
    "place value": ("slopes",),
    "subtraction and threshold": ("agreement", "equal_c", "more_c"),
    "no carry of other positions": ("swap_own", "swap_earlier"),
    "table": ("vectors",),
}


def sentence() -> pd.DataFrame:
    """The score of every network of ``results/one-sentence.csv``."""
    return score(pd.read_csv(RESULTS / "one-sentence.csv"))


def fresh(scores: pd.DataFrame, model: str) -> pd.DataFrame:
    return scores[(scores["network"] == model) & scores["seed"].isin(FRESH)]


def counted(scores: pd.DataFrame, model: str) -> pd.DataFrame:
    """The networks of the preregistered count."""
    networks = fresh(scores, model)
    return networks[networks["accuracy"] >= COUNTS]


def missed(networks: pd.DataFrame, criterion: str) -> pd.Series:
    return networks["missed"].str.split().apply(lambda names: criterion in names)


def verdict(networks: pd.DataFrame, model: str) -> str:
    """The rule of ``results/preregistration.md``: confirmed, partly confirmed, refuted or undecided."""
    if len(networks) < 8:
        return "undecided"
    if (networks["missed"] == "").mean() >= 0.8:
        return "confirmed"
    criteria = TRANSFORMER if model == "transformer" else GRADED
    refuted = {one for one in criteria if missed(networks, one).mean() >= 0.5}
    clauses = [name for name, several in CLAUSES.items() if refuted & {*several}] if model == "transformer" else refuted
    return f"not confirmed, and refuted in: {', '.join(sorted(clauses))}" if refuted else "partly confirmed"


def one_sentence() -> Facts:
    rows, scores = pd.read_csv(RESULTS / "one-sentence.csv"), sentence()
    found = {f"running_sum_{seen}": span(running_sums()[:, :, seen]) for seen in ("untrained", "inputs")}
    found |= zoo()
    for model, name in (("transformer", "Transformers"), ("nanogpt", "nanoGPTs")):
        networks = counted(scores, model)
        whole = (networks["missed"] == "").sum()
        found[f"os_n_{model}"] = str(len(fresh(scores, model)))
        found[f"os_counted_{model}"] = str(len(networks))
        found[f"os_found_{model}"] = (
            f"{whole} of {len(networks)} {name} meet every criterion: {verdict(networks, model)}"
        )
        of_model = rows[(rows["network"] == model) & rows["seed"].isin(networks["seed"]) & rows["bit"].isin(COUNTED)]
        for key, measure in (
            ("own", "swap_own"), ("earlier", "swap_earlier"), ("form", "form"),
        ):  # fmt: skip
            chosen = of_model[of_model["measure"] == measure]
            last = chosen["layer"].isna() | (chosen["layer"] == chosen["layer"].max())
            found[f"os_{key}_{model}"] = span(
                chosen[last].groupby("seed")["value"].mean(), ".0%" if key == "form" else ".1%"
            )
        if model == "transformer":
            slopes = with_errors(of_model).query("measure == 'slope_error'")
            for name in ("operands", "prefix"):
                of_name = slopes[(slopes["expected"] > 0) == (name == "operands")]
                found[f"os_slope_{name}"] = span(of_name.groupby("seed")["value"].max())
            raw = of_model.groupby(["measure", "seed"])["value"].agg(lambda x: x.abs().sum())
            found["os_prefix_weight"] = span(raw["slope_prefix"] / raw["slope_operands"])
            met = {one: len(networks) - missed(networks, one).sum() for one in TRANSFORMER}
            found |= {f"os_met_{one}": f"{count} of {len(networks)}" for one, count in met.items()}
            found["os_number_form"] = f"{(networks['graded_form'] >= 0.5).sum()} of {len(networks)}"
            higher = slopes[slopes["bit"] > 2].groupby("seed")["value"].max()
            found["os_slope_higher"] = f"{(higher <= TRANSFORMER['slopes'][3]).sum()} of {len(higher)}"
            control = with_errors(rows[(rows["network"] == "local_remainder") & rows["bit"].isin(COUNTED)])
            control = control.query("measure == 'slope_error'").groupby("bit")["value"].max()
            found |= {"os_slope_control": f"{control.max():.2f}", "os_slope_control_bit": f"{control.idxmax():.0f}"}
            found["os_slope_control_higher"] = f"{control[control.index > 2].max():.2f}"
        rule = "local_remainder" if model == "transformer" else "graded_carry"
        found[f"os_threshold_{model}"] = span(of_model.loc[of_model["measure"] == f"threshold_{rule}", "value"])
    return found


def running_sums() -> pd.Series:
    """R² of the best layer by network, seed, what the regression sees, and bit."""
    return pd.read_csv(RESULTS / "running-sum.csv").groupby(["network", "seed", "seen", "bit"])["r2"].max()


def zoo() -> Facts:
    """Networks trained to compute by known variables, and the same recipe without."""
    table = pd.read_csv(RESULTS / "zoo.csv", keep_default_na=False, na_values=[""])
    found = {}
    for (network, name), by in table.groupby(["network", "trained_by"]):
        key, right = f"zoo_{network}_{name.replace('+', '_')}", by[by["accuracy"] == 1]
        found[f"{key}_accepted"] = f"{(right['least_interchange'] >= ACCEPTED).sum()} of {len(by)}"
        found |= {f"{key}_{column}": span(right[column], ".0%") for column in ("swap_own", "graded_agreement")}
        if network == "transformer":
            found[f"{key}_vectors"] = span(by["vectors"], ".0%")
    others = table[(table["network"] == "transformer") & (table["trained_by"] == "sum") & (table["accuracy"] < 1)]
    return found | {"zoo_transformer_sum_others": span(others["accuracy"], ".1%")}


def sentence_tables() -> Facts:
    """The tables of the page: each kind of network, each criterion, heads, and multiplication."""
    scores = sentence()
    shown = {"authors": "the authors' weights", "transformer": "fresh Transformers",
             "nanogpt": "fresh nanoGPTs"}  # fmt: skip
    columns = ["slopes", "agreement", "swap_own", "swap_earlier", "vectors", "equal_c", "more_c"]
    lines = ["| network | n | " + " | ".join(CRITERIA[name][0] for name in columns) + " | meets all |",
             "| --- | --- |" + " --- |" * (len(columns) + 1)]  # fmt: skip
    for network in dict.fromkeys(scores["network"]):
        trained = network in ("transformer", "nanogpt")
        of_network = counted(scores, network) if trained else scores[scores["network"] == network]
        if network == "nanogpt":
            of_network = of_network.assign(agreement=of_network["graded_agreement"])
        cells = []
        for name in columns:
            form = ".2f" if name == "slopes" else ".1%" if name.startswith("swap") else ".0%"
            cells.append(span(of_network[name], form) if of_network[name].notna().any() else "")
        met = (of_network["missed"] == "").sum()
        label = shown.get(network, f"control, `{network}`")
        lines.append(f"| {label} | {len(of_network)} | " + " | ".join(cells) + f" | {met} |")
    table = "\n".join(lines)
    lines = ["| criterion | bound | Transformers | nanoGPTs |", "| --- | --- | --- | --- |"]
    for name in dict.fromkeys([*TRANSFORMER, *GRADED]):
        label, bound = CRITERIA[name]
        direction = (TRANSFORMER | GRADED)[name][2]
        cells = []
        for model, criteria in (("transformer", TRANSFORMER), ("nanogpt", GRADED)):
            networks = counted(scores, model)
            if name not in criteria:
                cells.append("")
                continue
            met = len(networks) - missed(networks, name).sum()
            interval = binomtest(int(met), len(networks)).proportion_ci(0.95)
            cells.append(f"{met} of {len(networks)} [{interval.low:.0%}, {interval.high:.0%}]")
        lines.append(f"| {label} | {direction} {bound} | " + " | ".join(cells) + " |")
    return {"one_sentence": table, "criteria": "\n".join(lines)} | more_tables()


def relative_effects(rows: pd.DataFrame) -> pd.DataFrame:
    """Effects on a bit t of the answer, (heads, places), over the whole effect of operand bit t - 1."""
    unit = rows.loc[rows["place"] == rows["bit"] - 1].groupby("seed")["whole"].first()
    relative = rows.assign(effect=rows["effect"] / rows["seed"].map(unit))
    return relative.groupby(["site", "head", "place"], sort=False)["effect"].mean().unstack("place")


def more_tables() -> Facts:
    """The strongest heads for bit 6, and the tests on multiplication."""
    rows = pd.read_csv(RESULTS / "path-patching.csv").query("bit == 6")
    lines = ["| network | head | " + " | ".join(f"bit {i}" for i in range(6)) + " |", "| --- | --- |" + " --- |" * 6]
    for network, of_network in rows.groupby("network", sort=False):
        wide = relative_effects(of_network)
        unit = of_network.loc[of_network["place"] == 5, "whole"].iloc[0]
        whole = of_network.groupby("place")["whole"].first() / unit
        named = {
            f"layer {site.split('.')[1]}, {'cross' if 'cross' in site else 'self'}, head {head}": effects
            for (site, head), effects in wide.loc[wide.abs().max(axis=1).nlargest(2).index].iterrows()
        }
        for name, effects in (named | {"all 96 heads, added up": wide.sum(), "the whole network": whole}).items():
            lines.append(f"| {network} | {name} | " + " | ".join(f"{x:.2f}" for x in effects) + " |")
    assert len(wide) == 96
    found = {"heads": "\n".join(lines)}
    rows = pd.read_csv(RESULTS / "multiplication.csv")
    sums = running_sums()
    lines = ["| network | agreement, by bit | threshold, by bit | own | earlier | vectors | running sum |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for (network, seed), of_network in rows.groupby(["network", "seed"], sort=False):
        last = of_network["layer"].isna() | (of_network["layer"] == of_network["layer"].max())
        by_name = of_network[last].groupby("measure")["value"]
        cells = [span(by_name.get_group("agreement_local_remainder"), ".0%"),
                 span(by_name.get_group("threshold_local_remainder")),
                 span(by_name.get_group("swap_own"), ".0%"), span(by_name.get_group("swap_earlier"), ".0%"),
                 span(by_name.get_group("vectors"), ".0%") if "vectors" in by_name.groups else "",
                 span(sums[network, seed, "trained"])]  # fmt: skip
        name = {"transformer": "Transformer", "nanogpt": "nanoGPT"}[network]
        lines.append(f"| {name}, seed {seed} | " + " | ".join(cells) + " |")
    return found | {"multiplication": "\n".join(lines)}
