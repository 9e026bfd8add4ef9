"""What becomes causal first while networks learn to add, the carry or the sum, and when relative to 95%?

    python train.py task.bits=5 model=nanogpt model.net.num_layers=3 data.batch_size=32 trainer.max_epochs=56 \\
        checkpoint.keep=log seed=0-19
    python benchmarks/mechanism_training.py results/mechanism-training.csv runs/NAME

Each network is measured after every epoch whose weights were kept, with the tests and bars of a card. The rows go to
``mechanism-training-epochs.csv``, beside the file that is named; what is there is not measured again, so the same
command continues. From them the file gets one row per seed:

    reaches_95, reaches_100     first epoch at which validation sequence accuracy is there, of all epochs
    carry_held, xor_held        first kept epoch from which on the answer changes with a position that comes from a run
                                where only the carry, or only a_t xor b_t, differs (`mechanism.patching`)
    carry_followed, sum_followed
                                first kept epoch from which on the answer follows the carry's or the sum's least-squares
                                direction (`mechanism.signature`)

A bit passes if at least half of its answers do; a variable, if at least half of the bits where it can be measured pass,
at this epoch and at all later ones. At five bits a carry can be told apart in two bits. ``..._all`` asks for all of the
bits. Empty: never. ``verdict`` is the card's at the last epoch, and ``others`` are the verdicts before 95% that are not
``none``.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.loading import Epochs, chosen_epochs, load_run
from arith_erd.mechanism.evidence import Evidence
from arith_erd.mechanism.patching import patch
from arith_erd.mechanism.signature import EFFECT, expected_signatures, measure
from arith_erd.mechanism.verdict import decide
from arith_erd.runs import Run, epochs_to
from arith_erd.seeds import parse_seeds
from arith_erd.system.boundary import one_line_errors
from arith_erd.system.files import write_atomically
from arith_erd.tasks import Add

FOLLOWED = {"carry_followed": "carry", "sum_followed": "value"}
HELD = {"carry_held": "carry", "xor_held": "xor"}
VARIABLES = (*HELD, *FOLLOWED)
BARS = {"": 0.5, "_all": 1.0}
FIRST = tuple(name + bar for name in VARIABLES for bar in BARS)
MEASURED = ("run", "seed", "epoch", "right", "verdict", *VARIABLES, "cpu_seconds")


def measured(subject: Hooked, pairs: int, moved: int) -> dict[str, object]:
    """Right answers, the verdict, and for each variable the share of bits that pass."""
    if not isinstance(subject.task, Add):
        raise UserError(f"{subject.name}: received task={subject.task.name}; expected runs of task=add")
    start = time.process_time()
    found = measure(subject, pairs, moved)
    verdict = decide(found, expected_signatures(subject.task))
    evidence = Evidence(list(patch(subject, moved)), pd.DataFrame(), [])
    shares = {}
    for variable, component in FOLLOWED.items():
        of_bits = found.components[component][np.isfinite(found.components[component])]
        shares[variable] = float((of_bits >= EFFECT).mean()) if len(of_bits) else float("nan")
    for variable, name in HELD.items():
        positions = dict.fromkeys(p.position for p in evidence.patched if p.variable == name)
        shares[variable] = float(np.mean([evidence.appears(name, t) is not None for t in positions]))
    seconds = round(time.process_time() - start, 2)
    return {"right": found.accuracy, "verdict": verdict.name, **shares, "cpu_seconds": seconds}


def lasting(rows: pd.DataFrame, passes: pd.Series) -> float:
    """The first epoch from which on all rows pass; NaN if the last one does not."""
    return rows.loc[passes[::-1].cummin()[::-1], "epoch"].min()


def first_epochs(run: Run, rows: pd.DataFrame) -> list[dict[str, object]]:
    """One row per seed of a run, from its rows of all epochs."""
    history = run.metrics()
    table = []
    for seed, of_seed in rows.sort_values("epoch").groupby("seed"):
        reached = {f"reaches_{percent}": epochs_to(history, int(seed), percent / 100) for percent in (95, 100)}
        first = {
            f"{name}{bar}": lasting(of_seed, of_seed[name] >= least)
            for name in VARIABLES
            for bar, least in BARS.items()
        }
        before = of_seed[of_seed["epoch"] < (reached["reaches_95"] or np.inf)]
        others = sorted(set(before["verdict"]) - {"none"})
        ends = {"last_epoch": of_seed["epoch"].iloc[-1], "verdict": of_seed["verdict"].iloc[-1]}
        table.append({"run": run.name, "seed": seed, **reached, **first, **ends, "others": " ".join(others)})
    return table


def fill(runs: Sequence[Run], rows: pd.DataFrame, file: Path, options: argparse.Namespace) -> None:
    """Measure what the rows lack, and write the file after each network."""
    done = set(zip(rows["run"], rows["seed"], rows["epoch"], strict=True))
    wanted: Epochs = "all" if options.epochs is None else parse_seeds(options.epochs)
    for run in runs:
        seeds = parse_seeds(run.config()["seed"])
        for epoch in chosen_epochs(run, seeds, wanted):
            for seed in seeds:
                if (run.name, seed, epoch) not in done:
                    subject = load_run(run.path, seed, epoch)
                    found = measured(subject, options.pairs, options.moved)
                    rows.loc[len(rows)] = pd.Series({"run": run.name, "seed": seed, "epoch": epoch} | found)
                    write_atomically(file, rows.to_csv(index=False, float_format="%.4g"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs that kept their weights over time")
    parser.add_argument("--epochs", help="of those that were kept, as 1-20,30 (all)")
    parser.add_argument("--pairs", type=int, default=256, help="that get wrong prefixes (256)")
    parser.add_argument("--moved", type=int, default=128, help="that are steered, and patched (128)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    beside = options.out.with_name(f"{options.out.stem}-epochs.csv")
    rows = pd.read_csv(beside) if beside.is_file() else pd.DataFrame(columns=list(MEASURED))
    runs = [Run(path) for path in options.runs]
    with one_line_errors():
        fill(runs, rows, beside, options)
    table = pd.DataFrame([row for run in runs for row in first_epochs(run, rows[rows["run"] == run.name])])
    table = table.astype(dict.fromkeys(("reaches_95", "reaches_100", *FIRST), "Int64"))
    write_atomically(options.out, table.to_csv(index=False))
    print(table.drop(columns="run").to_string(index=False))
    print(f"{pd.to_numeric(rows['cpu_seconds']).mean():.1f} CPU seconds a network and epoch")


if __name__ == "__main__":
    main()
