"""The angle between what linear probes read and what a trained network uses, in networks trained to hold a variable.

    python -m arith_erd.paper.studies.angles paper/results/angles.csv RUN..  # of loss=interchange, as of scripts/zoo.sh

A row is a network, what is read, and the coordinates of the site that training assigned to a variable: ``accuracy`` is
that of interchanging them, on 300 pairs. Angles are principal, in degrees, between these coordinates and a direction at
the middle answer position: that which LEACE erases (``leace``), and the weights of a least-squares probe, with all
directions along which activations vary (``least_squares``) and with those of at least 3% of the largest deviation
(``least_squares_strong``); ``r2`` and ``r2_strong`` are the probes'. ``bit`` is the sum's bit at this position. Where
another variable than the one of the coordinates is read, the row is a control. A few seconds of one core a network.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import arith_erd as ae
from arith_erd.bundled import RESULTS
from arith_erd.interp.das_controls import principal_angles
from arith_erd.interp.erasure import probe_predictions, whiten
from arith_erd.runs.directory import Run
from arith_erd.system.cli_errors import one_line_errors

from ..formats import format_range, markdown
from .zoo import HELD, trained_by

STRONG = 0.03
READ = {"sum": ("sum", "bit", "xor"), "carry": ("carry", "xor"), "xor": ("xor", "carry")}  # in these coordinates


@torch.no_grad()
def angles(x: Tensor, z: Tensor, assigned: Tensor) -> dict[str, float]:
    """Angles of the probes of z (N,) on activations (N, C) to orthonormal columns (C, k)."""
    row = {"leace": principal_angles(assigned, ae.leace(x, z).left)[0]}
    for name, white in (("", whiten(x)), ("_strong", whiten(x, STRONG))):
        row[f"least_squares{name}"] = principal_angles(assigned, ae.leace(white, z).right)[0]
        error = (z[:, None] - probe_predictions(white, z[:, None])).square().mean()
        row[f"r2{name}"] = float(1 - error / z.var(correction=0))
    return row


def measure(model: ae.Hooked, variable: str, site: str, first: int, last: int) -> list[dict[str, Any]]:
    """The rows of a network and the coordinates ``first`` to ``last`` of a site, which hold a variable."""
    position, examples, adder = model.task.answer_length // 2, model.task.examples(), ae.CausalModel(model.task)
    digit = model.task.answer_positions[position]
    x = model.run_with_cache(examples, site)[1][site][:, position].double()
    assigned = torch.eye(x.shape[1], dtype=torch.float64)[:, first : last + 1]
    pairs = ae.CounterfactualDataset.sample(adder, variable, n=300, digit=digit)
    interchange = ae.Interchange(site, position, ae.Subspace(assigned))
    (accuracy,) = ae.interchange_accuracy(model, adder, pairs, interchange, variable=variable)["accuracy"]
    values = adder.values(examples)
    values["bit"] = adder.answers(values)
    rows = []
    for read in READ[variable]:
        z = torch.from_numpy(values[read] if values[read].ndim == 1 else values[read][:, digit]).double()
        rows.append({"variable": variable, "accuracy": float(accuracy), "read": read, **angles(x, z, assigned)})
    return rows


def table() -> str:
    """Angles between the coordinates that hold a variable and what probes read, by kind of network."""
    columns = {"leace": "LEACE", "least_squares": "least squares", "least_squares_strong": "without weak directions"}
    lines = [["network holds", "coordinates of", "read", *columns.values(), "its R²"]]
    table = pd.read_csv(RESULTS / "angles.csv").query("network == 'nanogpt' and bits == 7")
    for (kind, variable, read), rows in table.groupby(["trained_by", "variable", "read"], sort=False):
        cells = [format_range(rows[name], ".0f") for name in columns] + [format_range(rows["r2_strong"])]
        lines.append([HELD[kind], f"`{variable}`", f"`{read}`", *cells])
    return markdown(*lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    options = parser.parse_args()
    rows = []
    for path in options.runs:
        config = Run(path).config()
        kind = {"network": config["model"]["name"], "bits": config["task"]["bits"]}
        kind["trained_by"] = trained_by(loss := config["model"]["loss"])
        held = {name: at for name, at in loss["variables"].items() if name in READ}
        for model, (variable, at) in product(ae.load_seeds(path), held.items()):
            rows += [{**kind, "seed": model.seed, **row} for row in measure(model, variable, at["site"], *at["dims"])]
    pd.DataFrame(rows).to_csv(options.table, index=False, float_format="%.4g")


if __name__ == "__main__":
    with one_line_errors():
        main()
