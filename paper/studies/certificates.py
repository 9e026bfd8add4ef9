"""Which rule gives a network's answers, after every prefix of every pair? Answers of ``probe=certificate``, counted.

    python -m arith_erd.paper.studies.certificates authors=FOLDER transformer=FOLDER control,erd=FOLDER ..

copies the answers that the probe wrote into FOLDER to ``certificates/``, and counts them in about a minute for each
network: into ``certificates.csv`` (shares and contrasts, by distances rounded down to `STEP`) and
``certificate-precision.csv``, in place of the rows of the same network and seed; of multiplications also how many
answers are 1, by the running sum (``certificate-curves.csv``). It draws ``certificates.png`` and
``certificate-curves.png``. ``--recount`` counts all answers in ``certificates/`` anew.
"""

import shutil
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arith_erd.bundled import RESULTS
from arith_erd.mechanism import certificate
from arith_erd.mechanism.certificate import CLEAR, CONTRASTS, CURVE_STEP, LOCAL_REMAINDER, Certificate
from arith_erd.plots import style
from arith_erd.plots.style import BLUE, GREEN, GREY, INK, ORANGE
from arith_erd.probes.certificate import mean_over_bits
from arith_erd.probes.probe import weighted_means
from arith_erd.tasks import Add, Mul, Task

from ..formats import format_range, grid, markdown

SHARES, PRECISION = RESULTS / "certificates.csv", RESULTS / "certificate-precision.csv"
CURVES = RESULTS / "certificate-curves.csv"
ANSWERS = RESULTS / "certificates"
BY = ["network", "seed", "algorithm", "against", "bit", "distance"]
FIT, CURVE = ["bit", "threshold", "sigma"], ["bit", "total", "ones", "n"]
RIVAL = "graded_carry"  # the algorithm nearest to LOCAL_REMAINDER
ALGORITHMS = (LOCAL_REMAINDER, RIVAL, "remainder", "prefix_carry", "erd")
STEP = 1 / 20  # so that both bounds, 0.25 and 0.3, are ends of a bin
NETWORKS = {
    "authors": "the authors' weights",
    "transformer": "Transformer, random split",
    "fresh_transformer": "Transformer, fresh seeds",
    "transformer_vs_v": "Transformer, trained without VS_v",
    "transformer_vs_t": "Transformer, trained without VS_t",
    "transformer_150": "Transformer, 150 epochs",
    "d_model_32": "Transformer with 32 channels, stopped at 95%",
    "one_head": "Transformer with one head, stopped at 95%",
    "no_feed_forward": "Transformer without MLPs, stopped at 95%",
    "squeezed_encoder": "Transformer with a squeezed encoder, stopped at 95%",
    "nanogpt": "nanoGPT, random split",
    "fresh_nanogpt": "nanoGPT, fresh seeds",
}
SHOWN_BITS, MIN_SHOWN = (3, 6, 9, 12), 20  # panels of the curves; fewer answers are not drawn
HALVES = ((2, 7), (8, 13))  # bits of a product
NUM_COMPLETIONS = 2  # of each pair, in certificates of multiplication
STOPPED = ("d_model_32", "one_head", "no_feed_forward", "squeezed_encoder")
CONTROLS = {f"control,{name}": f"control, `{name}`" for name in ALGORITHMS}
MULTIPLICATIONS = {"mul_transformer": "Transformer", "mul_nanogpt": "nanoGPT", "mul_erd": "control, `erd`"}
LABELS = NETWORKS | CONTROLS | MULTIPLICATIONS
COLUMNS = {
    "n": "n",
    "clear": "rule",
    "worst": "its worst bit",
    "rival": "rival",
    "differ": "rule, against the rival",
    "bounded": "rule, against `remainder`",
    "sigma": "noise of c",
}
FORMS = dict.fromkeys(COLUMNS, ".1%") | {"clear": ".2%", "sigma": ".2f"}


def collect(network: str, folder: Path) -> list[Path]:
    """Copies of the answers of all networks of one folder."""
    ANSWERS.mkdir(exist_ok=True)
    found = sorted(folder.glob("answers-seed=*.bin"))
    return [shutil.copyfile(path, ANSWERS / path.name.replace("answers", network)) for path in found]


def recount(path: Path) -> dict[Path, pd.DataFrame]:
    """The rows that one network has in each file, from its stored answers."""
    network, seed = path.stem.split("-seed=")
    task: Task = Add()
    completions = None
    if network in MULTIPLICATIONS:
        task, completions = Mul(), certificate.random_completions(Mul(), NUM_COMPLETIONS)
    return count(network, int(seed), Certificate.from_bytes(task, path.read_bytes(), completions))


def control() -> dict[Path, pd.DataFrame]:
    """The rows of a function that multiplies and ignores the prefix, after the prefixes that networks get."""
    task, completions = Mul(), certificate.random_completions(Mul(), NUM_COMPLETIONS)
    return count("mul_erd", 0, certificate.answered_by(lambda block: block.predicted("erd"), task, completions))


