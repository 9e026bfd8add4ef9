"""Tables of ``found/mechanism.md`` and its appendix, for `paper.tables`.

    python -m paper.mechanism_tables authors=FOLDER transformer=FOLDER nanogpt=FOLDER

puts profiles into ``response-profiles.csv``: a folder is what ``probe=mechanism`` wrote, and its seeds replace those of
the same network. ``older-profiles.csv`` beside it has patches, doses and subspaces of older profiles.
"""

import sys
from itertools import product
from pathlib import Path

import pandas as pd

from arith_erd.bundled import RESULTS
from paper.formats import MODELS, format_range, grid, markdown
from paper.studies.certificates import replace_rows

PROFILES = RESULTS / "response-profiles.csv"
COLUMNS = ["network", "seed", "test", "component", "control", "dose", "site", "position", "value"]
# Response profiles

NETWORKS = {"authors": "the authors' weights", "transformer": "our Transformers", "nanogpt": "our nanoGPTs"}
LATER = {  # measured after the two post-hoc algorithms had been written
    "later_transformer": "trained without VS_v, Transformer",
    "later_nanogpt": "trained without VS_v, nanoGPTs",
    "later_five_bits": "nanoGPTs of five bits",
}
POST_HOC = {name: f"control, `{name}`" for name in ("local_remainder", "graded_carry")}
COMPONENTS = {
    "mean_ablation": "mean ablation of the last answer token: answers that change",
    "carry": "carry inverted: answers that follow, minus those that follow a random direction",
    "value": "sum shifted: bits that flip where the new sum says so, minus those that flip where it does not",
}
ATTENTIONS = {
    f"dec.{n}.{site}": f"{n}, {kind}"
    for n in range(1, 7)
    for site, kind in (("resid_mid", "self"), ("resid_mid_cross", "cross"))
}
PROMPT_TESTS = {
    ("position_wise_resampling", ""): "all positions, each from another run with the same token there",
    ("resample_ablation", ""): "one position, from another run with the same token there",
    ("interchange", "token"): "one position, from a run with the other token there: bit i of the answer",
}
SUBSPACES = {
    ("", "all"): "the sum, at all positions",
    ("random_max flipped_max untrained decoy", "all"): "its best control",
    ("full_patch", "all"): "all dimensions patched",
    ("", "4"): "bit 4 of the sum, at its position",
    ("decoy", "4"): "the same in a network that computes by carries",
}
NANOGPT_SITES = {
    ("position_wise_resampling", "", "dec.1"): "all prompt positions, from another run with the same token, layer 1",
    ("position_wise_resampling", "", "dec.2"): "the same, layer 2",
    ("position_wise_resampling", "", "dec.3 dec.4 dec.5"): "the same, later layers",
    ("interchange", "carry", "dec.1.resid_mid"): "one answer position, only the carry differs, attention of layer 1",
    ("interchange", "xor", "dec.1.resid_mid"): "one answer position, only the xor differs, attention of layer 1",
    ("interchange", "carry", "dec.3.resid_mid"): "one answer position, only the carry differs, attention of layer 3",
    ("interchange", "xor", "dec.3.resid_mid"): "one answer position, only the xor differs, attention of layer 3",
}
IN_TRAINING = {
    "carry_held": "patching an answer position changes the answer",
    "carry_followed": "steering the carry changes at least one of the two tested bits",
    "carry_followed_all": "steering the carry changes both bits",
}
MIN_CHANGED_SHARE = 0.5  # smallest share of patched answers that change, that counts as an effect


def read_tables(*paths: Path) -> pd.DataFrame:
    """The tables together, with "" where a column does not apply to a row."""
    read = [pd.read_csv(path, dtype=dict.fromkeys(COLUMNS[2:-1], str), keep_default_na=False) for path in paths]
    return pd.concat([one.reindex(columns=COLUMNS, fill_value="") for one in read], ignore_index=True)


def read_profiles() -> pd.DataFrame:
    """All rows of profiles in ``results/``, older ones included."""
    return read_tables(PROFILES, RESULTS / "older-profiles.csv")


def select(rows: pd.DataFrame, **wanted: str) -> pd.Series:
    """Values by seed of the rows with these entries; component, control and dose are empty unless they are given."""
    for column, value in ({"component": "", "control": "", "dose": ""} | wanted).items():
        rows = rows[rows[column].isin(value.split() or [""])]
    return rows.set_index("seed")["value"]


