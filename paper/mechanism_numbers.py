"""Numbers and tables of ``paper/found/mechanism.md``, its appendix and the article, for `page_numbers`.

    python -m paper.mechanism_numbers authors=FOLDER transformer=FOLDER nanogpt=FOLDER

puts cards into ``paper/results/mechanism-cards.csv``: a folder is what ``probe=mechanism`` wrote, and its seeds replace
those of the same network. ``card-evidence.csv`` beside it has patches, doses and subspaces of older cards.
"""

import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pandas as pd
from scipy.stats import binomtest

from paper.studies.one_sentence import (
    COUNTED_BITS,
    GRADED,
    MIN_ACCURACY,
    TRANSFORMER,
    add_slope_errors,
    score_networks,
)

Facts = dict[str, str]
RESULTS = Path(__file__).parent / "results"
CARDS = RESULTS / "mechanism-cards.csv"
COLUMNS = ["network", "seed", "test", "component", "control", "dose", "site", "position", "value"]


def format_range(values: Iterable[float], form: str = ".2f", template: str = "{} to {}") -> str:
    """``0.90 to 0.93``, or one number if both ends read alike; empty without a value."""
    found = [*values]
    if not found:
        return ""
    low, high = (format(float(end), f"z{form}") for end in (min(found), max(found)))  # z: no -0.00
    return low if low == high else template.format(low, high)


