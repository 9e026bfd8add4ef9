"""Count the prediction of paper/preregistrations/1-one-sentence.md: one sentence about how trained networks add.

    python -m arith_erd.paper.studies.one_sentence paper/results/one-sentence.csv RUN.. AUTHORS handcoded:erd:0

An argument is a run directory (all its seeds), a file with the authors' addition weights, or ``handcoded:NAME:SEED``.
The rows are those of ``probe=place_value`` and ``encoder_table``, and the share of all pairs that the network answers
right; the score of each network is printed. The prediction was counted once by the version of this
script that was committed with it (7ecb56d), before the probes existed; its numbers are the same. A network takes about
a minute of one core.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

import arith_erd as ae
from arith_erd.bundled import RESULTS
from arith_erd.catalog.scoring import format_share
from arith_erd.models import NanoGPT
from arith_erd.plots.style import INK, legend_below, save_png, set_panel_title, subplots

from ..formats import format_range, grid, markdown
from ..probes.place_value import ONES, SLOPE, SWAP, draw_panel, ideal_slope

INTERCHANGE_SITES = {"transformer": "dec.5.resid_mid_cross", "nanogpt": "dec.3.resid_mid"}  # named before the count
CONTROL_SITE = "dec.6"
COUNTED_BITS = range(2, 7)  # bits of the score; bit 7 is measured too, but has no column of its own
FRESH_SEEDS = range(5, 15)
MIN_ACCURACY = 0.999  # of all pairs right
MIN_ANSWERS = 16  # of a share that is drawn
COLUMNS = ["network", "seed", "measure", "bit", "place", "c", "layer", "site", "value", "n"]


class Bound(NamedTuple):
    """What the preregistration says of a measure, ``together`` over bits and places; NaN does not meet it."""

    label: str
    clause: str
    measure: str
    direction: str
    limit: float
    form: str = ".0%"  # of values; a share's limit is a whole percentage
    together: str = "mean"

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.direction == "at most" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.direction} {self.limit:{self.form.replace('.1%', '.0%')}}"


CRITERIA = {
    "swap_own": Bound("swap own", "no carry of other positions", "swap_own", "at least", 0.99, ".1%"),
    "swap_earlier": Bound("swap earlier", "no carry of other positions", "swap_earlier", "at most", 0.01, ".1%"),
    "vectors": Bound("encoder table", "table", "vectors", "at least", 0.99),
    "agreement": Bound("agreement", "subtraction and threshold", "agreement_local_remainder", "at least", 0.90),
    "equal_c": Bound("same c", "subtraction and threshold", "interchange_equal", "at most", 0.15),
    "more_c": Bound("c + 1", "subtraction and threshold", "interchange_plus_low", "at least", 0.90),
    "slopes": Bound("slope error", "place value", "slope_error", "at most", 0.20, ".2f", together="max"),
    "graded_agreement": Bound("agreement with the rival", "the rival rule", "agreement_graded_carry", "at least", 0.90),
    "graded_form": Bound("answers as the rule", "the rival rule", "form", "at most", 0.10),
    "graded_range": Bound("c + 1, where bit t is 1", "the rival rule", "interchange_plus_high", "at most", 0.10),
}
OWN_CARRY = ("swap_own", "swap_earlier", "more_c")
PREDICTED = {
    "transformer": (*OWN_CARRY, "slopes", "agreement", "equal_c", "vectors"),
    "nanogpt": (*OWN_CARRY, "graded_agreement", "graded_form", "graded_range"),
}


def load_networks(argument: str) -> Iterator[tuple[str, str, ae.Hooked]]:
    """Name, site of the interchange and network of what an argument names."""
    if argument.startswith("handcoded:"):
        _, name, seed = argument.split(":")
        yield name, CONTROL_SITE, ae.load_handcoded(name, int(seed))
    elif Path(argument).is_dir():
        for model in ae.load_seeds(argument):
            kind = "nanogpt" if isinstance(model.network, NanoGPT) else "transformer"
            yield kind, INTERCHANGE_SITES[kind], model
    else:
        yield "authors", INTERCHANGE_SITES["transformer"], ae.load_weights(argument, ae.Add())


def measure_network(name: str, site: str, model: ae.Hooked) -> pd.DataFrame:
    rows = ae.probe("place_value", model, site=site).rows
    swap_site = rows["site"].where(rows["measure"].str.startswith("swap_"))
    layer = swap_site.str.removeprefix("dec.").astype(float)
    rows = rows.assign(layer=layer, site=rows["site"].mask(swap_site.notna()))
    examples = model.task.examples()
    of_network: list[dict[str, Any]] = [{"measure": "accuracy", "value": model.accuracy(), "n": len(examples)}]
    if not isinstance(model.network, NanoGPT):
        table = ae.probe("encoder_table", model).rows
        accuracy = table.loc[table["token"] == "all", "accuracy"].iloc[0]
        of_network.append({"measure": "vectors", "value": accuracy, "n": len(examples)})
    table = pd.concat([pd.DataFrame(of_network), rows]).assign(network=name, seed=model.seed)
    return table.reindex(columns=COLUMNS)


def score_networks(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each network: accuracy, every criterion over the `COUNTED_BITS` bits, and the bounds missed."""
    table = add_slope_errors(table)
    last = table["layer"].isna() | (table["layer"] == table["layer"].max())
    table = table[last & (table["bit"].isna() | table["bit"].isin(COUNTED_BITS))]
    rows = []
    for (name, seed), of_network in table.groupby(["network", "seed"], sort=False):
        row: dict[str, Any] = {"network": name, "seed": seed, "missed": ""}
        row["accuracy"] = of_network.loc[of_network["measure"] == "accuracy", "value"].iloc[0]
        for criterion in dict.fromkeys(PREDICTED["transformer"] + PREDICTED["nanogpt"]):
            bound = CRITERIA[criterion]
            row[criterion] = value = of_network.loc[of_network["measure"] == bound.measure, "value"].agg(bound.together)
            if criterion in PREDICTED.get(name, PREDICTED["transformer"]) and not bound.is_met(value):
                row["missed"] += f" {criterion}"
        rows.append(row)
    return pd.DataFrame(rows)