def count(network: str, seed: int, found: Certificate) -> dict[Path, pd.DataFrame]:
    named: dict[str, Any] = {"network": network, "seed": seed}
    shares = pd.concat([found.shares().assign(against=""), found.contrasts()])
    shares = shares.assign(**named, distance=np.floor(shares["distance"] / STEP + 1e-9) * STEP)
    shares["right"] *= shares["n"]  # answers, so that they add up
    shares = shares.groupby(BY, as_index=False)[["right", "n"]].sum()
    shares["right"] /= shares["n"]
    tables = {SHARES: shares, PRECISION: found.precision().assign(**named)[[*named, *FIT]]}
    return tables | ({CURVES: found.curve().assign(**named)[[*named, *CURVE]]} if network in MULTIPLICATIONS else {})


def replace_rows(path: Path, new: pd.DataFrame) -> pd.DataFrame:
    """The table of a file with the rows of new networks in place of theirs."""
    by = ["network", "seed"]
    old = pd.read_csv(path, keep_default_na=False) if path.is_file() else new.head(0)
    kept = old[~pd.MultiIndex.from_frame(old[by]).isin(pd.MultiIndex.from_frame(new[by]))]
    table = pd.concat([kept, new]).sort_values([column for column in (*BY, "total") if column in new], kind="stable")
    table.to_csv(path, index=False, float_format="%.6g")
    return table


