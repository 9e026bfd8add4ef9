"""Run directories as training and the probes would leave them, made up: nothing is trained."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure

from arith_erd.config.compose import CONF, compose
from arith_erd.config.names import run_name
from arith_erd.plots.sheet import Sheet
from arith_erd.report import figures as report_figures
from arith_erd.report.__main__ import build
from arith_erd.report.claims import Result
from arith_erd.report.collect import Collection
from arith_erd.report.paper import Paper, PaperFigure
from arith_erd.runs import METRICS, Run
from arith_erd.seeds import parse_seeds
from arith_erd.splits import RandomSplit, TokenSplit, ValueSplit
from arith_erd.tasks import Add, Mul, RandomOutput

Values = float | None | Sequence[float | None]
TASKS = {"add": Add, "mul": Mul, "random_output": RandomOutput}
SPLITS = {"random": RandomSplit, "vs_t": TokenSplit, "vs_v": ValueSplit}
PARAMS = {"transformer": 701_381, "nanogpt": 297_600}
TOKENS = {"add": 23, "mul": 29, "random_output": 23}
WIDTH = {"add": 8, "mul": 14, "random_output": 8}
VERSIONS = {"arith_erd": "0.1.0", "commit": "abc1234", "python": "3.11.7", "torch": "2.13.0", "lightning": "2.6.6"}
TOKEN_CURVE, VALUE_CURVE = (0.96, 0.82, 0.61, 0.74, 0.8, 0.96), (0.25, 0.74, 0.89, 0.73, 0.62, 0.45)


@cache
def _composed(*overrides: str) -> dict[str, Any]:
    return compose("train", overrides).resolved


def configuration(*overrides: str) -> dict[str, Any]:
    """What ``train.py`` would make of ``task=mul``, ``ablation=one_head`` or ``task.prompt_order=plain``; Hydra would
    take a quarter of a second for each."""
    config = copy.deepcopy(_composed())
    for override in overrides:
        key, value = override.split("=")
        if "." in key:
            put(config, key, value)
            continue
        if key == "model":  # with the optimiser that its file chooses
            config["model"] = copy.deepcopy(_composed(override)["model"])
            continue
        option = yaml.safe_load((CONF / key / f"{value}.yaml").read_text())
        if key == "ablation":
            config["ablation"] = option["ablation"]
            config["model"]["net"] |= option.get("model", {}).get("net", {})
        else:
            config[key] = option
    return config


def put(config: dict[str, Any], key: str, value: Any) -> None:
    *groups, last = key.split(".")
    for group in groups:
        config = config[group]
    config[last] = value


def learning_curve(epochs: int, reach: float | None, final: float) -> np.ndarray:
    """Accuracies (epochs,): 95% first at epoch ``reach`` or never, ``final`` in the last ten epochs."""
    epoch = np.arange(1, epochs + 1)
    middle = 0.8 * (reach or epochs)
    rise = 1 / (1 + np.exp(-(epoch - middle) / (0.06 * middle + 0.1)))
    if reach is None:
        curve = final * rise / rise[-1]
    else:
        climb = 0.9499 * rise / rise[min(int(reach), epochs) - 1]
        curve = np.where(epoch < reach, climb, final - (final - 0.95) * np.exp((reach - epoch) / (0.1 * reach)))
    curve[-10 if epochs >= 10 + (reach or 10) else -1 :] = final
    return curve


def _each(values: Values, number: int) -> list[float | None]:
    return [*values] if isinstance(values, Sequence) else [values] * number


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
        """A run of ``task=mul`` and the like; values are one for all seeds, or a list.

        ``metrics.csv`` has a row ``every`` so many epochs. ``settings`` are dotted keys of the configuration,
        ``summary`` extra values of every seed.
        """
        numbers = parse_seeds(seeds)
        config = configuration(*overrides)
        config |= {"seed": seeds, "runs_dir": str(self.root)}
        config["trainer"]["max_epochs"] = epochs if finished else 2 * epochs
        for key, value in (settings or {}).items():
            put(config, key, value)
        run = Run(self.root / run_name(config))
        run.create(config)
        task, model = config["task"]["name"], config["model"]["name"]
        ends = _each(final, len(numbers))
        curves = [
            learning_curve(epochs, at, float(end or 0))
            for at, end in zip(_each(reach, len(numbers)), ends, strict=True)
        ]
        trained = [
            curve if end is None else learning_curve(epochs, None, end)
            for curve, end in zip(curves, _each(train_final, len(numbers)), strict=True)
        ]
        val, train = np.stack(curves, 1).ravel(), np.stack(trained, 1).ravel()
        epoch = np.repeat(np.arange(1, epochs + 1), len(numbers))
        table = {"epoch": epoch, "seed": np.tile(numbers, epochs), "train_loss": 0.72 - 0.7 * train, "seconds": 25.0}
        table |= {"train_seq_acc": train, "train_token_acc": 0.5 + train / 2, "val_seq_acc": val}
        rows = pd.DataFrame(table | {"val_token_acc": 0.5 + val / 2})
        rows = rows[(rows["epoch"] % every == 0) | rows["epoch"].isin([1, epochs])]
        rows[list(METRICS)].to_csv(run.path / "metrics.csv", index=False, float_format="%.9g")
        if finished:
            flops = 6 * PARAMS[model] * 12288 * TOKENS[task] * epochs
            last = rows[rows["epoch"] == epochs].set_index("seed")
            per_seed = [
                {
                    "seed": seed,
                    **last.loc[seed].drop(["epoch", "seconds"]).to_dict(),
                    "val_token_acc_autoregressive": float(last.loc[seed, "val_token_acc"]),
                    "val_mae": float(40 * (1 - last.loc[seed, "val_seq_acc"])),
                    "epochs_to_95": None if curves[i].max() < 0.95 else int(np.argmax(curves[i] >= 0.95)) + 1,
                    **(summary or {}),
                }
                for i, seed in enumerate(numbers)
            ]
            about = {"status": "finished", "params": PARAMS[model], "epochs": epochs, "device": "a CPU, 1 thread"}
            about |= {"wall_seconds": 25.0 * epochs * len(numbers), "train_flops": flops, "versions": VERSIONS}
            run.finish(about | {"seeds": per_seed})
        return run

    def probe(
        self, folder: Path, name: str, rows: pd.DataFrame, options: dict[str, Any] | None = None, **layout: Any
    ) -> Path:
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
            put(settings, key, value)
        rows.to_csv(target / "rows.csv", index=False)
        sheet = Sheet.of(probe, rows, {"correlation": "correlation"}, settings=settings, **layout)
        (target / "probe.json").write_text(sheet.to_json())
        return target / "rows.csv"

    def correlations(self, folder: Path, seeds: Sequence[int], name: str = "distance_correlation") -> Path:
        rows = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for method in ("pearson", "spearman"):
                sites = [("input", 0, "in", "value", 0.339), ("output", 0, "out", "value", 0.339)]
                for layer in range(1, 7):
                    for level in ("in", "out"):
                        sites += [("enc", layer, level, "token", 0.99 - 0.01 * layer)]
                        sites += [("enc", layer, level, "value", 0.36 + 0.02 * layer)]
                        sites += [("dec", layer, level, "token", TOKEN_CURVE[layer - 1])]
                        sites += [("dec", layer, level, "value", VALUE_CURVE[layer - 1])]
                rows += [(seed, *site[:4], method, site[4] + 0.01 * rng.standard_normal()) for site in sites]
        columns = ["seed", "stack", "layer", "level", "space", "method", "correlation"]
        return self.probe(folder, name, pd.DataFrame(rows, columns=columns), across=("level", "space"))

    def erasures(self, folder: Path, seeds: Sequence[int], name: str = "amnesic") -> Path:
        concepts = {"value": 1, "completion_bits": 8, "operand_bits": 14, "operand_values": 2, "carries": 7}
        rows = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for concept, rank in concepts.items():
                for method, left in (("inlp", 1.0), ("mean_projection", 0.3), ("leace", 0.8)):
                    after = left - 0.02 * rank * rng.random()
                    controls = (0.99, 0.9 - 0.03 * rank, 0.9, 0.7 - 0.02 * rank)
                    names = (seed, "dec.3", concept, method, 2 if method == "inlp" else 1, rank)
                    rows.append((*names, 0.1, 0.27, 0.4, 1.0, after, after - 0.01, *controls, 0.0))
        columns = ["seed", "site", "concept", "method", "iterations", "rank", "variance_removed"]
        columns += ["probe_error_before", "probe_error_after", "seq_acc_before", "seq_acc_after"]
        columns += ["seq_acc_after_unseen", "control_rank_mean", "control_rank_min"]
        columns += ["control_variance_mean", "control_variance_min", "baseline_operand_bits"]
        return self.probe(folder, name, pd.DataFrame(rows, columns=columns))

    def tables(self, task: str, splits: Sequence[str] = ("random",)) -> None:
        """``probe=dataset`` of these splits, and ``probe=discontinuity``, of a task."""
        examples = TASKS[task]().examples()
        prompt, completion = (["".join("01"[t == 4] for t in row) for row in rows.tolist()]
                              for rows in (examples.prompt, examples.completion))  # fmt: skip
        table = pd.DataFrame({"a": examples.a, "b": examples.b, "answer": examples.answer})
        table = table.assign(prompt=prompt, completion=completion)
        for name in splits:
            subset = np.where(SPLITS[name]()(examples), "validation", "train")
            self.probe(self.root, f"dataset-{task}-{name}", table.assign(subset=subset))
        width = WIDTH[task]
        cells = [(task, i, j, 100 * comb(width, j) / 2**width) for i in range(15) for j in range(width + 1)]
        rows = pd.DataFrame(cells, columns=["task", "input_bits", "output_bits", "percent"])
        rows.loc[(rows["input_bits"] == 2) & (rows["output_bits"] == 3), "percent"] = 27.88
        self.probe(self.root, f"discontinuity-{task}", rows)


@pytest.fixture(scope="session")
def configuration_of() -> Callable[..., dict[str, Any]]:
    """``configuration_of("task=mul")``: a configuration of one's own."""
    return configuration


