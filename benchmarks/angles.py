"""The angle between what linear probes read and what a trained network uses, in networks trained to hold a variable.

    python benchmarks/angles.py results/angles.csv runs/add-random-nanogpt-*-interchange_training-*

A row is a network, a variable and the middle answer position. *Used* are the coordinates that training assigned to the
variable, and the direction that distributed alignment search finds (rank 1). *Read* are the direction that LEACE erases
and the weights of a least-squares probe. Angles are principal, in degrees; ``random_low`` and ``random_high`` are the
5% and 95% quantiles of a random direction's angle to the coordinates. Half a minute of one core a network.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from zoo import trained_by  # beside this file

import arith_erd as ae
from arith_erd.mechanism.controls import principal_angles
from arith_erd.runs.directory import Run
from arith_erd.system.cli_errors import one_line_errors


@torch.no_grad()
def measure_angles(
    model: ae.Hooked, adder: ae.CausalModel, variable: str, site: str, dims: list[int]
) -> dict[str, float]:
    """The accuracies of interchanges of what is used, and its angles to what is read, at the middle answer position."""
    position = model.task.answer_length // 2
    digit = model.task.answer_positions[position]
    pairs = [ae.CounterfactualDataset.sample(adder, variable, n=n, digit=digit, seed=n) for n in (800, 300)]
    with torch.enable_grad():
        found = ae.fit_das(model, adder, pairs[0], site, position, variable)
    examples = model.task.examples()
    x = model.run_with_cache(examples, site)[1][site][:, position]
    values = torch.from_numpy(adder.values(examples)[variable]).double()
    probe = ae.leace(x, values if values.dim() == 1 else values[:, digit])
    assigned = torch.eye(x.shape[1], dtype=torch.float64)[:, dims[0] : dims[1] + 1]
    random = torch.randn(1000, x.shape[1], 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row = {}
    for name, subspace in (("assigned", ae.Subspace(assigned)), ("das", found)):
        interchange = ae.Interchange(site, position, subspace)
        (accuracy,) = ae.interchange_accuracy(model, adder, pairs[1], interchange, variable=variable)["accuracy"]
        row[f"{name}_accuracy"] = float(accuracy)
        for read, directions in (("leace", probe.left), ("least_squares", probe.right)):
            row[f"{name}_{read}"] = principal_angles(subspace.directions, directions)[0]
    row["assigned_das"] = principal_angles(assigned, found.directions)[0]
    low, high = np.quantile([principal_angles(assigned, direction)[0] for direction in random], (0.05, 0.95))
    return row | {"random_low": low, "random_high": high}


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
        for model, (variable, at) in product(ae.load_seeds(path), loss["variables"].items()):
            if "dims" in at:
                measured = measure_angles(model, ae.CausalModel(model.task), variable, at["site"], at["dims"])
                rows.append({**kind, "seed": model.seed, "variable": variable, **measured})
        pd.DataFrame(rows).to_csv(options.table, index=False, float_format="%.4g")


if __name__ == "__main__":
    with one_line_errors():
        main()