def read(networks: Container[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Shares and contrasts of networks, and the precision of their c."""
    tables = pd.read_csv(SHARES, keep_default_na=False), pd.read_csv(PRECISION)
    shares, precision = (table[[name in networks for name in table["network"]]] for table in tables)
    return shares, precision


def _measures(shares: pd.DataFrame, precision: pd.DataFrame) -> dict[str, float]:
    """What the table shows of one network."""
    clear = shares[shares["distance"] >= CLEAR - STEP / 2]
    of_clear = dict(iter(clear.groupby(["algorithm", "against"])))
    by_bit = weighted_means(of_clear[LOCAL_REMAINDER, ""], ["bit"], ["right"])["right"]
    return {
        "clear": by_bit.mean(),
        "worst": by_bit.min(),
        "rival": mean_over_bits(of_clear[RIVAL, ""]),
        "differ": mean_over_bits(of_clear[LOCAL_REMAINDER, RIVAL]),
        "bounded": mean_over_bits(of_clear[LOCAL_REMAINDER, "remainder"]),
        "sigma": precision["sigma"].median(),
    }


def table() -> str:
    """A row for each kind of network that adds: ranges over its seeds."""
    shares, precision = read({*NETWORKS, *CONTROLS})
    noise, by = dict(iter(precision.groupby(["network", "seed"]))), shares.groupby(["network", "seed"])
    found = pd.DataFrame({key: _measures(of_one, noise[key]) for key, of_one in by}).T
    known = {name: label for name, label in LABELS.items() if name in found.index}

    def cell(network: str, column: str) -> object:
        own = found.loc[network]
        return len(own) if column == "n" else format_range(own[column].dropna(), FORMS[column])

    return grid("network", known, COLUMNS, cell)


def range_table(columns: Mapping[tuple[str, str], str], min_distance: float) -> str:
    """Ranges over bits 2 to 6 and seeds of shares (``algorithm``, "") or contrasts (``algorithm``, ``against``)."""
    shares = read({*NETWORKS, *CONTROLS})[0]
    shares = shares[(shares["distance"] >= min_distance - STEP / 2) & shares["bit"].between(2, 6)]
    right = weighted_means(shares, ["network", "algorithm", "against", "seed", "bit"], ["right"])["right"].sort_index()
    known = {name: label for name, label in LABELS.items() if name in right.index.unique("network")}
    return grid("network", known, columns, lambda name, pair: format_range(right[name, *pair], ".0%"))


def multiplication_table() -> str:
    """A row for each network that multiplies: means over bits, all of them or those of `HALVES`."""
    shares, precision = read(MULTIPLICATIONS)
    curves = pd.read_csv(CURVES)
    curves["right"] = curves["ones"].clip(lower=1 - curves["ones"])  # in sample
    rule, by = shares[shares["algorithm"] == LOCAL_REMAINDER], ["network", "seed"]
    clear = rule[rule["distance"] >= CLEAR - STEP / 2]
    counted = [clear[clear["against"] == ""], rule[rule["against"] == ""], curves]
    counted += [clear[(clear["against"] == "erd") & clear["bit"].between(*bits)] for bits in HALVES]
    right = [rows.groupby(by)[[*rows]].apply(mean_over_bits).map("{:.0%}".format) for rows in counted]
    noise = [precision[precision["bit"].between(*bits)].groupby(by)["sigma"].apply(format_range) for bits in HALVES]
    cells = pd.concat(right + noise, axis=1).fillna("")
    lines = []
    for (name, seed), row in cells.reindex([*MULTIPLICATIONS], level="network").iterrows():
        label = MULTIPLICATIONS[name]
        lines.append([label if name == "mul_erd" else f"{label}, seed {seed}", *row])
    halves = ["bits {} to {}".format(*bits) for bits in HALVES]
    head = ["network", "rule, beyond 1/4", "rule, all", "best function of the running sum"]
    head += [f"rule, where it and `erd` differ, {halves[0]}", halves[1], f"noise of c, {halves[0]}", halves[1]]
    return markdown(head, *lines)


def tables() -> dict[str, str]:
    agreements = {(name, ""): f"`{name}`" for name in ALGORITHMS}
    contrasts = {pair: "`{}` against `{}`".format(*pair) for pair in CONTRASTS}
    found = {"agreements": range_table(agreements, STEP), "contrasts": range_table(contrasts, CLEAR)}
    return found | {"certificates": table(), "multiplication-certificates": multiplication_table()}


def draw(shares: pd.DataFrame) -> Figure:
    """The rule's share of the answers against the distance to the nearest rounding point, a line for each network."""
    figure, axes = style.subplots(9.6, 3.7, 1, 3, sharex=True, sharey=True)
    of_rule = shares[(shares["algorithm"] == LOCAL_REMAINDER) & (shares["against"] == "")]
    lines = weighted_means(of_rule, ["network", "seed", "distance"], ["right"])["right"].sort_index()
    labels: dict[str, tuple[str, str, Any]] = dict.fromkeys(NETWORKS, ("trained", BLUE, "-"))
    labels |= dict.fromkeys(STOPPED, ("ablated, stopped at 95%", ORANGE, "--"))
    looks = zip((BLUE, ORANGE, GREEN, GREY, INK), ("-", "--", "-.", ":", (5, (10, 3))), strict=True)
    labels |= {name: (name.removeprefix("control,"), *look) for name, look in zip(CONTROLS, looks, strict=True)}
    nanogpts = [name for name in NETWORKS if name.endswith("nanogpt")]
    transformers = [name for name in NETWORKS if name not in nanogpts]
    panels = {"Transformers": transformers, "nanoGPTs": nanogpts, "Controls": [*CONTROLS]}
    for ax, (title, names) in zip(axes, panels.items(), strict=True):
        for name in names:
            label, color, dashes = labels[name]
            for _, line in lines[lines.index.get_level_values("network") == name].groupby("seed"):
                x = np.minimum(line.index.get_level_values("distance") + STEP / 2, 1 / 2)
                ax.plot(x, line, linewidth=1.4, color=color, linestyle=dashes, label=label)
        ax.axvspan(0, CLEAR, color=GREY, alpha=0.1, linewidth=0)
        style.format_axes(ax, "y")
        style.set_panel_title(ax, title)
        ax.set_xlabel("distance to the nearest rounding point", fontsize=8)
        handles, texts = ax.get_legend_handles_labels()
        unique = dict(zip(texts, handles, strict=True))
        ax.legend(unique.values(), unique.keys(), frameon=False, fontsize=7.5, loc="lower right")
    axes[0].set_ylabel("answers that the rule gives", fontsize=8)
    return figure


def draw_curves(curves: pd.DataFrame) -> Figure:
    """How often a multiplying network answers 1, by the running sum: the rule's is a square wave."""
    figure, axes = style.subplots(9.6, 2.6, 1, len(SHOWN_BITS), sharey=True)
    looks = dict(zip(MULTIPLICATIONS, ((BLUE, "-"), (ORANGE, "-"), (INK, ":")), strict=True))
    for ax, bit in zip(axes, SHOWN_BITS, strict=True):
        of_bit = curves[(curves["bit"] == bit) & (curves["n"] >= MIN_SHOWN)]
        x = np.arange(of_bit["total"].min(), of_bit["total"].max(), STEP / 5)
        ax.plot(x, np.floor(x + 0.5) % 2, color=GREY, linewidth=1, label="the rule")
        for (network, _), line in of_bit.groupby(["network", "seed"]):
            color, dashes = looks[network]
            label = MULTIPLICATIONS[network].replace("`", "")
            ax.plot(line["total"] + CURVE_STEP / 2, line["ones"], dashes, color=color, linewidth=1.3, label=label)
        style.format_axes(ax, "y")
        style.set_panel_title(ax, f"bit {bit}")
        ax.set_xlabel("running sum", fontsize=8)
    axes[0].set_ylabel("answers that are 1", fontsize=8)
    style.legend_below(figure)
    return figure


def main() -> None:
    answers: list[Path] = []
    if again := sys.argv[1:] == ["--recount"]:
        answers = sorted(ANSWERS.glob("*.bin"))
    else:
        for argument in sys.argv[1:]:
            name, _, folder = argument.partition("=")
            if name not in LABELS or name == "mul_erd" or not (copied := collect(name, Path(folder))):
                accepted = f"--recount, or NAME=FOLDER with a folder of the probe: {', '.join(LABELS)}"
                raise SystemExit(f"received {argument!r}; expected {accepted}")
            answers += copied
    for tables in ([control()] if again else []) + [recount(path) for path in answers]:
        for path, rows in tables.items():
            replace_rows(path, rows)
    style.save_png(draw(read(LABELS)[0]), SHARES.with_suffix(".png"))
    style.save_png(draw_curves(pd.read_csv(CURVES)), CURVES.with_suffix(".png"))
    print(table(), multiplication_table(), sep="\n\n")


if __name__ == "__main__":
    main()