def markdown(*lines: Iterable[object]) -> str:
    """A table, its heading first."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([head, f"|{' --- |' * (head.count(' | ') + 1)}", *body])


# Cards of probe=mechanism

NETWORK_NAMES = {"authors": "the authors' weights", "transformer": "our Transformers", "nanogpt": "our nanoGPTs"}
# Measured after the two post-hoc algorithms had been written; only what `range` and distances need is kept.
LATER_NETWORKS = {
    "later_transformer": "trained without VS_v, Transformer",
    "later_nanogpt": "trained without VS_v, nanoGPTs",
    "later_five_bits": "nanoGPTs of five bits",
}
CONTROLS = {
    name: f"control, `{name}`" for name in ("local_remainder", "graded_carry", "remainder", "prefix_carry", "erd")
}
BITS = range(2, 8)
COMPONENT_LABELS = {
    "remainder": "after random prefixes: answers that `remainder` predicts",
    "prefix_carry": "after random prefixes: answers that `prefix_carry` predicts",
    "erd": "after random prefixes: answers that `erd` predicts, which ignores the prefix",
    "local_remainder": "after random prefixes: answers that `local_remainder` predicts (found afterwards)",
    "graded_carry": "after random prefixes: answers that `graded_carry` predicts (found afterwards)",
    "remainder_over_prefix_carry": "random prefixes where `remainder` and `prefix_carry` differ: `remainder` is right",
    "mean_ablation": "mean ablation of the last answer token: answers that change",
    "carry": "carry inverted: answers that follow, minus those that follow a random direction",
    "value": "sum shifted: bits that flip where the new sum says so, minus those that flip where it does not",
}
RULE_PAIRS = {
    "`local_remainder` against `graded_carry`": "local_remainder_over_graded_carry",
    "`local_remainder` against `remainder`": "local_remainder_over_remainder",
    "`graded_carry` against `prefix_carry`": "graded_carry_over_prefix_carry",
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
MIN_CHANGED_SHARE = 0.5  # smallest share of patched answers that change, that counts as an effect


def read_tables(*paths: Path) -> pd.DataFrame:
    """The tables together, with "" where a column does not apply to a row."""
    read = [pd.read_csv(path, dtype=dict.fromkeys(COLUMNS[2:-1], str), keep_default_na=False) for path in paths]
    return pd.concat([one.reindex(columns=COLUMNS, fill_value="") for one in read], ignore_index=True)


def read_cards() -> pd.DataFrame:
    """All rows of cards in ``paper/results/``, those of older cards included."""
    return read_tables(CARDS, RESULTS / "card-evidence.csv")


def select_values(
    rows: pd.DataFrame, network: str, test: str, component: str = "", control: str = "", dose: str = "",
    site: str | None = None, position: str | None = None,
) -> pd.Series:  # fmt: skip
    """Values by seed; of all sites or positions where None is given."""
    wanted = {"network": network, "test": test, "component": component, "control": control, "dose": dose}
    for column, value in (wanted | {"site": site, "position": position}).items():
        if value is not None:
            rows = rows[rows[column] == value]
    return rows.set_index("seed")["value"]


def select_bits(rows: pd.DataFrame, network: str, component: str, bits: Iterable[int] = BITS) -> list[float]:
    """A component of the signature, at some bits, of all seeds."""
    return [x for t in bits for x in select_values(rows, network, "signature", component, position=str(t))]


def card_facts(rows: pd.DataFrame) -> Facts:
    """Wrong prefixes, distances to algorithms, doses, and which positions carry what."""
    verdicts = rows[(rows["test"] == "verdict") & rows["network"].isin(NETWORK_NAMES)]
    ours = verdicts[verdicts["network"] != "authors"]
    undecided = ours[ours["component"] == "undecided"]
    assert set(undecided["network"]) == {"nanogpt"}
    assert set(verdicts["component"]) == {"none", "undecided"}
    flips = [x for part in ("propagate", "settled") for x in select_bits(rows, "authors", f"flip_{part}", range(1, 8))]
    found = {
        "prefix_changes": format_range([1 - x for x in select_bits(rows, "authors", "erd_of_all")], ".0%"),
        "remainder_agreement": format_range(select_bits(rows, "authors", "remainder_of_all"), ".0%"),
        "inverted_token": format_range(flips, ".0%"),
        "ablation_prefix_carry": format_range(select_bits(rows, "prefix_carry", "mean_ablation", range(1, 8)), ".0%"),
        "verdict_undecided_seeds": ", ".join(map(str, undecided["seed"])),
        "prefix_carry_nanogpt": format_range(select_bits(rows, "nanogpt", "prefix_carry"), ".0%"),
        "graded_near": str((select_values(rows, "nanogpt", "distance", "graded_carry") <= 1).sum()),
    }
    for name in NETWORK_NAMES:
        found[f"ablation_{name}"] = f"{max(select_bits(rows, name, 'mean_ablation', range(1, 8))):.1%}"
        found[f"nearest_{name}"] = format_range(verdicts.loc[verdicts["network"] == name, "value"])
        for method in ("slope", "centroids"):  # the share of answers that follow a shifted sum, in the best layer
            for delta in (1, 8, 64):
                shares = select_values(rows, name, "dose_response", method, "", str(delta)).groupby("seed").max()
                found[f"{method}_{delta}_{name}"] = format_range(shares, ".0%")
    small = select_values(rows, "later_five_bits", "accuracy") == 1
    found["small_right"] = str(small.sum())
    for algorithm in ("local_remainder", "graded_carry"):
        for name in NETWORK_NAMES | LATER_NETWORKS:
            found[f"{algorithm}_{name}"] = format_range(select_values(rows, name, "distance", algorithm))
        found[f"small_near_{algorithm}"] = str(
            (select_values(rows, "later_five_bits", "distance", algorithm)[small] <= 1).sum()
        )
    return found | patching_facts(rows) | subspace_facts(rows)


def patching_facts(rows: pd.DataFrame) -> Facts:
    def means(what: str, layer: int) -> pd.Series:
        return select_values(rows, "nanogpt", "interchange", what, site=f"dec.{layer}.resid_mid").groupby("seed").mean()

    def resampled(*layers: int) -> list[float]:
        return [x for n in layers for x in select_values(rows, "nanogpt", "position_wise_resampling", site=f"dec.{n}")]

    changed = select_values(rows, "transformer", "position_wise_resampling").groupby("seed").max() * 512
    few = changed[changed > 0]
    return {
        "encoder_changed": format_range(few, ".0f"),
        "encoder_changed_seed": ", ".join(map(str, few.index)),
        "none_of_512": f"{binomtest(0, 512).proportion_ci(0.95).high:.2%}",
        "nanogpt_prompt_1": format_range(resampled(1), ".0%"),
        "nanogpt_prompt_2": format_range(resampled(2), ".0%"),
        "nanogpt_prompt_later": f"{max(resampled(3, 4, 5)):.0%}",
        "nanogpt_carry_1": format_range(means("carry", 1), ".0%"),
        "nanogpt_xor_1": format_range(means("xor", 1), ".0%"),
        "nanogpt_both_3": format_range([*means("carry", 3), *means("xor", 3)], ".0%"),
        "nanogpt_neither": f"{select_values(rows, 'nanogpt', 'interchange', 'neither').max():.0%}",
    }


def subspace_facts(rows: pd.DataFrame) -> Facts:
    """Learned subspaces beside their best control, and the sum's directions of one position at another one."""
    found: Facts = {}
    for name in ("authors", "transformer"):
        whole, *others = (
            select_values(rows, name, "subspace", "sum", control, position="all")
            for control in ("", "random_max", "flipped_max", "untrained", "decoy")
        )
        found |= {
            f"subspace_{name}": format_range(whole),
            f"subspace_control_{name}": format_range(pd.concat(others, axis=1).max(axis=1)),
            f"subspace_full_{name}": format_range(
                select_values(rows, name, "subspace", "sum", "full_patch", position="all")
            ),
            f"subspace_bit_{name}": format_range(select_values(rows, name, "subspace", "sum", position="4")),
        }
    written = pd.read_csv(RESULTS / "mechanism-subspaces.csv").query("variable == 'sum' and position == 'all'")
    iia, moved = written.set_index("network")["iia"], pd.read_csv(RESULTS / "mechanism-values.csv")
    trained = moved[moved["network"].isin(NETWORK_NAMES)]
    stored = moved.query("network == 'erd' and site == 'dec.3' and test == 'transfer'")
    within = trained.query("method == 'das' and what in ('1', '8')")
    return found | {
        "subspace_bit_decoy": format_range(
            select_values(rows, "transformer", "subspace", "sum", "decoy", position="4")
        ),
        "subspace_erd": f"{iia['erd']:.2f}",
        "subspace_erd_decoy": f"{iia['erd_decoy']:.2f}",
        "subspace_others": f"{iia.drop(['erd', 'erd_decoy']).max():.2f}",
        "transfer": format_range(trained.query("method in ('slope', 'das') and what == 'elsewhere'")["value"]),
        "transfer_same": format_range(trained.query("method == 'das' and what == 'same'")["value"]),
        "transfer_erd": format_range(stored.query("method == 'das' and what == 'elsewhere'")["value"]),
        "shift_in_subspace": f"{within['value'].max():.2f}",
    }


