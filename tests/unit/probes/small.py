"""Untrained networks for any task, checks of a probe's rows, and a user's causal model."""

import io
from functools import partial
from typing import Any

import pandas as pd
import torch

from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.hooked import Hooked, Provenance
from arith_erd.models import Network, Transformer
from arith_erd.probes.probe import Probe
from arith_erd.tasks import Task


def untrained(task: Task, kind: type[Network] = Transformer, seed: int = 0, **options: Any) -> Hooked:
    torch.manual_seed(seed)
    size = {"d_model": 16, "num_heads": 2, "num_layers": 2, "vocab_size": task.vocab_size, "layout": task.layout}
    make = partial(kind, task.prompt_length, task.answer_length, **size | options)
    return Hooked(make(), name="test", seed=seed, task=task, provenance=Provenance(make_network=make))


def measured(probe: Probe) -> pd.DataFrame:
    """The rows of a probe: they fit their columns, its table can be shown, and its figure can be saved."""
    rows = pd.DataFrame(probe.rows(), columns=[*probe.columns] or None)
    assert len(probe.table(rows))
    file, figure = io.BytesIO(), probe.figure(rows)
    figure.set_layout_engine("none")  # which takes half of the time
    figure.savefig(file)
    assert file.tell() < 300_000
    return rows


def own_model(task: Task) -> CausalModel:
    """The lowest bits are added first; their carry depends on nothing else, and ``idle`` affects nothing."""
    parts = {"idle": lambda a: a, "low": lambda a, b: a % 2 + b % 2, "high": lambda a, b: a // 2 + b // 2}
    total = {"total": lambda low, low_carry, high: low % 2 + 2 * (high + low_carry), "sum": lambda total: total}
    return CausalModel(task, parts | {"low_carry": lambda low: low // 2} | total)
