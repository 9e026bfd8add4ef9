"""The names that stay through 1.x, as `docs/promises.md` says: those in ``public_names.yaml``.

``python -m tests.public_names`` writes that file anew. A line that is new is a new promise. A line that is gone or
changed breaks one, unless the deprecated name still works.
"""

import ast
import inspect
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from torch import nn

import arith_erd as ae
from arith_erd.bundled import CONF
from arith_erd.config.class_spec import ClassSpec
from arith_erd.interp.hooked import Provenance
from arith_erd.report.claims import evaluate_claims
from arith_erd.report.claims_file import load_paper
from arith_erd.report.collect import collect
from arith_erd.report.page import claims_table, replicas_table
from arith_erd.runs.directory import INTEGER_COLUMNS, METRIC_COLUMNS, SLICE_COLUMNS

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".yaml")


class Unshown:
    """A default that signatures do not show: ``a, b=``."""

    def __repr__(self) -> str:
        return ""


def public_names() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        commands = tomllib.load(file)["project"]["scripts"]
    task = ae.Add()
    networks = [network(task.prompt_length, task.answer_length) for network in (ae.Transformer, ae.NanoGPT)]
    return {
        "commands": [*commands],
        "python": {name: signatures(getattr(ae, name)) for name in sorted({*ae.__all__} - {"__version__"})},
        "configuration": dict(configuration_keys()),
        "sites": {type(network).__name__: [*network.sites()] for network in networks},
        "positions of addition": [*task.prompt_names, *task.answer_names],
        "columns of runs": run_columns(),
        "columns of rows.csv": dict(probe_columns()),
    }


def signatures(value: Any) -> Any:
    """The parameters of a function; of a class those of its constructor and methods, and its attributes.

    Members that a class inherits from a public class are listed only there.
    """
    if not inspect.isclass(value):
        return parameters(value)
    inherited = [members(base) for base in value.__mro__[1:] if base.__name__ in ae.__all__]
    own = {name: text for name, text in members(value).items() if not any(name in above for above in inherited)}
    methods = {f"{name}()": text for name, text in own.items() if text is not None}
    attributes = [name for name, text in own.items() if text is None]
    ours = getattr(value.__init__, "__module__", "").startswith("arith_erd.")  # else Python's or torch's
    constructor = {"()": parameters(value)} if ours else {}
    return constructor | methods | ({"attributes": attributes} if attributes else {})


def parameters(function: Callable[..., Any]) -> str:
    """Names, with ``=`` behind those that may be left out: ``a, b=, *, c=``."""
    given = inspect.signature(function).parameters.values()
    short = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else Unshown()) for p in given]
    return str(inspect.Signature(short))[1:-1].removeprefix("self, ").removeprefix("self")


def members(cls: type) -> dict[str, str | None]:
    """The methods of a class, with their parameters, and its attributes, with None, by name."""
    names = set[str]()
    for base in (base for base in cls.__mro__ if base.__module__.startswith("arith_erd.")):
        names |= {*vars(base)}
        if issubclass(cls, nn.Module):
            continue  # its attributes are layers
        names |= {*vars(base).get("__annotations__", {})}
        if "__init__" in vars(base) and not is_dataclass(base):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base.__init__)))
            stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            names |= {node.attr for node in stored if isinstance(node.ctx, ast.Store)}
    public = sorted(name for name in names if name == "__call__" or name[0] != "_")
    values = {name: getattr(cls, name, None) for name in public}
    return {name: parameters(value) if callable(value) else None for name, value in values.items()}


def configuration_keys() -> Iterator[tuple[str, list[str]]]:
    """The keys of each file in ``conf/``; none for a preset, which sets keys of other files."""
    for path in sorted(CONF.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        keys = [] if "@package _global_" in text else key_names(yaml.safe_load(text) or {})
        yield path.relative_to(CONF).with_suffix("").as_posix(), keys


def key_names(node: dict[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in node.items():
        if key not in ("defaults", "hydra", "name", "needs") and key[0] != "_":
            inner = key_names(value, f"{prefix}{key}.") if isinstance(value, dict) else []
            names += inner or [prefix + key]
    return names


def run_columns() -> dict[str, list[str]]:
    """Columns of the tables of runs and of a report. ``tokens.csv`` also has one for each token of the answer."""
    paper = load_paper()
    with TemporaryDirectory() as folder:
        data = collect([Path(folder)], paper.setup)
        claims = claims_table(evaluate_claims(paper, data), data, paper, Path(folder))
    return {
        "metrics.csv": [*METRIC_COLUMNS],
        "tokens.csv": [*INTEGER_COLUMNS, "split"],
        "slices.csv": [*INTEGER_COLUMNS, *SLICE_COLUMNS],
        "load_table": [*ae.load_table(ROOT / "paper/results/runs/add-random-nanogpt-none-seed0-*")],
        "runs.csv": [*replicas_table(data)],
        "claims.csv": [*claims],
    }


def probe_columns() -> Iterator[tuple[str, list[str]]]:
    """Columns of each probe: those of its first row in an untrained network of addition."""
    task = ae.Add(bits=3)
    torch.manual_seed(0)
    network = ae.Transformer(task.prompt_length, task.answer_length, d_model=16, num_heads=2, num_layers=1)
    provenance = Provenance(split=ae.RandomSplit(), make_network=lambda: network)
    model = ae.Hooked(network, task=task, provenance=provenance)
    subjects = {"task": task, "split": provenance.split, "models": [model]}
    quick: dict[str, Any] = dict.fromkeys(("num_examples", "num_steered", "num_train", "num_validation"), 64)
    quick |= {"num_controls": 1, "steps": 1, "concept": "value", "method": "leace"}
    for path in sorted((CONF / "probe").glob("*.yaml")):
        options = yaml.safe_load(path.read_text(encoding="utf-8"))
        given = {key: value for key, value in quick.items() if key in options}
        given |= {need: subjects[need] for need in options["needs"]}
        probe = ClassSpec.from_group("probe", options, None, "needs").build(ae.Probe, **given)
        yield path.stem, [*probe.columns] or [*next(probe.rows())]


def text() -> str:
    return yaml.safe_dump(public_names(), sort_keys=False, width=110, default_flow_style=None)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
