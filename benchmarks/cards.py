"""Put cards of ``probe=mechanism`` into one table, and its numbers into the page about them.

    python benchmarks/cards.py results/mechanism-cards.csv authors=FOLDER transformer=FOLDER nanogpt=FOLDER

A folder is what the probe wrote, with ``rows.csv``. Its seeds replace those of the same network in the table, so
several folders, one for each seed, can have the same name. Then every table between markers in
``docs/found/appendix.md`` is written anew; without folders, only these are. A test compares them. Tables of patches and
of steering beyond the natural range are from ``card-evidence.csv`` beside the table.
"""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parents[1] / "results"
PAGE = RESULTS.parent / "docs" / "found" / "appendix.md"
EVIDENCE = "card-evidence.csv"
CHANGED = 0.5  # smallest share of patched answers that change, that counts as an effect
COLUMNS = ["network", "seed", "test", "component", "control", "dose", "site", "position", "value"]
NAMES = {"authors": "the authors' weights", "transformer": "our Transformers", "nanogpt": "our nanoGPTs"}
BITS = range(2, 8)
LINES = {
    "remainder": "random prefixes: agreement with `remainder`",
    "local_carry": "... with `prefix_carry`",
    "prompt_only": "... with a network that ignores the prefix",
    "remainder_over_local_carry": "... with `remainder`, where it and `prefix_carry` differ",
    "local_remainder": "... with `local_remainder`",
    "graded_carry": "... with `graded_carry`",
    "ties": "... ties, left out of the lines above",
    "remainder_of_all": "all random prefixes, a tie counts one half: agreement with `remainder`",
    "prompt_only_of_all": "... with a network that ignores the prefix",
    "mean_ablation": "mean ablation of r_(t-1): answers that change",
    "carry": "carry inverted: answers that follow, less random",
    "value": "sum shifted: answers that follow, less others",
}
PAIRS = {
    f"`{first}` or `{second}`": f"{first}_over_{second}"
    for first, second in (
        ("local_remainder", "graded_carry"),
        ("local_remainder", "remainder"),
        ("graded_carry", "local_carry"),
    )
}
CONTROLS = {
    name: f"control, `{name}`" for name in ("local_remainder", "graded_carry", "remainder", "prefix_carry", "erd")
}
COUNTED = {
    ("flips", "1"): "flips once",
    ("flips", "2"): "twice",
    ("flips", "3"): "three times",
    ("flips", "any", "random"): "at all, in random directions",
    ("beyond_range", "carry"): "carry set to 2 or -1: answers that change",
}
CAUSES = ("carry", "xor", "neither")
ATTENTIONS = {
    f"dec.{n}.{site}": f"{n}, {kind}-attention"
    for n in range(1, 7)
    for site, kind in (("resid_mid", "self"), ("resid_mid_cross", "cross"))
}
AT_PROMPT = {
    ("position_wise_resampling", ""): "all of them, each from another run with the same token there",
    ("resample_ablation", ""): "one of them, from another run with the same token there",
    ("interchange", "token"): "one of them, from a run with the other token there: bit i of the answer",
}
# Measured after the two post-hoc algorithms had been written; only what `counting` and distances need is kept.
LATER = {
    "later_transformer": "trained without VS_v, Transformer",
    "later_nanogpt": "the same, nanoGPTs",
    "later_five_bits": "nanoGPTs of five bits",
}


def read(*paths: Path) -> pd.DataFrame:
    """The tables together, with "" where a column does not apply to a row."""
    read = [pd.read_csv(path, dtype=dict.fromkeys(COLUMNS[2:-1], str), keep_default_na=False) for path in paths]
    return pd.concat([one.reindex(columns=COLUMNS, fill_value="") for one in read], ignore_index=True)


def published() -> pd.DataFrame:
    """All rows of cards in ``results/``, those of older cards included."""
    return read(RESULTS / "mechanism-cards.csv", RESULTS / EVIDENCE)


def span(values: Iterable[float], form: str = ".2f") -> str:
    """``0.92``, or of several seeds ``0.90 to 0.93``; empty without a value."""
    found = [*values]
    if not found:
        return ""
    texts = [format(end, form) for end in (min(found), max(found))]
    return " to ".join(dict.fromkeys(text if re.search("[1-9]", text) else text.removeprefix("-") for text in texts))


def of(
    rows: pd.DataFrame, network: str, test: str, component: str = "", control: str = "", dose: str = "",
    site: str | None = None, position: str | None = None,
) -> pd.Series:  # fmt: skip
    """Values by seed; of all sites or positions where None is given."""
    wanted = {"network": network, "test": test, "component": component, "control": control, "dose": dose}
    for column, value in (wanted | {"site": site, "position": position}).items():
        if value is not None:
            rows = rows[rows[column] == value]
    return rows.set_index("seed")["value"]


def seeds(rows: pd.DataFrame, network: str) -> int:
    return int(rows.loc[rows["network"] == network, "seed"].nunique())


def markdown(*lines: Iterable[str]) -> str:
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|{' --- |' * (head.count(' | ') + 1)}", *body])