def card_tables(rows: pd.DataFrame) -> Facts:
    """The tables of the appendix."""
    signature = rows[rows["test"] == "signature"]
    found = {"signature": responses(signature)}

    in_range = [["network", *RULE_PAIRS]]
    for network, label in (NETWORK_NAMES | LATER_NETWORKS | CONTROLS).items():
        in_range.append(
            [label, *(format_range(select_bits(rows, network, pair, BITS[:-1]), ".0%") for pair in RULE_PAIRS.values())]
        )

    head = "what the decoder reads in place of the encoder's output"
    at_prompt = [[head, NETWORK_NAMES["authors"], NETWORK_NAMES["transformer"], "control, `lookahead_carry`"]]
    for what, label in PROMPT_TESTS.items():
        ends = (
            select_values(rows, name, *what).groupby("seed").max()
            for name in ("authors", "transformer", "lookahead_carry")
        )
        at_prompt.append([label, *(format_range(end, ".1%") for end in ends)])

    layers = [["after cross-attention of layer", *(f"{whose}, {what}" for whose in ("authors", "ours", "`erd`")
               for what in ("carry", "xor", "neither"))]]  # fmt: skip
    for n in range(1, 7):
        means = [
            select_values(rows, network, "interchange", what, site=f"dec.{n}.resid_mid_cross").groupby("seed").mean()
            for network in ("authors", "transformer", "erd")
            for what in ("carry", "xor", "neither")
        ]
        layers.append([str(n), *(format_range(mean, ".0%") for mean in means)])

    sites = [["the carry reaches the position of", *(f"bit {t}" for t in range(1, 8))]]
    patched = rows[(rows["test"] == "interchange") & rows["network"].isin(["authors", "transformer"])]
    for (network, seed), of_network in patched.groupby(["network", "seed"]):
        label = NETWORK_NAMES["authors"] if network == "authors" else f"our Transformer, seed {seed}"
        sites.append([label, *(first_site(of_network, t) for t in range(1, 8))])
    parts = {"range": in_range, "prompt": at_prompt, "layers": layers, "sites": sites}
    return found | {name: markdown(*lines) for name, lines in parts.items()}


