"""Run directories as training and the probes would leave them, made up: nothing is trained."""

import json
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from arith_erd.bundled import CONF
from arith_erd.config.compose import compose
from arith_erd.config.run_names import run_name
from arith_erd.plots.tables import column_kinds
from arith_erd.report.claims_file import Paper, load_paper
from arith_erd.report.collect import RunData, collect
from arith_erd.runs.directory import METRIC_COLUMNS, Run
from arith_erd.seeds import parse_seeds
from tests.values import put

Values = float | None | Sequence[float | None]
VERSIONS = {"arith_erd": "0.1.0", "commit": "abc1234", "python": "3.11.7", "torch": "2.13.0", "lightning": "2.6.6"}
MEASURED = Path(__file__).parents[3] / "paper" / "results" / "runs" / "probes"  # on the authors' weights


@cache
def _composed(*overrides: str) -> dict[str, Any]:
    return compose("train", overrides).resolved


def learning_curve(epochs: int, reach: float | None, final: float | None) -> np.ndarray:
    """Accuracies (epochs,) that rise to ``final``: at epoch ``reach``, or for the last ten epochs if it is None."""
    epoch = np.arange(1, epochs + 1)
    curve = 0.94 * epoch / reach if reach else final * epoch / epochs
    curve[epoch >= (reach or epochs - 9)] = final
    return curve


class Synthetic:
    """A folder of runs to fill."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def run(
        self,
        *overrides: str,
        seeds: str = "0-4",
        epochs: int = 50,
        reach: Values = 39.0,
        final: Values = 1.0,
        train_final: Values = None,
        finished: bool = True,
        every: int = 1,
        settings: dict[str, Any] | None = None,
        summary: dict[str, Any] | None = None,
    ) -> Run:
        """A run with overrides such as ``task=mul``; a value holds for all seeds, or is a list with one for each.

        ``metrics.csv`` has a row ``every`` so many epochs. ``settings`` are dotted keys of the configuration,
        ``summary`` extra values of every seed.
        """
        numbers = parse_seeds(seeds)
        config = _composed(*overrides) | {"seed": seeds, "runs_dir": str(self.root)}
        config = put(config, "trainer.max_epochs", epochs if finished else 2 * epochs)
        for key, value in (settings or {}).items():
            config = put(config, key, value)
        run = Run(self.root / run_name(config))
        run.create(config)
        reaches, ends, trained = (
            [*values] if isinstance(values, Sequence) else [values] * len(numbers)
            for values in (reach, final, train_final)
        )
        curves = [*map(learning_curve, repeat(epochs), reaches, ends)]
        pairs = zip(curves, trained, strict=True)
        train = [curve if end is None else learning_curve(epochs, None, end) for curve, end in pairs]
        table = {"epoch": np.repeat(np.arange(1, epochs + 1), len(numbers)), "seed": np.tile(numbers, epochs)}
        table |= {"val_seq_acc": np.stack(curves, 1).ravel(), "train_seq_acc": np.stack(train, 1).ravel()}
        rows = pd.DataFrame(table).assign(train_loss=0.5, train_token_acc=0.9, val_token_acc=0.8, seconds=25.0)
        rows = rows[(rows["epoch"] % every == 0) | rows["epoch"].isin([1, epochs])]
        rows[list(METRIC_COLUMNS)].to_csv(run.path / "metrics.csv", index=False, float_format="%.9g")
        if finished:
            last = rows[rows["epoch"] == epochs].drop(columns=["epoch", "seconds"])
            reached = [int(np.argmax(c >= 0.95)) + 1 if c.max() >= 0.95 else None for c in curves]
            last = last.assign(val_token_acc_autoregressive=0.8, val_mae=40 * (1 - last["val_seq_acc"]))
            last = last.assign(epochs_to_95=np.array(reached, dtype=object), **(summary or {}))
            about = {"status": "finished", "params": 701_381, "epochs": epochs, "device": "a CPU, 1 thread"}
            about |= {"wall_seconds": 25.0 * epochs * len(numbers), "train_flops": 1e12, "versions": VERSIONS}
            run.finish(about | {"seeds": last.to_dict("records")})
        return run

    def probe(self, folder: Path, name: str, rows: pd.DataFrame, options: dict[str, Any] | None = None) -> Path:
        """``rows.csv`` and ``probe.json`` of a probe, in a run directory or, with its task in ``name``, in ``runs``.

        ``options`` are dotted keys of the settings, such as ``task.bits``.
        """
        target = folder / "probes" / name
        target.mkdir(parents=True, exist_ok=True)
        probe, *groups = name.split("-")
        settings: dict[str, Any] = {"probe": yaml.safe_load((CONF / "probe" / f"{probe}.yaml").read_text())}
        for group, option in zip(("task", "split"), groups, strict=False):
            settings[group] = yaml.safe_load((CONF / group / f"{option}.yaml").read_text())
        for key, value in (options or {}).items():
            settings = put(settings, key, value)
        rows.to_csv(target / "rows.csv", index=False)
        columns = column_kinds(rows, {"correlation": "correlation"})
        (target / "probe.json").write_text(json.dumps({"name": probe, "columns": columns, "settings": settings}))
        return target / "rows.csv"

    def measured(self, folder: Path, seeds: Sequence[int], name: str = "distance_correlation", **values: float) -> Path:
        """Give these seeds the rows of a probe of the authors' weights, with some values replaced."""
        (path,) = MEASURED.glob(f"{name.partition('-')[0]}-add-*/rows.csv")
        return self.probe(folder, name, pd.concat([pd.read_csv(path).assign(seed=seed, **values) for seed in seeds]))

    def data(self, *others: Path, paper: Paper | None = None) -> RunData:
        """These runs, and those of other folders, as a report reads them."""
        return collect([self.root, *others], (paper or load_paper()).setup)

    def discontinuity(self, task: str = "add", options: dict[str, Any] | None = None) -> Path:
        """``probe=discontinuity`` of a task, which needs no run; the cell in the middle is as the paper prints it."""
        rows = pd.DataFrame({"task": task, "input_bits": [1, 2, 3], "output_bits": 3, "percent": [10.0, 27.88, 10.0]})
        return self.probe(self.root, f"discontinuity-{task}", rows, options)


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """An empty folder of runs: ``synthetic.run("task=mul", seeds="0-4")``."""
    return Synthetic(tmp_path / "runs")