def by_bit(rows: pd.DataFrame, network: str) -> str:
    """The signature, bit by bit; of several seeds the range."""
    rows, number = rows[rows["test"] == "signature"], seeds(rows, network)
    head = NAMES[network] + (f", {number} seed{'s' if number > 1 else ''}" if network != "authors" else "")
    lines = [[head, *(f"bit {t}" for t in BITS)]]
    for component, label in LINES.items():
        if of(rows, network, "signature", component).index.nunique() < number:  # not measured in all seeds
            continue
        form = ".2f" if component in ("carry", "value") else ".3f"
        lines.append([label, *(span(of(rows, network, "signature", component, position=str(t)), form) for t in BITS)])
    return markdown(*lines)


def in_range(rows: pd.DataFrame) -> str:
    """Answers after the random prefixes on which two algorithms differ: the range over bits 2 to 6 and seeds."""
    rows = rows[rows["test"] == "signature"]
    lines = [["answers that the first one gives, where it and the second differ", *PAIRS]]
    for network, label in (NAMES | LATER | CONTROLS).items():
        found = ([x for t in BITS[:-1] for x in of(rows, network, "signature", pair, position=str(t))]
                 for pair in PAIRS.values())  # fmt: skip
        lines.append([label, *map(span, found)])
    return markdown(*lines)


def counting(rows: pd.DataFrame) -> str:
    """Steering beyond the natural range of a carry, each bit at its site: the range over bits and seeds."""
    lines = [["bits of columns with total 0, as 0 to 4 carries are added", *COUNTED.values()]]
    controls = {name: CONTROLS[name] for name in ("local_remainder", "graded_carry")}
    for network, label in (NAMES | LATER | controls).items():
        lines.append([label, *(span(of(rows, network, *what)) for what in COUNTED)])
    return markdown(*lines)


def at_prompt(rows: pd.DataFrame) -> str:
    """The largest share of answers that change, over sites and positions; of tokens the smallest over both."""
    lines = [["Patched positions of the prompt, at the site where most answers change", "answers that change"]]
    for network in [name for name in ("authors", "transformer") if seeds(rows, name)]:
        for what, label in AT_PROMPT.items():
            ends = of(rows, network, *what).groupby("seed").max()
            lines.append([f"{NAMES[network]}: {label}", span(ends, ".1%")])
    (what, label), *_ = AT_PROMPT.items()
    control = of(rows, "lookahead_carry", *what).max()
    lines.append([f"control, `lookahead_carry`, whose encoder mixes positions: {label}", span([control], ".1%")])
    return markdown(*lines)


def by_layer(rows: pd.DataFrame) -> str:
    """Patches after each attention: the mean over t, and of several seeds its range."""
    rows = rows[rows["test"] == "interchange"]
    networks = {"authors": "authors", "transformer": "ours", "erd": "control, `erd`"}
    heads = [what if what != "carry" else f"{name}: carry" for name in networks.values() for what in CAUSES]
    lines = [["after layer", *heads]]
    for site, label in ATTENTIONS.items():
        means = [
            of(rows, network, "interchange", what, site=site).groupby("seed").mean()
            for network in networks
            for what in CAUSES
        ]
        lines.append([label, *map(span, means)])
    return markdown(*lines)


def first_site(patched: pd.DataFrame, bit: int) -> str:
    """The first attention after which a bit changes with the carry; empty for none.

    Args:
        patched: interchanges of one network.
    """
    shares = patched[patched["position"] == str(bit)].set_index(["component", "site"])["value"]
    held = (shares.get(("carry", site), 0.0) - shares.get(("neither", site), 0.0) for site in ATTENTIONS)
    return next((site for site, share in zip(ATTENTIONS, held, strict=True) if share >= CHANGED), "")


def by_site(rows: pd.DataFrame) -> str:
    """After which attention each bit begins to change with the carry, of each network."""
    lines = [["the carry reaches the position of", *(f"bit {t}" for t in range(1, 8))]]
    for network in ("authors", "transformer"):
        own = rows[(rows["test"] == "interchange") & (rows["network"] == network)]
        for seed in sorted(own["seed"].unique()):
            label = NAMES[network] if network == "authors" else f"our Transformer, seed {seed}"
            sites = [first_site(own[own["seed"] == seed], t) for t in range(1, 8)]
            lines.append([label, *(ATTENTIONS[site].removesuffix("-attention") if site else "" for site in sites)])
    return markdown(*lines)


def tables(rows: pd.DataFrame) -> dict[str, str]:
    """Every table of the page, by the name of its markers."""
    of_bits = {f"bits_{network}": by_bit(rows, network) for network in NAMES}
    two = {"range": in_range(rows), "counting": counting(rows)}
    return of_bits | two | {"prompt": at_prompt(rows), "layers": by_layer(rows), "sites": by_site(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("cards", nargs="*", help="NAME=FOLDER")
    options = parser.parse_args()
    rows = read(options.table)
    for card in options.cards:
        name, _, folder = card.partition("=")
        new = read(Path(folder) / "rows.csv").assign(network=name)
        old = (rows["network"] == name) & rows["seed"].isin(new["seed"])
        rows = pd.concat([rows[~old], new], ignore_index=True).sort_values(["network", "seed"], kind="stable")
    if options.cards:
        # No number of the page is of these, and they are a fifth of the table.
        unused = (rows["component"] == "value_of_remainder") | rows["network"].isin(LATER)
        rows = rows[~(unused & (rows["test"] == "steering"))].drop(columns=["control", "dose"])
        rows.to_csv(options.table, index=False, float_format="%.6g")
    text = PAGE.read_text()
    for name, table in tables(read(options.table, options.table.with_name(EVIDENCE))).items():
        text = re.sub(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.S)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