def responses(signature: pd.DataFrame) -> str:
    """The signature of trained networks and of the post-hoc algorithms: the range over bits 2 to 6 and seeds."""
    shown = NETWORK_NAMES | {name: CONTROLS[name] for name in ("local_remainder", "graded_carry")}
    lines = [["bits 2 to 6", *shown.values()]]
    for component, label in COMPONENT_LABELS.items():
        lines.append(
            [label, *(format_range(select_bits(signature, name, component, BITS[:-1]), ".0%") for name in shown)]
        )
    return markdown(*lines)


def first_site(patched: pd.DataFrame, bit: int) -> str:
    """The first attention after which a bit of a network changes with the carry; empty for none."""
    shares = patched[patched["position"] == str(bit)].set_index(["component", "site"])["value"]
    held = {site: shares.get(("carry", site), 0.0) - shares.get(("neither", site), 0.0) for site in ATTENTIONS}
    return next((ATTENTIONS[site] for site, share in held.items() if share >= MIN_CHANGED_SHARE), "")


def study_facts() -> Facts:
    """Small networks over training, networks of known algorithms, and sums that can be read off a multiplication."""
    table, epochs = (pd.read_csv(RESULTS / f"mechanism-training{name}.csv") for name in ("", "-epochs"))
    assert set(epochs["verdict"]) == {"none"}
    assert (epochs["sum_followed"].dropna() == 0).all()
    learned = table[table["reaches_95"].notna()]
    known = pd.read_csv(RESULTS / "mechanism-calibration-fresh.csv")
    return {
        "small_networks": str(len(table)),
        "small_learned": str(len(learned)),
        "small_epochs": format_range(learned["reaches_95"], ".0f"),
        "small_followed": str((learned["carry_followed"] < learned["reaches_95"]).sum()),
        "small_followed_all": str((learned["carry_followed_all"] < learned["reaches_95"]).sum()),
        "small_held": str((learned["carry_held"] < learned["reaches_95"]).sum()),
        "verdicts": str(len(known)),
        "verdicts_right": str((known["verdict"] == known["expected"]).sum()),
        "running_sum_untrained": format_range(running_sums()[:, :, "untrained"]),
        "running_sum_inputs": format_range(running_sums()[:, :, "inputs"]),
    }


# The count of one_sentence.py

FRESH_SEEDS = range(5, 15)
MIN_INTERCHANGE = 0.99  # of interchanges between held-out pairs that a network of known variables has to follow
CRITERIA = {
    "swap_own": ("swap own", "99%"), "swap_earlier": ("swap earlier", "1%"), "vectors": ("encoder table", "99%"),
    "agreement": ("agreement", "90%"), "equal_c": ("same c", "15%"), "more_c": ("c + 1", "90%"),
    "slopes": ("slope error", "0.20"), "graded_agreement": ("agreement with the rival", "90%"),
    "graded_form": ("answers as the rule", "10%"), "graded_range": ("c + 1, where bit t is 1", "10%"),
}  # fmt: skip
TABLE_CRITERIA = ("swap_own", "swap_earlier", "vectors", "agreement", "equal_c", "more_c", "slopes")
CLAUSES = {
    "no carry of other positions": {"swap_own", "swap_earlier"},
    "table": {"vectors"},
    "subtraction and threshold": {"agreement", "equal_c", "more_c"},
    "place value": {"slopes"},
}
MODELS = {"transformer": "Transformer", "nanogpt": "nanoGPT"}
PREDICTED_CRITERIA = {"transformer": TRANSFORMER, "nanogpt": GRADED}


def fresh_networks(scores: pd.DataFrame, model: str) -> pd.DataFrame:
    return scores[(scores["network"] == model) & scores["seed"].isin(FRESH_SEEDS)]


def counted_networks(scores: pd.DataFrame, model: str) -> pd.DataFrame:
    """The networks of the preregistered count."""
    networks = fresh_networks(scores, model)
    return networks[networks["accuracy"] >= MIN_ACCURACY]


def misses_criterion(networks: pd.DataFrame, criterion: str) -> pd.Series:
    return networks["missed"].str.split().apply(lambda names: criterion in names)


def hypothesis_verdict(networks: pd.DataFrame, model: str) -> str:
    """What the rules of ``paper/results/preregistration.md`` say about the hypothesis."""
    if len(networks) < 8:
        return "undecided"
    if (networks["missed"] == "").mean() >= 0.8:
        return "confirmed"
    refuted = {one for one in PREDICTED_CRITERIA[model] if misses_criterion(networks, one).mean() >= 0.5}
    if model == "transformer":
        refuted = {name for name, several in CLAUSES.items() if refuted & several}
    clauses = " and on ".join(sorted(refuted))
    return f"not confirmed, and its clause on {clauses} is refuted" if refuted else "partly confirmed"


