"""Count the second preregistration: ``python -m arith_erd.paper.studies.fresh RUNS...``

RUNS are run directories with the rows of ``probe=certificate``, and of ``probe=place_value`` for Transformers. The
count is printed, and kept in ``results/fresh.csv``.
``--controls FOLDER`` checks the rows of hand-coded networks, FOLDER/NAME/rows.csv, instead.
"""

import argparse
import hashlib
from pathlib import Path

import pandas as pd

from arith_erd.bundled import RESULTS
from arith_erd.errors import UserError
from arith_erd.probes.certificate import mean_over_bits
from arith_erd.runs.directory import Run, require_runs
from arith_erd.stats import clopper_pearson
from arith_erd.system.cli_errors import one_line_errors

from ..formats import MODELS, markdown

MIN_ACCURACY = 0.999  # of all pairs, else a network is not counted
MIN_COUNTED, MIN_SHARE = 6, 0.8
BITS = range(2, 7)  # of contrasts and swaps
DISTANCE = {"transformer": 0.25, "nanogpt": 0.3}
ALGORITHM = {"transformer": "local_remainder", "nanogpt": "graded_carry"}
RIVALS = ("graded_carry", "remainder", "prefix_carry", "erd")
AT_LEAST = {
    "transformer": {"clear": 0.99, "swap_own": 0.99, **{f"against_{name}": 0.8 for name in RIVALS}},
    "nanogpt": {"clear": 0.985, "against_prefix_carry": 0.6},
}
AT_MOST = {"transformer": {"swap_earlier": 0.01}, "nanogpt": {"rule": 0.005}}
FILE = RESULTS / "fresh.csv"


def measures(folder: Path, seed: int, model: str) -> dict[str, float]:
    """The shares of one network from the tables of its certificate."""
    tables = (pd.read_csv(folder / name) for name in ("rows.csv", "contrasts.csv"))
    shares, contrasts = (table[(table["seed"] == seed) & (table["distance"] >= DISTANCE[model])] for table in tables)
    contrasts = contrasts[contrasts["bit"].isin(BITS)]
    found = {"clear": mean_over_bits(shares[shares["algorithm"] == ALGORITHM[model]])}
    for (algorithm, against), table in contrasts.groupby(["algorithm", "against"]):
        if algorithm == ALGORITHM[model]:
            found[f"against_{against}"] = mean_over_bits(table)
        elif model == "nanogpt" and against == ALGORITHM[model]:
            found["rule"] = mean_over_bits(table)
    return found


def swaps(rows: pd.DataFrame, seed: int) -> dict[str, float]:
    """The share of bits that flip if all layers read the other run."""
    rows = rows[(rows["seed"] == seed) & rows["bit"].isin(BITS) & rows["measure"].str.startswith("swap_")]
    last = rows[rows["site"] == max(rows["site"], key=lambda site: int(site.removeprefix("dec.")))]
    return {str(name): float(share) for name, share in last.groupby("measure")["value"].mean().items()}


def missed(found: dict[str, float], model: str) -> str:
    """The names of the bounds that are not met; one that was not measured is not met."""
    low = [name for name, bound in AT_LEAST[model].items() if not found.get(name, -1) >= bound]
    return " ".join(low + [name for name, bound in AT_MOST[model].items() if not found.get(name, 1) <= bound])


def count(runs: list[str]) -> pd.DataFrame:
    """A row for each network: its accuracy on all pairs, its measures, and the bounds that it misses."""
    rows = []
    for run in map(Run, [path for pattern in runs for path in require_runs(pattern, "runs")]):
        model = str(run.config()["model"]["name"])
        probes = run.path / "probes"
        for name in ("certificate", "place_value") if model == "transformer" else ("certificate",):
            if not (probes / name / "rows.csv").is_file():
                raise UserError(f"runs={run.path}: no {name}; probe={name} makes it")
        for entry in run.summary()["seeds"]:
            seed, accuracy = entry["seed"], 0.75 * entry["train_seq_acc"] + 0.25 * entry["val_seq_acc"]
            found = measures(probes / "certificate", seed, model)
            if model == "transformer":
                found |= swaps(pd.read_csv(probes / "place_value" / "rows.csv"), seed)
            row = {"model": model, "seed": seed, "accuracy": accuracy} | found | {"missed": missed(found, model)}
            rows.append(row | {"sha256": hashlib.sha256(run.weights_file(seed).read_bytes()).hexdigest()})
    return pd.DataFrame(rows)


def verdict(networks: pd.DataFrame) -> str:
    """The verdict on the networks of one model."""
    counted = networks[networks["accuracy"] >= MIN_ACCURACY]
    confirming = int((counted["missed"] == "").sum())
    if len(counted) < MIN_COUNTED:
        return f"undecided: {len(counted)} of {len(networks)} networks answer {MIN_ACCURACY:.1%} of the pairs"
    low, high = clopper_pearson(confirming, len(counted))
    said = "confirmed" if confirming >= MIN_SHARE * len(counted) else "not confirmed"
    return f"{said}: {confirming} of {len(counted)} networks meet every bound [{low:.0%}, {high:.0%}]"


def table() -> str:
    """A row for each network of the kept count, and the verdicts."""
    networks = pd.read_csv(FILE).fillna({"missed": ""})
    head = ["network", "right answers", "own algorithm, clear", "its least contrast", "swap own", "swap earlier"]
    lines, verdicts = [], []
    for model, rows in networks.groupby("model", sort=False):
        for row in rows.to_dict("records"):
            contrast = min(row[f"against_{name}"] for name in RIVALS if f"against_{name}" in AT_LEAST[str(model)])
            shares = (row["accuracy"], row["clear"], contrast, row["swap_own"], row["swap_earlier"], row["rule"])
            cells = ("" if pd.isna(share) else f"{share:.2%}" for share in shares)
            lines.append([f"{MODELS[str(model)]}, seed {row['seed']}", *cells, row["missed"].replace("_", " ")])
        verdicts.append(f"- **{MODELS[str(model)]}: {verdict(rows)}.**")
    return "\n".join([markdown([*head, "rule, against rival", "bounds missed"], *lines), "", *verdicts])


def check_controls(folder: Path) -> bool:
    """Print what each hand-coded network's certificate says, and return whether all controls hold."""
    holds = True
    for rows in sorted(folder.glob("*/rows.csv")):
        name, table = rows.parent.name, pd.read_csv(rows)
        own = mean_over_bits(table[(table["algorithm"] == name) & (table["distance"] > 0)])
        holds &= own == 1
        print(f"{name}: gives its own answers in {own:.2%}; misses")
        for model, algorithm in ALGORITHM.items():
            bounds = missed(measures(rows.parent, 0, model), model).split()
            holds &= any("swap" not in bound for bound in bounds) == (name != algorithm)
            print(f"  {model}: {bounds}")
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--controls", type=Path)
    options = parser.parse_args()
    if options.controls:
        raise SystemExit("" if check_controls(options.controls) else "a control failed")
    counted = count(options.runs)
    counted.to_csv(FILE, index=False, float_format="%.6g")
    print(counted.round(4).to_string(index=False))
    for model, networks in counted.groupby("model"):
        print(f"{model}: {verdict(networks)}")


if __name__ == "__main__":
    with one_line_errors():
        main()
