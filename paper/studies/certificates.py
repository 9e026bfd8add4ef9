"""Which rule gives a network's answers, after every prefix of every pair? Tables of ``probe=certificate``, collected.

    python -m paper.studies.certificates authors=FOLDER transformer=FOLDER control,erd=FOLDER ..

puts what the probe wrote into FOLDER into ``certificates.csv`` (shares and contrasts, by distances rounded down to
`STEP`) and ``certificate-precision.csv``, in place of the rows of the same network and seed, and draws
``certificates.png``.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arith_erd.bundled import RESULTS
from arith_erd.mechanism.certificate import CLEAR, CONTRASTS, RIVAL, RULE
from arith_erd.plots.style import BLUE, GREEN, GREY, INK, ORANGE, format_axes, save_png, set_panel_title, subplots
from arith_erd.probes.certificate import mean_over_bits
from paper.formats import format_range, grid

SHARES, PRECISION = RESULTS / "certificates.csv", RESULTS / "certificate-precision.csv"
BY = ["network", "seed", "algorithm", "against", "bit", "distance"]
STEP = 1 / 20  # so that both bounds, 0.25 and 0.3, are ends of a bin
NETWORKS = {
    "authors": "the authors' weights",
    "transformer": "Transformer, random split",
    "transformer_vs_v": "Transformer, trained without VS_v",
    "transformer_vs_t": "Transformer, trained without VS_t",
    "transformer_150": "Transformer, 150 epochs",
    "d_model_32": "Transformer with 32 channels, stopped at 95%",
    "one_head": "Transformer with one head, stopped at 95%",
    "no_feed_forward": "Transformer without MLPs, stopped at 95%",
    "squeezed_encoder": "Transformer with a squeezed encoder, stopped at 95%",
    "nanogpt": "nanoGPT, random split",
}
STOPPED = ("d_model_32", "one_head", "no_feed_forward", "squeezed_encoder")
CONTROLS = {f"control,{name}": f"control, `{name}`" for name in (RULE, RIVAL, "remainder", "prefix_carry", "erd")}
LABELS = NETWORKS | CONTROLS


def collect(network: str, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The shares, contrasts and precision of the networks of one folder."""
    rows, contrasts, precision = (pd.read_csv(folder / f"{name}.csv") for name in ("rows", "contrasts", "precision"))
    shares = pd.concat([rows.assign(against=""), contrasts])
    shares = shares.assign(network=network, distance=np.floor(shares["distance"] / STEP + 1e-9) * STEP)
    shares["right"] *= shares["n"]  # answers, so that they add up
    shares = shares.groupby(BY, as_index=False)[["right", "n"]].sum()
    shares["right"] /= shares["n"]
    return shares, precision.assign(network=network)[["network", "seed", "bit", "threshold", "sigma"]]


def replace_rows(path: Path, new: pd.DataFrame) -> pd.DataFrame:
    """The table of a file with the rows of new networks in place of theirs."""
    by = ["network", "seed"]
    old = pd.read_csv(path, keep_default_na=False) if path.is_file() else new.head(0)
    kept = old[~pd.MultiIndex.from_frame(old[by]).isin(pd.MultiIndex.from_frame(new[by]))]
    table = pd.concat([kept, new]).sort_values([column for column in BY if column in new], kind="stable")
    table.to_csv(path, index=False, float_format="%.6g")
    return table


