"""Tables of ``found/mechanism.md`` and its appendix, for `paper.tables`; ``mechanism-tables.yaml`` describes most.

    python -m arith_erd.paper.mechanism_tables authors=FOLDER transformer=FOLDER nanogpt=FOLDER

puts profiles into ``response-profiles.csv``: a folder is what ``probe=mechanism`` wrote, and its seeds replace those of
the same network. ``older-profiles.csv`` beside it has patches, doses and subspaces of older profiles.
"""

import sys
from pathlib import Path

import pandas as pd
import yaml

from arith_erd.bundled import PAPER, RESULTS

from .formats import MODELS, format_range, markdown
from .studies.certificates import replace_rows

PROFILES = RESULTS / "response-profiles.csv"
COLUMNS = ["network", "seed", "test", "component", "control", "dose", "site", "position", "value"]
SPECIFICATIONS = yaml.safe_load((PAPER / "mechanism-tables.yaml").read_text(encoding="utf-8"))
ATTENTIONS = {
    f"dec.{n}.{site}": f"{n}, {kind}"
    for n in range(1, 7)
    for site, kind in (("resid_mid", "self"), ("resid_mid_cross", "cross"))
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
    return pd.concat([table.reindex(columns=COLUMNS, fill_value="") for table in read], ignore_index=True)


def read_profiles() -> pd.DataFrame:
    """All rows of profiles in ``results/``, older ones included."""
    return read_tables(PROFILES, RESULTS / "older-profiles.csv")


def cell(rows: pd.DataFrame, form: str, together: str = "", **wanted: str) -> str:
    """A cell of a table of ``mechanism-tables.yaml``."""
    for column, value in ({"component": "", "control": "", "dose": ""} | wanted).items():
        rows = rows if value == "*" else rows[rows[column].isin(value.split() or [""])]
    return format_range(rows.groupby("seed")["value"].agg(together) if together else rows["value"], form)


def profile_tables(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of ``mechanism-tables.yaml``."""
    found = {}
    for name, table in SPECIFICATIONS.items():
        lines = [[table["head"], *table["columns"]]]
        for label, of_row in table["rows"].items():
            options = (table["where"] | of_row | of_column for of_column in table["columns"].values())
            lines.append([label, *(cell(rows, **wanted) for wanted in options)])
        found[name] = markdown(*lines)
    return found


def first_sites(rows: pd.DataFrame) -> str:
    """The first attention after which each bit changes with the carry, in each network; empty for none."""
    rows = rows[(rows["test"] == "interchange") & rows["network"].isin(["authors", "transformer"])]
    lines = [["the carry reaches the position of", *(f"bit {t}" for t in range(1, 8))]]
    for (network, seed), of_run in rows.groupby(["network", "seed"]):
        lines.append([f"our Transformer, seed {seed}" if network == "transformer" else "the authors' weights"])
        for t in range(1, 8):
            shares = of_run[of_run["position"] == str(t)].set_index(["component", "site"])["value"]
            held = {site: shares.get(("carry", site), 0.0) - shares.get(("neither", site), 0.0) for site in ATTENTIONS}
            lines[-1].append(next((ATTENTIONS[site] for site in held if held[site] >= MIN_CHANGED_SHARE), ""))
    return markdown(*lines)


def training_table() -> str:
    """Effects in small networks that come before they reach 95%."""
    small = pd.read_csv(RESULTS / "mechanism-training.csv").query("reaches_95 == reaches_95")
    earlier = ((label, (small[what] < small["reaches_95"]).sum()) for what, label in IN_TRAINING.items())
    return markdown(["before 95% is reached", "networks"], *([label, f"{n} of {len(small)}"] for label, n in earlier))


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
    rows = read_profiles()
    found = {"sites": first_sites(rows), "training": training_table()}
    return profile_tables(rows) | found | {"heads": head_table(), "multiplication": multiplication_table()}


def main() -> None:
    for name, _, folder in (argument.partition("=") for argument in sys.argv[1:]):
        new = read_tables(Path(folder) / "rows.csv").assign(network=name)
        replace_rows(PROFILES, new.drop(columns=["control", "dose"]))


if __name__ == "__main__":
    main()
