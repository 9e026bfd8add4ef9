"""List runs with their progress, or accuracy by a setting, as a table, CSV or JSON."""

import argparse
import json
import sys
from itertools import product

import pandas as pd

from ..checks import as_python, user_path
from ..errors import UserError, bad_value, counted, printable, unknown_name
from ..plots.tables import csv_text, format_measure, print_table
from ..system.cli_errors import one_line_errors
from ..system.files import atomic_file
from ..system.signals import catch_signals
from .directory import FINISHED
from .table import accuracy_by_slice, load_table, mean_accuracies, settings_columns

COLUMNS = ["run", "state", "epochs", "max_epochs", "val_seq_acc", "worst", "device", "age"]
"""Columns of a list, before the settings that differ. Accuracies are fractions of the validation sequences after the
last epoch: the mean over the seeds, and the worst seed. The age is in seconds since the last write."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="arith-runs", description=__doc__)
    parser.add_argument("runs", nargs="*", default=["runs"], help="a folder of runs, or run directories; default: runs")
    parser.add_argument("--sort", metavar="COLUMN", default="run", help="column to sort by; default: run")
    parser.add_argument("--reverse", action="store_true", help="largest first")
    by = "mean accuracy of finished runs by these settings, such as split.fraction, or by length"
    parser.add_argument("--by", metavar="KEY,...", help=by)
    plot = "with --by: also draw the means against the first setting, as PNG"
    parser.add_argument("--plot", metavar="FILE", type=lambda text: user_path(text, "--plot"), help=plot)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--csv", action="store_true", help="print CSV: accuracies as fractions, ages in seconds")
    output.add_argument("--json", action="store_true", help="print JSON, with the same units")
    with one_line_errors(), catch_signals():
        options = parser.parse_args()
        if options.by is not None and (options.sort != "run" or options.reverse):
            raise bad_value("--by", options.by, "neither --sort nor --reverse, which order the list of runs")
        if options.plot and not options.by:
            raise bad_value("--plot", options.plot, "--by KEY too, the setting for the horizontal axis")
        if options.plot and options.plot.suffix != ".png":
            raise bad_value("--plot", options.plot, "a file that ends in .png")
        if options.plot and not options.plot.parent.is_dir():
            raise bad_value("--plot", options.plot, "a file in a folder that exists")
        keys = [] if options.by is None else options.by.split(",")
        runs = options.runs[0] if len(options.runs) == 1 else options.runs
        table = load_table(runs, [*keys, *(f"{key}.name" for key in keys), "split.trained"])
        for path, problem in table.loc[table["problem"] != "", ["path", "problem"]].drop_duplicates().to_numpy():
            print(f"{path}: {problem}", file=sys.stderr)
        if keys:
            table, result = accuracy_by_settings(table, keys)
        else:
            result = list_runs(table, options.sort, options.reverse)
        if options.plot:
            from ..plots.curves import draw_by_setting  # matplotlib takes a while
            from ..plots.style import save_png

            with atomic_file(options.plot) as partial:
                save_png(draw_by_setting(result, table), partial)
        if options.json:
            rows = result.astype(object).where(result.notna(), None).to_dict("records")  # `to_json` rounds numbers
            print(json.dumps(rows, indent=2, default=as_python))
        elif options.csv:
            print(csv_text(result), end="")
        else:
            print_table(format_means(result) if keys else format_runs(result))


def list_runs(table: pd.DataFrame, sort: str = "run", reverse: bool = False) -> pd.DataFrame:
    """A row for each run of `load_table`: `COLUMNS`, then settings that differ. Unknown values are sorted last."""
    by_run = table.assign(worst=table["val_seq_acc"]).groupby("path", sort=False)
    columns = dict.fromkeys([*COLUMNS, *settings_columns(table)], "first") | {"val_seq_acc": "mean", "worst": "min"}
    columns |= {"epochs": "max"}  # a seed that stopped at an accuracy has fewer
    runs, column = by_run.agg(columns), "val_seq_acc" if sort == "accuracy" else sort
    if column not in runs:
        raise unknown_name("--sort", sort, (*runs, "accuracy"))
    if runs[column].dtype == object:  # texts beside numbers cannot be compared
        runs[column] = runs[column].map(str, na_action="ignore")
    return runs.sort_values([column, "run"], ascending=[not reverse, True], ignore_index=True)


def accuracy_by_settings(table: pd.DataFrame, keys: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The finished runs and their `mean_accuracies` by settings; stderr says which settings are pooled or left out.

    For runs on drawn examples one key may be ``length`` or ``longest_carry`` (`accuracy_by_slice`).
    """
    known = settings_columns(table)
    kinds = [key for key in keys if key in ("length", "longest_carry")]
    if len(kinds) > 1:
        raise bad_value("--by", ",".join(keys), "one of length and longest_carry")
    for kind in kinds:
        table, known = accuracy_by_slice(table, kind), [*known, kind]
    keys = [f"{key}.name" if f"{key}.name" in known else key for key in keys]
    for key in keys:
        if key not in (*known, "seed"):
            examples = [name for name in known if name not in keys] or ["task"]
            raise unknown_name("--by", key, known, f"a setting of these runs, such as {', '.join(examples)}")
    if len({*keys}) < len(keys):
        raise bad_value("--by", ",".join(keys), "each setting once")
    finished = table[table["state"] == FINISHED].copy()
    if finished.empty:
        raise UserError(f"--by {','.join(keys)}: expected finished runs that have it; found none")
    if unfinished := table["path"].nunique() - finished["path"].nunique():
        print(f"left out {counted(unfinished, 'unfinished run')}", file=sys.stderr)
    groups = finished.groupby(keys, dropna=False)
    if pooled := [key for key in known if key not in keys and (groups[key].nunique(dropna=False) > 1).any()]:
        print(f"averaged over {', '.join(pooled)}; add these keys to --by to separate them", file=sys.stderr)
    means = mean_accuracies(finished, keys)
    for table, key in product((finished, means), keys):  # after grouping, which sorts numbers before it
        if table[key].isna().any():
            table[key] = table[key].astype(object).where(table[key].notna(), "null")
    return finished, means


def format_means(means: pd.DataFrame) -> pd.DataFrame:
    texts = [format_measure(*row) for row in means[["accuracy", "ci_low", "ci_high"]].to_numpy(dtype=float)]
    return means.drop(columns=["accuracy", "ci_low", "ci_high"]).assign(**{"accuracy [95%]": texts})


def format_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Format `list_runs` for people. Names are last, since they are long and a terminal may wrap them."""
    return pd.DataFrame(
        {
            "epochs": [f"{a}/{b}" if pd.notna(a) else "" for a, b in runs[["epochs", "max_epochs"]].to_numpy()],
            "accuracy": runs["val_seq_acc"].map(format_measure),
            "worst": runs["worst"].map(format_measure),
            "age": runs["age"].map(format_age),
            "state": runs["state"],
            "device": runs["device"].astype(object).fillna("").str[:40],
            "run": runs["run"].map(printable),
        }
    )


def format_age(seconds: float) -> str:
    """A duration as text: ``40 s``, ``12 min``, ``3 h``, ``9 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