def last_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last layer, and those that belong to none."""
    return rows[rows["layer"].isna() | (rows["layer"] == rows["layer"].max())]


def sentence_facts() -> Facts:
    """What the fresh networks of each model do, and by how much they miss a bound."""
    rows = pd.read_csv(RESULTS / "one-sentence.csv")
    scores = score_networks(rows)
    found: Facts = {}
    for model, rule in (("transformer", "local_remainder"), ("nanogpt", "graded_carry")):
        networks = counted_networks(scores, model)
        n, whole = len(networks), (networks["missed"] == "").sum()
        of_model = rows[
            (rows["network"] == model) & rows["seed"].isin(networks["seed"]) & rows["bit"].isin(COUNTED_BITS)
        ]
        means = {
            measure: last_layer(part).groupby("seed")["value"].mean() for measure, part in of_model.groupby("measure")
        }
        found |= {
            f"os_n_{model}": str(len(fresh_networks(scores, model))),
            f"os_counted_{model}": str(n),
            f"os_whole_{model}": f"{whole} of {n}",
            f"os_verdict_{model}": hypothesis_verdict(networks, model),
            f"os_own_{model}": format_range(means["swap_own"], ".1%"),
            f"os_earlier_{model}": format_range(means["swap_earlier"], ".1%"),
            f"os_form_{model}": format_range(means["form"], ".0%"),
            f"os_threshold_{model}": format_range(of_model.loc[of_model["measure"] == f"threshold_{rule}", "value"]),
        }
        if model == "transformer":
            found |= {f"os_met_{one}": f"{n - misses_criterion(networks, one).sum()} of {n}" for one in TRANSFORMER}
            found["os_number_form"] = f"{(networks['graded_form'] >= 0.5).sum()} of {n}"
            found |= place_values(
                of_model, rows[(rows["network"] == "local_remainder") & rows["bit"].isin(COUNTED_BITS)]
            )
    return found


def place_values(transformers: pd.DataFrame, control: pd.DataFrame) -> Facts:
    """The slopes of Transformers, and those of the network written by hand."""
    slopes, of_control = (add_slope_errors(rows).query("measure == 'slope_error'") for rows in (transformers, control))
    higher = slopes[slopes["bit"] > 2].groupby("seed")["value"].max()
    weights = transformers.assign(value=transformers["value"].abs()).groupby(["measure", "seed"])["value"].sum()
    by_bit = of_control.groupby("bit")["value"].max()
    return {
        "os_slope_operands": format_range(slopes[slopes["expected"] > 0].groupby("seed")["value"].max()),
        "os_slope_prefix": format_range(slopes[slopes["expected"] <= 0].groupby("seed")["value"].max()),
        "os_prefix_weight": format_range(weights["slope_prefix"] / weights["slope_operands"]),
        "os_slope_higher": f"{(higher <= TRANSFORMER['slopes'][3]).sum()} of {len(higher)}",
        "os_slope_control": f"{by_bit.max():.2f}",
        "os_slope_control_bit": f"{by_bit.idxmax():.0f}",
        "os_slope_control_higher": f"{by_bit[by_bit.index > 2].max():.2f}",
    }


VARIABLE_LABELS = {
    "none": "trained on the task alone", "sum": "sum", "carry+xor": "carries",
    "carry+prefix+xor prefix_carry": "carries, from the last token",
    "carry+prefix+xor lookahead_carry": "carries, no prefix",
    "prefix+sum erd": "sum, no prefix", "prefix+total local_remainder": "bit sums with c, by the rule",
}  # fmt: skip


def read_zoo() -> pd.DataFrame:
    """Networks trained to compute by known variables, and the same recipe without."""
    table = pd.read_csv(RESULTS / "zoo.csv", keep_default_na=False, na_values=[""])
    return table.assign(accepted=(table["accuracy"] == 1) & (table["least_interchange"] >= MIN_INTERCHANGE))


def zoo_facts() -> Facts:
    table = read_zoo()
    found = {}
    for name in ("sum", "carry+xor"):
        by = table[(table["bits"] == 5) & (table["trained_by"] == name)].set_index("network")
        key = name.replace("+", "_")
        accepted = by.loc["nanogpt"].query("accepted")
        found[f"zoo_nanogpt_{key}_others"] = format_range(accepted["others"], ".1%")
        found[f"zoo_transformer_{key}_vectors"] = format_range(by.loc["transformer", "vectors"], ".0%")
    rules = table.query(
        "network == 'transformer' and bits == 5 and trained_by.str.contains('prefix_carry|prefix.sum erd|lookahead')"
    )
    found["zoo_transformer_rules_least"] = f"{rules['least_interchange'].min():.0%}"
    large = table.query("network == 'transformer' and bits == 7 and trained_by in ('sum', 'carry+xor')")
    found["zoo_transformer7_right"] = f"{large['accuracy'].nlargest(3).min():.1%}"
    local = table[(table["network"] == "nanogpt") & (table["trained_by"] == "prefix+total local_remainder")]
    found["zoo_local_remainder_least"] = format_range(local["least_interchange"], ".0%")
    seven = table.query("bits == 7 and network == 'nanogpt'")
    (missed,) = seven.query("trained_by == 'none' and accuracy < 1").itertuples()
    right, flips = missed.accuracy, missed.graded_range
    swaps = seven.query("swap_own >= 0.99 and swap_earlier <= 0.01")["trained_by"].value_counts()
    found |= {"zoo7_sum_swaps": str(swaps["sum"]), "zoo7_carry_swaps": str(swaps["carry+xor"])}
    return found | {"zoo7_none_missed": f"{right:.2%}", "zoo7_none_missed_range": f"{flips:.0%}"}


def zoo_table() -> list[list[str]]:
    """Of each kind, how many learned it, and the measures of those that answer every pair."""
    measures = {name: CRITERIA[name][0] for name in ("swap_own", "graded_agreement", "graded_range", "vectors")}
    lines = [["network", "bits", "holds", "every pair right", "accepted", *measures.values()]]
    table = read_zoo()
    for (network, bits), kind in product(product(("transformer", "nanogpt"), (5, 7)), VARIABLE_LABELS):
        by = table.query("network == @network and bits == @bits and trained_by == @kind")
        if by.empty:
            continue
        right, accepted = by[by["accuracy"] == 1], "" if kind == "none" else f"{by['accepted'].sum()} of {len(by)}"
        cells = [format_range((by if name == "vectors" else right)[name].dropna(), ".0%") for name in measures]
        lines.append(
            [MODELS[network], str(bits), VARIABLE_LABELS[kind], f"{len(right)} of {len(by)}", accepted, *cells]
        )
    return lines


def angle_table() -> list[list[str]]:
    """Angles between the coordinates that hold a variable and what probes read, by kind of network."""
    columns = {"leace": "LEACE", "least_squares": "least squares", "least_squares_strong": "without weak directions"}
    lines = [["network holds", "coordinates of", "read", *columns.values(), "its R²"]]
    table = pd.read_csv(RESULTS / "angles.csv").query("network == 'nanogpt' and bits == 7")
    for (kind, variable, read), rows in table.groupby(["trained_by", "variable", "read"], sort=False):
        cells = [format_range(rows[name], ".0f") for name in columns] + [format_range(rows["r2_strong"])]
        lines.append([VARIABLE_LABELS[kind], f"`{variable}`", f"`{read}`", *cells])
    return lines


def running_sums() -> pd.Series:
    """R² of the best layer by network, seed, what the regression sees, and bit."""
    return pd.read_csv(RESULTS / "running-sum.csv").groupby(["network", "seed", "seen", "bit"])["r2"].max()


def sentence_tables() -> Facts:
    """Each kind of network, each criterion, heads, and multiplication."""
    scores = score_networks(pd.read_csv(RESULTS / "one-sentence.csv"))
    labels = {"authors": "the authors' weights", "transformer": "fresh Transformers", "nanogpt": "fresh nanoGPTs"}
    networks = [["network", "n", *(CRITERIA[name][0] for name in TABLE_CRITERIA), "meets all"]]
    for network in dict.fromkeys(scores["network"]):
        chosen = (
            counted_networks(scores, network) if network in PREDICTED_CRITERIA else scores[scores["network"] == network]
        )
        if network == "nanogpt":
            chosen = chosen.assign(agreement=chosen["graded_agreement"])
        forms = [".2f" if name == "slopes" else ".1%" if name.startswith("swap") else ".0%" for name in TABLE_CRITERIA]
        cells = [format_range(chosen[name].dropna(), form) for name, form in zip(TABLE_CRITERIA, forms, strict=True)]
        label, whole = labels.get(network, f"control, `{network}`"), (chosen["missed"] == "").sum()
        networks.append([label, str(len(chosen)), *cells, str(whole)])

    criteria = [["clause", "measure", "bound", "Transformers", "nanoGPTs"]]
    clauses = {name: clause for clause, several in CLAUSES.items() for name in several}
    for name, (label, bound) in CRITERIA.items():
        cells = [
            format_met(counted_networks(scores, model), name) if name in PREDICTED_CRITERIA[model] else ""
            for model in PREDICTED_CRITERIA
        ]
        direction = (TRANSFORMER | GRADED)[name][2]
        criteria.append([clauses.get(name, "the rival rule"), label, f"{direction} {bound}", *cells])
    parts = {
        "one_sentence": networks,
        "criteria": criteria,
        "heads": head_table(),
        "multiplication": multiplication_table(),
        "zoo": zoo_table(),
        "angles": angle_table(),
    }
    return {name: markdown(*lines) for name, lines in parts.items()}


def format_met(networks: pd.DataFrame, criterion: str) -> str:
    """``8 of 10 [44%, 97%]``: how many networks meet a bound, with Clopper and Pearson's interval."""
    count = len(networks) - misses_criterion(networks, criterion).sum()
    interval = binomtest(int(count), len(networks)).proportion_ci(0.95)
    return f"{count} of {len(networks)} [{interval.low:.0%}, {interval.high:.0%}]"


