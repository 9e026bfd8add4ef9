"""Put cards of ``probe=mechanism`` into one table, and its numbers into the page about them.

    python benchmarks/cards.py results/mechanism-cards.csv authors=FOLDER transformer=FOLDER nanogpt=FOLDER

A folder is what the probe wrote, with ``rows.csv``. Its seeds replace those of the same network in the table, so
several folders, one for each seed, can have the same name. Subspaces stay if the folder has none. Then every table
between markers in ``docs/found/mechanism.md`` is written anew; without folders, only these are. A test compares the
two, and recomputes the numbers in the text.
"""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from arith_erd.interp.evidence import EFFECT

PAGE = Path(__file__).parents[1] / "docs" / "found" / "mechanism.md"
COLUMNS = ["network", "seed", "component", "stage", "position", "value"]
NAMES = {"authors": "the authors' weights", "transformer": "our Transformers", "nanogpt": "our nanoGPTs"}
BITS = range(2, 8)
LINES = {
    "remainder": "random prefixes: agreement with `remainder`",
    "local_carry": "... with `prefix_carry`",
    "prompt_only": "... with a network that ignores the prefix",
    "remainder_over_local_carry": "... with `remainder`, where it and `prefix_carry` differ",
    "local_remainder": "... with `local_remainder`",
    "graded_carry": "... with `graded_carry`",
    "neutral": "r_(t-1) replaced by what says nothing: answers that change",
    "carry": "carry inverted: answers that follow, less random",
    "value": "sum moved: answers that follow, less others",
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
    "turns_1": "empty columns whose answer turns once",
    "turns_2": "twice",
    "turns_3": "three times",
    "turns_at_random": "at all, along random directions",
    "pushed_further": "carry moved on to 2 or -1: answers that change",
}
EXCHANGED = {"exchange_carry": "carry", "exchange_xor": "xor", "exchange_neither": "neither"}
ATTENTIONS = {f"dec.{n}.{kind}": f"{n}, {kind}-attention" for n in range(1, 7) for kind in ("self", "cross")}
AT_PROMPT = {
    "exchange_mosaic": "all of them, each from another run with the same token there",
    "exchange_elsewhere": "one of them, from another run with the same token there",
    "exchange_token": "one of them, from a run with the other token there: bit i of the answer",
}
# Looked at after the two algorithms had been written; only signatures, pushes and distances are kept.
LATER = {
    "later_transformer": "trained without VS_v, Transformer",
    "later_nanogpt": "the same, nanoGPTs",
    "later_five_bits": "nanoGPTs of five bits",
}
OF_PROMPT = {"authors": "enc.", "transformer": "enc.", "nanogpt": "dec.", "lookahead_carry": "enc."}


def read(path: Path) -> pd.DataFrame:
    """The table, ``stage`` empty where a row belongs to none."""
    return pd.read_csv(path, dtype={"position": str, "stage": str}, keep_default_na=False)


def span(values: Iterable[float], form: str = ".2f") -> str:
    """``0.92``, or of several seeds ``0.90 to 0.93``; empty without a value."""
    found = [*values]
    if not found:
        return ""
    texts = [format(end, form) for end in (min(found), max(found))]
    return " to ".join(dict.fromkeys(text if re.search("[1-9]", text) else text.removeprefix("-") for text in texts))


def of(
    rows: pd.DataFrame, network: str, component: str, stage: str | None = "", position: str | None = None
) -> pd.Series:
    """Values of a component; of all stages or positions where None is given."""
    chosen = rows[(rows["network"] == network) & (rows["component"] == component)]
    chosen = chosen if stage is None else chosen[chosen["stage"] == stage]
    return (chosen if position is None else chosen[chosen["position"] == position]).set_index("seed")["value"]


def seeds(rows: pd.DataFrame, network: str) -> int:
    return int(rows.loc[rows["network"] == network, "seed"].nunique())


def markdown(*lines: Iterable[str]) -> str:
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|{' --- |' * (head.count(' | ') + 1)}", *body])


def by_bit(rows: pd.DataFrame, network: str) -> str:
    """The signature, bit by bit; of several seeds the range."""
    number = seeds(rows, network)
    head = NAMES[network] + (f", {number} seed{'s' if number > 1 else ''}" if network != "authors" else "")
    lines = [[head, *(f"bit {t}" for t in BITS)]]
    for component, label in LINES.items():
        form = ".2f" if component in ("carry", "value") else ".3f"
        lines.append([label, *(span(of(rows, network, component, "", str(t)), form) for t in BITS)])
    return markdown(*lines)