def add_slope_errors(table: pd.DataFrame) -> pd.DataFrame:
    """The rows, and ``slope_error``: how far each slope is from place value, which is ``expected``."""
    slopes = table[table["measure"].isin(["slope_operands", "slope_prefix"])]
    expected = [ideal_slope(row.place, row.bit, row.measure == "slope_operands") for row in slopes.itertuples()]
    errors = slopes.assign(measure="slope_error", value=(slopes["value"] - expected).abs(), expected=expected)
    return pd.concat([table, errors])


PANELS = {
    "Transformers": ("authors", "transformer"),
    "nanoGPTs": ("nanogpt",),
    "Control: the rule": ("local_remainder",),
    "Control: the rival rule": ("graded_carry",),
    "Control: carry off the last bit": ("prefix_carry",),
    "Control: the whole sum": ("erd",),
}


def draw_figures(table: pd.DataFrame, folder: Path) -> None:
    """Weights by place, who reads the carry, and answers against c: ``one-sentence-*.png``."""
    table = table.assign(seed=table["network"] + table["seed"].astype(str))
    accurate = table.loc[(table["measure"] == "accuracy") & (table["value"] >= MIN_ACCURACY), "seed"]
    table = table[table["seed"].isin(accurate) & ~(table["n"] < MIN_ANSWERS)]  # slopes have no n
    titles = {
        "weights": (SLOPE, "how much does each lower bit weigh in bit t?"),
        "reads": (SWAP, "position t, or all earlier ones, read another run in layers 1 to l"),
        "answers": (ONES, "answers of bit t against c, where a_t = b_t = 0"),
    }
    table = table[table["layer"].notna() | ~table["measure"].str.startswith("swap_")]
    for name, (measures, text) in titles.items():
        figure, axes = subplots(9, 7, 2, 3, sharex=True, sharey=True)
        for ax, (title, networks) in zip(axes.flat, PANELS.items(), strict=True):
            rows = table[table["network"].isin(networks) & table["measure"].str.startswith(measures)]
            draw_panel(ax, rows, measures)
            set_panel_title(ax, title, f"{count} networks" if (count := rows["seed"].nunique()) > 1 else "")
            ax.label_outer()
        figure.suptitle(f"Addition: {text}", fontsize=11, fontweight="bold", color=INK)
        legend_below(figure)
        save_png(figure, folder / f"one-sentence-{name}.png")