@pytest.fixture(scope="session")
def synthetic_in() -> type[Synthetic]:
    """``synthetic_in(folder)``: a folder of runs to fill."""
    return Synthetic


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """An empty folder of runs: ``synthetic.run("task=mul", seeds="0-4")``."""
    return Synthetic(tmp_path / "runs")


def everything(runs: Synthetic) -> None:
    """Every run and every probe of the paper, five seeds, with numbers near the paper's."""
    jitter = [0.0, 0.02, -0.02, 0.05, -0.04]

    def near(value: float, scale: float = 1.0) -> list[float]:
        return [value * (1 + scale * shift) for shift in jitter]

    ends = {("add", "random"): 1.0, ("add", "vs_t"): 0.9995, ("add", "vs_v"): 0.937}
    ends |= {("mul", "random"): 0.989, ("mul", "vs_t"): 0.975, ("mul", "vs_v"): 0.943}
    for (task, split), end in ends.items():
        epochs, reach = (50, 39) if task == "add" else (250, 137)
        finals = [min(1.0, x) for x in near(end, 0.2)]
        reaches = [round(x) if f >= 0.95 else None for x, f in zip(near(reach), finals, strict=True)]
        run = runs.run(f"task={task}", f"split={split}", epochs=epochs, reach=reaches, final=finals)
        if split == "random":
            runs.correlations(run.path, range(5))
        if (task, split) == ("add", "random"):
            runs.erasures(run.path, range(5))
        end = {"random": 1.0, "vs_t": 0.999, "vs_v": 0.82}[split]
        finals = [min(1.0, x) for x in near(end, 0.2)]
        reaches = [round(x) if f >= 0.95 else None for x, f in zip(near(reach / 5, 2), finals, strict=True)]
        runs.run(f"task={task}", f"split={split}", "model=nanogpt", epochs=epochs, reach=reaches, final=finals)
    runs.run("task=random_output", epochs=1000, every=10, reach=None, final=0.004, train_final=near(0.3))
    table = {"squeezed_encoder": (60, 426), "one_head": (25, 225), "d_model_32": (66, 309)}
    table |= {"none": (39, 137), "no_feed_forward": (56, 398)}
    for ablation, cells in table.items():
        for task, cell in zip(("add", "mul"), cells, strict=True):
            reaches = [round(x) for x in near(cell)]
            stop = {"trainer.stop_at": 0.95, "trainer.max_epochs": 1000}
            runs.run(f"task={task}", f"ablation={ablation}", epochs=max(reaches), reach=reaches, settings=stop)
    for ablation, cells in {"no_positional_encoding": (0.024, 0.018), "no_attention": (0.009, 0.017)}.items():
        for task, cell in zip(("add", "mul"), cells, strict=True):
            runs.run(f"task={task}", f"ablation={ablation}", epochs=1000, every=10, reach=None, final=near(cell, 3))
    for task, epochs, cells in (("add", 150, (39, 110, 41)), ("mul", 400, (137, 380, 140))):
        for cell, prompt, completion in zip(cells, ("reverse", "plain", "plain"), ("reverse", "plain", "reverse"),
                                            strict=True):  # fmt: skip
            orders = (f"task.prompt_order={prompt}", f"task.completion_order={completion}")
            runs.run(f"task={task}", *orders, epochs=epochs, reach=[round(x) for x in near(cell)])
    runs.tables("add", splits=("random", "vs_t", "vs_v"))
    runs.tables("mul")
    runs.tables("random_output")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the paper has. For reading only."""
    runs = Synthetic(tmp_path_factory.mktemp("whole") / "runs")
    everything(runs)
    return runs.root


@dataclass(frozen=True)
class Report:
    """What ``python -m arith_erd.report`` made of a folder."""

    found: Collection
    results: list[Result]
    figures: dict[str, Figure | None]
    out: Path


@pytest.fixture(scope="session")
def whole_report(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of everything, and its figures as Matplotlib has them. For reading only."""
    out = tmp_path_factory.mktemp("report")
    figures = {}

    def kept(paper: Paper, found: Collection, results: Sequence[Result]) -> Iterator[tuple[PaperFigure, Figure | None]]:
        for about, figure in report_figures.paper_figures(paper, found, results):
            figures[about.name] = figure
            yield about, figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arith_erd.report.__main__.paper_figures", kept)
        found, results = build(whole, out)
    return Report(found, results, figures, out)