def read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Shares and contrasts, and the precision of c."""
    return pd.read_csv(SHARES, keep_default_na=False), pd.read_csv(PRECISION)


def _measures(shares: pd.DataFrame, precision: pd.DataFrame) -> dict[str, float]:
    """What the table shows of one network."""
    of_rule = shares[(shares["algorithm"] == RULE) & (shares["against"] == "")]
    clear = shares[shares["distance"] >= CLEAR - STEP / 2]
    of_clear = dict(iter(clear.groupby(["algorithm", "against"])))
    by_bit = of_clear[RULE, ""].groupby("bit").apply(lambda rows: np.average(rows["right"], weights=rows["n"]))
    return {
        "clear": by_bit.mean(),
        "worst": by_bit.min(),
        "nearer": mean_over_bits(of_rule.drop(clear.index, errors="ignore")),
        "rival": mean_over_bits(of_clear[RIVAL, ""]),
        "differ": mean_over_bits(of_clear[RULE, RIVAL]),
        "sigma": precision["sigma"].median(),
    }


COLUMNS = {
    "n": "n",
    "clear": "rule, beyond 1/4",
    "worst": "its worst bit",
    "nearer": "rule, nearer",
    "rival": "rival, beyond 1/4",
    "differ": "rule, where they differ there",
    "sigma": "noise of c",
}
FORMS = dict.fromkeys(COLUMNS, ".1%") | {"clear": ".2%", "nearer": ".0%", "sigma": ".2f"}


def table() -> str:
    """A row for each kind of network: ranges over its seeds."""
    shares, precision = read()
    found = {
        key: _measures(of_one, precision[(precision["network"] == key[0]) & (precision["seed"] == key[1])])
        for key, of_one in shares.groupby(["network", "seed"])
    }
    known = {name: label for name, label in LABELS.items() if any(name == network for network, _ in found)}

    def cell(network: str, column: str) -> object:
        own = [measures for (name, _), measures in found.items() if name == network]
        measured = [one[column] for one in own if column != "n" and not np.isnan(one[column])]
        return len(own) if column == "n" else format_range(measured, FORMS[column])

    return grid("network", known, COLUMNS, cell)


def range_table(columns: Mapping[tuple[str, str], str], min_distance: float) -> str:
    """Ranges over bits 2 to 6 and seeds of shares (``algorithm``, "") or contrasts (``algorithm``, ``against``)."""
    shares = read()[0]
    shares = shares[(shares["distance"] >= min_distance - STEP / 2) & shares["bit"].between(2, 6)]
    shares = shares.assign(right=shares["right"] * shares["n"])
    sums = shares.groupby(["network", "algorithm", "against", "seed", "bit"])[["right", "n"]].sum()
    right = sums["right"] / sums["n"]
    known = {name: label for name, label in LABELS.items() if name in right.index.unique("network")}
    return grid("network", known, columns, lambda name, pair: format_range(right[name, *pair], ".0%"))


def tables() -> dict[str, str]:
    agreements = {(name, ""): f"`{name}`" for name in (RULE, RIVAL, "remainder", "prefix_carry", "erd")}
    contrasts = {pair: "`{}` against `{}`".format(*pair) for pair in CONTRASTS}
    found = {"agreements": range_table(agreements, STEP), "contrasts": range_table(contrasts, CLEAR)}
    return found | {"certificates": table()}


def draw(shares: pd.DataFrame) -> Figure:
    """The rule's share of the answers against the distance to the nearest rounding point, a line for each network."""
    figure, axes = subplots(9.6, 3.7, 1, 3, sharex=True, sharey=True)
    of_rule = shares[(shares["algorithm"] == RULE) & (shares["against"] == "")]
    right = of_rule["right"] * of_rule["n"]
    by = ["network", "seed", "distance"]
    lines = right.groupby([of_rule[key] for key in by]).sum() / of_rule.groupby(by)["n"].sum()
    labels: dict[str, tuple[str, str, Any]] = dict.fromkeys(NETWORKS, ("trained", BLUE, "-"))
    labels |= dict.fromkeys(STOPPED, ("ablated, stopped at 95%", ORANGE, "--"))
    styles = zip((BLUE, ORANGE, GREEN, GREY, INK), ("-", "--", "-.", ":", (5, (10, 3))), strict=True)
    labels |= {name: (name.removeprefix("control,"), *style) for name, style in zip(CONTROLS, styles, strict=True)}
    panels = {"Transformers": [*NETWORKS][:-1], "nanoGPTs": ["nanogpt"], "Controls": [*CONTROLS]}
    for ax, (title, names) in zip(axes, panels.items(), strict=True):
        for name in names:
            label, color, style = labels[name]
            for _, line in lines[lines.index.get_level_values("network") == name].groupby("seed"):
                x = np.minimum(line.index.get_level_values("distance") + STEP / 2, 1 / 2)
                ax.plot(x, line, linewidth=1.4, color=color, linestyle=style, label=label)
        ax.axvspan(0, CLEAR, color=GREY, alpha=0.1, linewidth=0)
        format_axes(ax, "y")
        set_panel_title(ax, title)
        ax.set_xlabel("distance to the nearest rounding point", fontsize=8)
        handles, texts = ax.get_legend_handles_labels()
        unique = dict(zip(texts, handles, strict=True))
        ax.legend(unique.values(), unique.keys(), frameon=False, fontsize=7.5, loc="lower right")
    axes[0].set_ylabel("answers that the rule gives", fontsize=8)
    return figure


def main() -> None:
    shares, precision = pd.DataFrame(), pd.DataFrame()
    for argument in sys.argv[1:]:
        name, _, folder = argument.partition("=")
        if name not in LABELS or not folder:
            raise SystemExit(f"received {argument!r}; expected NAME=FOLDER, NAME one of {', '.join(LABELS)}")
        new = collect(name, Path(folder))
        shares, precision = pd.concat([shares, new[0]]), pd.concat([precision, new[1]])
    if len(shares):
        replace_rows(SHARES, shares)
        replace_rows(PRECISION, precision)
    save_png(draw(read()[0]), SHARES.with_suffix(".png"))
    print(table())


if __name__ == "__main__":
    main()