def head_table() -> list[list[str]]:
    """The two strongest heads for bit 6 of each network, beside all of them; over the whole effect of bit 5."""
    lines = [["network", "head", *(f"bit {i}" for i in range(6))]]
    rows = pd.read_csv(RESULTS / "path-patching.csv").query("bit == 6")
    for network, of_network in rows.groupby("network", sort=False):
        whole = of_network.groupby("place")["whole"].first()
        wide = of_network.groupby(["site", "head", "place"], sort=False)["effect"].mean().unstack("place") / whole[5]
        assert len(wide) == 96
        strongest = wide.loc[wide.abs().max(axis=1).nlargest(2).index]
        named = {
            f"layer {site.split('.')[1]}, {'cross' if 'cross' in site else 'self'}, head {head}": effects
            for (site, head), effects in strongest.iterrows()
        }
        named |= {"all 96 heads, added up": wide.sum(), "the whole network": whole / whole[5]}
        lines += [[network, name, *(f"{x:z.2f}" for x in effects)] for name, effects in named.items()]
    return lines


def multiplication_table() -> list[list[str]]:
    """The same tests on networks that multiply."""
    head = (
        "network",
        "agreement, by bit",
        "threshold, by bit",
        "swap own",
        "swap earlier",
        "encoder table",
        "running sum",
    )
    lines = [[*head]]
    sums = running_sums()
    rows = pd.read_csv(RESULTS / "multiplication.csv")
    for (network, seed), of_network in rows.groupby(["network", "seed"], sort=False):
        last = last_layer(of_network)
        cells = [
            format_range(last.loc[last["measure"] == measure, "value"], form)
            for measure, form in (
                ("agreement_local_remainder", ".0%"),
                ("threshold_local_remainder", ".2f"),
                ("swap_own", ".0%"),
                ("swap_earlier", ".0%"),
                ("vectors", ".0%"),
            )
        ]
        lines.append([f"{MODELS[network]}, seed {seed}", *cells, format_range(sums[network, seed, "trained"])])
    return lines


def facts() -> Facts:
    return card_facts(read_cards()) | study_facts() | sentence_facts() | zoo_facts()


def tables() -> Facts:
    return card_tables(read_cards()) | sentence_tables()


def main() -> None:
    rows = read_tables(CARDS)
    for argument in sys.argv[1:]:
        name, _, folder = argument.partition("=")
        new = read_tables(Path(folder) / "rows.csv").assign(network=name)
        old = (rows["network"] == name) & rows["seed"].isin(new["seed"])
        rows = pd.concat([rows[~old], new]).sort_values(["network", "seed"], kind="stable")
    rows.drop(columns=["control", "dose"]).to_csv(CARDS, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