SLOPES = {
    "operands": "largest distance from place value, operand bits",
    "prefix": "largest distance from place value, prefix bits",
    "weight": "all prefix weights together, relative to the operand weights (looked at afterwards)",
    "threshold": "fitted threshold, by network and bit",
}


def tables() -> dict[str, str]:
    """How the networks meet the criteria, and the weights of lower bits."""
    rows = pd.read_csv(RESULTS / "one-sentence.csv")
    scores = score_networks(rows)
    fresh = scores["seed"].isin(FRESH_SEEDS) & (scores["accuracy"] >= MIN_ACCURACY)
    counted = dict(iter(scores[fresh | ~scores["network"].isin([*PREDICTED])].groupby("network", sort=False)))
    labels = {"authors": "the authors' weights", "transformer": "fresh Transformers", "nanogpt": "fresh nanoGPTs"}
    shown = {name: bound.label for name, bound in CRITERIA.items() if bound.clause != "the rival rule"}

    def of_network(name: str, measure: str) -> object:
        if measure == "n":
            return len(counted[name])
        if measure == "missed":
            return (counted[name]["missed"] == "").sum()
        key = "graded_agreement" if (name, measure) == ("nanogpt", "agreement") else measure
        return format_range(counted[name][key].dropna(), CRITERIA[measure].form)

    def met(measure: str, model: str) -> str:
        if measure not in PREDICTED[model]:
            return ""
        missed = counted[model]["missed"]
        return format_share(sum(measure not in names.split() for names in missed), len(missed))

    def slopes(what: str, model: str) -> str:
        of_model = rows[(rows["network"] == model) & rows["seed"].isin(counted[model]["seed"])]
        of_model = of_model[of_model["bit"].isin(COUNTED_BITS)]
        if what == "threshold":
            rule = {"transformer": "local_remainder", "nanogpt": "graded_carry"}[model]
            return format_range(of_model.loc[of_model["measure"] == f"threshold_{rule}", "value"])
        if what == "weight":
            total = of_model.assign(value=of_model["value"].abs()).groupby(["measure", "seed"])["value"].sum()
            return format_range(total["slope_prefix"] / total["slope_operands"])
        errors = add_slope_errors(of_model).query("measure == 'slope_error'")
        side = errors["expected"] > 0 if what == "operands" else errors["expected"] <= 0
        return format_range(errors[side].groupby("seed")["value"].max())

    networks = {name: labels.get(name, f"control, `{name}`") for name in counted}
    models = {"transformer": "Transformers", "nanogpt": "nanoGPTs"}
    criteria = ([x.clause, x.label, x, *(met(name, model) for model in models)] for name, x in CRITERIA.items())
    return {
        "one_sentence": grid("network", networks, {"n": "n", **shown, "missed": "meets all"}, of_network),
        "criteria": markdown(["clause", "measure", "bound", *models.values()], *criteria),
        "slopes": grid("lowest to highest", SLOPES, models, slopes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("networks", nargs="*", help="none: print the score of OUT as it is")
    parser.add_argument("--figures", action="store_true", help="draw one-sentence-*.png beside OUT")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = []
    for argument in options.networks:
        for subject in load_networks(argument):
            tables.append(measure_network(*subject))
            pd.concat(tables).to_csv(options.out, index=False, float_format="%.5g")
    table = pd.read_csv(options.out)
    print(score_networks(table).round(3).to_string(index=False))
    if options.figures:
        draw_figures(table, options.out.parent)


if __name__ == "__main__":
    main()