def profile_tables(rows: pd.DataFrame) -> dict[str, str]:
    by_run = rows[(rows["test"] == "interchange") & rows["network"].isin(["authors", "transformer"])]
    runs = {run: NETWORKS[run[0]] for run in [*by_run.groupby(["network", "seed"]).groups]}
    runs = {run: f"our Transformer, seed {run[1]}" if run[0] == "transformer" else name for run, name in runs.items()}
    whose = {"authors": "authors", "transformer": "ours", "erd": "`erd`"}
    variables = {(one, what): f"{whose[one]}, {what}" for one, what in product(whose, ("carry", "xor", "neither"))}
    prompt_columns = {**NETWORKS, "lookahead_carry": "control, `lookahead_carry`"}
    del prompt_columns["nanogpt"]
    doses = {
        (method, delta): f"{label}, by {delta}"
        for method, label in (("slope", "along the sum's direction"), ("centroids", "between mean activations"))
        for delta in ("1", "8", "64")
    }
    small = pd.read_csv(RESULTS / "mechanism-training.csv").query("reaches_95 == reaches_95")

    def of_bits(network: str, component: str) -> str:
        chosen = select(rows, network=network, test="signature", component=component, position="2 3 4 5 6")
        return format_range(chosen, ".0%")

    def best(network: str, form: str, **wanted: str) -> str:
        return format_range(select(rows, network=network, **wanted).groupby("seed").max(), form)

    def mean(network: str, what: str, site: str) -> str:
        chosen = select(rows, network=network, test="interchange", component=what, site=site)
        return format_range(chosen.groupby("seed").mean(), ".0%")

    def patched(test: str, component: str, sites: str) -> str:
        chosen = select(rows, network="nanogpt", test=test, component=component, site=sites)
        return format_range(chosen.groupby("seed").mean() if component else chosen, ".0%")

    def distance(network: str, algorithm: str) -> str:
        if algorithm:
            return format_range(select(rows, network=network, test="distance", component=algorithm))
        return format_range(rows[(rows["test"] == "verdict") & (rows["network"] == network)]["value"])

    def first_site(run: tuple[str, int], bit: int) -> str:
        """The first attention after which the bit changes with the carry; empty for none."""
        of_run = by_run[(by_run["network"] == run[0]) & (by_run["seed"] == run[1]) & (by_run["position"] == str(bit))]
        shares = of_run.set_index(["component", "site"])["value"]
        held = {site: shares.get(("carry", site), 0.0) - shares.get(("neither", site), 0.0) for site in ATTENTIONS}
        return next((ATTENTIONS[site] for site, share in held.items() if share >= MIN_CHANGED_SHARE), "")

    return {
        "signature": grid("bits 2 to 6", COMPONENTS, NETWORKS | POST_HOC, lambda what, one: of_bits(one, what)),
        "distances": grid(
            "distance of the profile",
            NETWORKS | LATER,
            {"": "to the nearest candidate", **{name: f"to `{name}`" for name in POST_HOC}},
            distance,
        ),
        "prompt": grid(
            "what the decoder reads in place of the encoder's output",
            PROMPT_TESTS,
            prompt_columns,
            lambda what, one: best(one, ".1%", test=what[0], component=what[1]),
        ),
        "layers": grid(
            "after cross-attention of layer",
            {n: str(n) for n in range(1, 7)},
            variables,
            lambda n, what: mean(what[0], what[1], f"dec.{n}.resid_mid_cross"),
        ),
        "sites": grid("the carry reaches the position of", runs, {t: f"bit {t}" for t in range(1, 8)}, first_site),
        "doses": grid(
            "answers that become the new sum, best layer",
            doses,
            NETWORKS,
            lambda what, one: best(one, ".0%", test="dose_response", component=what[0], dose=what[1]),
        ),
        "subspaces": grid(
            "interchange accuracy",
            SUBSPACES,
            {name: NETWORKS[name] for name in ("authors", "transformer")},
            lambda what, one: best(one, ".2f", test="subspace", component="sum", control=what[0], position=what[1]),
        ),
        "nanogpt": grid("what is patched", NANOGPT_SITES, {0: "answers that change"}, lambda what, _: patched(*what)),
        "training": grid(
            "before 95% is reached",
            IN_TRAINING,
            {0: "networks"},
            lambda what, _: f"{(small[what] < small['reaches_95']).sum()} of {len(small)}",
        ),
    }


def head_table() -> str:
    """The two strongest heads for bit 6 of each network, beside all of them; over the whole effect of bit 5."""
    lines = [["network", "head", *(f"bit {i}" for i in range(6))]]
    rows = pd.read_csv(RESULTS / "path-patching.csv").query("bit == 6")
    for network, of_network in rows.groupby("network", sort=False):
        whole = of_network.groupby("place")["whole"].first()
        wide = of_network.groupby(["site", "head", "place"], sort=False)["effect"].mean().unstack("place") / whole[5]
        named = {
            f"layer {site.split('.')[1]}, {'cross' if 'cross' in site else 'self'}, head {head}": effects
            for (site, head), effects in wide.loc[wide.abs().max(axis=1).nlargest(2).index].iterrows()
        }
        named |= {f"all {len(wide)} heads, added up": wide.sum(), "the whole network": whole / whole[5]}
        lines += [[network, name, *(f"{x:z.2f}" for x in effects)] for name, effects in named.items()]
    return markdown(*lines)


def multiplication_table() -> str:
    """The same tests on networks that multiply."""
    measures = {"agreement_local_remainder": ".0%", "threshold_local_remainder": ".2f"}
    measures |= dict.fromkeys(("swap_own", "swap_earlier", "vectors"), ".0%")
    heads = ["network", "agreement, by bit", "threshold, by bit", "swap own", "swap earlier", "encoder table"]
    seen = {"trained": "running sum", "untrained": "before training", "inputs": "on the tokens"}
    sums = pd.read_csv(RESULTS / "running-sum.csv").groupby(["network", "seed", "seen", "bit"])["r2"].max()
    lines = [[*heads, *seen.values()]]
    for (network, seed), rows in pd.read_csv(RESULTS / "multiplication.csv").groupby(["network", "seed"], sort=False):
        last = rows[rows["layer"].isna() | (rows["layer"] == rows["layer"].max())]
        cells = [format_range(last.loc[last["measure"] == name, "value"], form) for name, form in measures.items()]
        read = [format_range(sums.get((network, seed, what), [])) for what in seen]
        lines.append([f"{MODELS[network]}, seed {seed}", *cells, *read])
    return markdown(*lines)


def tables() -> dict[str, str]:
    return profile_tables(read_profiles()) | {"heads": head_table(), "multiplication": multiplication_table()}


def main() -> None:
    for argument in sys.argv[1:]:
        name, _, folder = argument.partition("=")
        new = read_tables(Path(folder) / "rows.csv").assign(network=name)
        replace_rows(PROFILES, new.drop(columns=["control", "dose"]))


if __name__ == "__main__":
    main()