def in_range(rows: pd.DataFrame) -> str:
    """Answers after the random prefixes that tell two algorithms apart: the range over bits 2 to 6 and seeds."""
    lines = [["answers that the first one gives, where it and the second differ", *PAIRS]]
    for network, label in (NAMES | LATER | CONTROLS).items():
        found = ([x for t in BITS[:-1] for x in of(rows, network, pair, "", str(t))] for pair in PAIRS.values())
        lines.append([label, *map(span, found)])
    return markdown(*lines)


def counting(rows: pd.DataFrame) -> str:
    """Moves of a carry beyond 0 and 1, each bit at its stage: the range over bits and seeds."""
    lines = [["moved along the carry's direction", *COUNTED.values()]]
    for network, label in (
        NAMES | LATER | {name: CONTROLS[name] for name in ("local_remainder", "graded_carry")}
    ).items():
        lines.append([label, *(span(of(rows, network, component, None)) for component in COUNTED)])
    return markdown(*lines)


def at_prompt(rows: pd.DataFrame) -> str:
    """The largest share of answers that change, over stages and positions; of tokens the smallest over both."""
    lines = [["Positions of the prompt exchanged, behind the stage where most answers change", "answers that change"]]
    for network in [name for name in ("authors", "transformer") if seeds(rows, name)]:
        for component, label in AT_PROMPT.items():
            found = of(rows, network, component, None)
            ends = found.groupby("seed").max()
            lines.append([f"{NAMES[network]}: {label}", span(ends, ".1%")])
    control = of(rows, "lookahead_carry", "exchange_mosaic", None)
    lines.append([f"control, `lookahead_carry`, whose encoder does mix: {AT_PROMPT['exchange_mosaic']}",
                  span([control.max()], ".1%")])  # fmt: skip
    return markdown(*lines)


def by_layer(rows: pd.DataFrame) -> str:
    """Exchanges after each attention: the mean over t, and of several seeds its range."""
    networks = {"authors": "authors", "transformer": "ours", "erd": "control, `erd`"}
    heads = [what if what != "carry" else f"{name}: carry" for name in networks.values() for what in EXCHANGED.values()]
    lines = [["after layer", *heads]]
    for stage, label in ATTENTIONS.items():
        means = [
            of(rows, network, component, stage).groupby("seed").mean()
            for network in networks
            for component in EXCHANGED
        ]
        lines.append([label, *map(span, means)])
    return markdown(*lines)


def first_stage(rows: pd.DataFrame, network: str, seed: int, bit: int) -> str:
    """The first attention behind which a bit changes with the carry, by `Evidence.appears`' bar; empty for none."""
    for stage in ATTENTIONS:
        held, noise = (
            of(rows, network, name, stage, str(bit)).get(seed) for name in ("exchange_carry", "exchange_neither")
        )
        if held is not None and noise is not None and held - noise >= EFFECT:
            return stage
    return ""


def by_stage(rows: pd.DataFrame) -> str:
    """Behind which attention each bit begins to change with the carry, of each network."""
    lines = [["the carry reaches the position of", *(f"bit {t}" for t in range(1, 8))]]
    for network in ("authors", "transformer"):
        for seed in sorted(rows.loc[rows["network"] == network, "seed"].unique()):
            label = NAMES[network] if network == "authors" else f"our Transformer, seed {seed}"
            stages = [first_stage(rows, network, seed, t) for t in range(1, 8)]
            lines.append([label, *(stage.removeprefix("dec.").replace(".", " ") for stage in stages)])
    return markdown(*lines)


def tables(rows: pd.DataFrame) -> dict[str, str]:
    """Every table of the page, by the name of its markers."""
    of_bits = {f"bits_{network}": by_bit(rows, network) for network in NAMES}
    two = {"range": in_range(rows), "counting": counting(rows)}
    return of_bits | two | {"prompt": at_prompt(rows), "layers": by_layer(rows), "stages": by_stage(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("cards", nargs="*", help="NAME=FOLDER")
    options = parser.parse_args()
    rows = read(options.table)
    for card in options.cards:
        name, _, folder = card.partition("=")
        new = read(Path(folder) / "rows.csv").assign(network=name)[COLUMNS]
        old = (rows["network"] == name) & rows["seed"].isin(new["seed"])
        if not new["component"].str.startswith("subspace_").any():  # made with probe.steps=0
            old &= ~rows["component"].str.startswith("subspace_")
        rows = pd.concat([rows[~old], new], ignore_index=True).sort_values(["network", "seed"], kind="stable")
    if options.cards:
        # No number of the page is of these, and they are a fifth of the table.
        rows = rows[(rows["component"] != "value_of_remainder") | (rows["stage"] == "")]
        unused = rows["network"].isin(LATER) & (rows["stage"] != "") & ~rows["component"].str.match("pushed_|turns_")
        rows = rows[~unused]
        rows.to_csv(options.table, index=False, float_format="%.6g")
        rows = read(options.table)
    text = PAGE.read_text()
    for name, table in tables(rows).items():
        text = re.sub(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.S)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
