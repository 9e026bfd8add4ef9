"""Correlations between distances: the authors' model gives the authors' numbers, and every cell is what it says."""

import io
import json
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.bits import Array
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.sites import layers
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.authors_weights import load_official
from arith_erd.models.decoding import greedy, shift_right
from arith_erd.probes.distance_correlation import DistanceCorrelation
from arith_erd.seeds import derive
from arith_erd.tasks import Add, Add3, Mul, Task

OFFICIAL = Path(__file__).parents[4] / "shared" / "official"
CELL = ["stack", "layer", "level", "space", "method"]


def untrained(task: Task, architecture: type[Network] = Transformer, seed: int = 0, **options: bool) -> Hooked:
    torch.manual_seed(seed)
    network = architecture(
        task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=2, vocab_size=task.vocab_size, **options
    ).eval()
    return Hooked(network, name="untrained", seed=seed, task=task)


def measure(*subjects: Hooked) -> pd.DataFrame:
    probe = DistanceCorrelation(subjects)
    return pd.DataFrame(probe.rows(), columns=list(probe.columns))


@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="../shared/official is absent: the authors' weights are not ours")
def test_authors_weights_give_the_authors_correlations() -> None:
    expected = json.loads((OFFICIAL / "expected.json").read_text())["distance_correlation"]["values"]
    task = Add()
    rows = measure(Hooked(load_official(OFFICIAL / "add_model", task), name="official", task=task))
    found = rows.set_index(CELL)["correlation"]
    assert len(expected) == 48
    for key, values in expected.items():
        site, against = key.split()
        stack, layer = site.split(".")
        for method, value in zip(("pearson", "spearman"), values, strict=True):
            # Rounded to four decimals and then to three, so off by up to 0.00055.
            cell = (stack, int(layer), *against.split("_"), method)
            assert found[cell] == pytest.approx(value, abs=0.0006), cell


@pytest.mark.parametrize("architecture", [Transformer, NanoGPT])
def test_decoder_sites_are_read_with_the_models_own_answer(architecture: type[Network]) -> None:
    subject = untrained(Mul(3), architecture)
    examples = subject.task.examples(range(8), range(8))
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    own = greedy(subject.network, prompt, subject.task.width)
    assert not torch.equal(own, completion)
    _, cache = subject.run_with_cache((prompt, shift_right(own)), ["dec.2"])
    x = cache["dec.2"].flatten(1).double().numpy()
    pairs = list(combinations(range(8), 2))
    inner = [np.linalg.norm(x[i] - x[j]) for i, j in pairs]
    outer = {
        ("in", "token"): [(examples.prompt[i] != examples.prompt[j]).sum() for i, j in pairs],
        ("in", "value"): [abs(i - j) for i, j in pairs],
        ("out", "token"): [(examples.completion[i] != examples.completion[j]).sum() for i, j in pairs],
        ("out", "value"): [abs(i * i - j * j) for i, j in pairs],
    }
    found = measure(subject).set_index(CELL)["correlation"]
    for against, distances in outer.items():
        expected = np.corrcoef(inner, distances)[0, 1]
        assert found[("dec", 2, *against, "pearson")] == pytest.approx(expected, abs=1e-9)
    for stack, level in (("input", "in"), ("output", "out")):
        expected = np.corrcoef(outer[level, "token"], outer[level, "value"])[0, 1]
        assert found[stack, 0, level, "value", "pearson"] == pytest.approx(expected, abs=1e-9)


class Double(Task):
    """A task of one operand: ``2 a``."""

    name = "double"
    operator = "*"
    operands = 1

    @property
    def width(self) -> int:
        return self.bits + 1

    def answer(self, a: Array) -> Array:
        return 2 * a


@pytest.mark.parametrize("task", [Double(3), Add3(2), Add(2, base=4), Add3(2, base=3)], ids=lambda task: task.name)
def test_baselines_read_the_digits_of_all_operands_in_the_tasks_base(task: Task) -> None:
    """On (A, A, ...) every operand adds the same: the digits of A alone give the same correlations."""
    found = measure(untrained(task, NanoGPT)).set_index(CELL)["correlation"]
    a = np.arange(task.limit)
    digits = np.array([[int(x) for x in np.base_repr(n, task.base).zfill(task.bits)] for n in a])  # highest first
    scaled = digits * task.base ** np.arange(task.bits)[::-1]
    pairs = list(combinations(a, 2))
    value = [abs(task.answer(*[a[[i]]] * task.operands) - task.answer(*[a[[j]]] * task.operands))[0] for i, j in pairs]
    for name, x in (("operand", digits), ("scaled", scaled)):
        expected = np.corrcoef([np.linalg.norm(x[i] - x[j]) for i, j in pairs], value)[0, 1]
        assert found[f"{name} {task.digits}", 0, "out", "value", "pearson"] == pytest.approx(expected, abs=1e-9)


def test_every_replica_and_site_has_its_rows() -> None:
    rows = measure(untrained(Add(3), seed=3), untrained(Add(3), seed=5))
    assert list(rows["seed"].unique()) == [3, 5]
    per_seed = 2 * ((4 + 2) * 4 + 2)  # two methods; four sites, two baselines of bits, two yellow cells
    assert (rows.groupby("seed").size() == per_seed).all()
    by_seed = rows[rows["stack"] == "dec"].pivot(index=CELL, columns="seed", values="correlation")
    assert not np.allclose(by_seed[3], by_seed[5])
    yellow = rows[rows["layer"] == 0].pivot(index=CELL, columns="seed", values="correlation")
    assert np.allclose(yellow[3], yellow[5])


@pytest.mark.parametrize("architecture", [Transformer, NanoGPT])
def test_figure_shows_the_mean_over_seeds(architecture: type[Network]) -> None:
    subjects = [untrained(Add(3), architecture, seed) for seed in range(3)]
    probe = DistanceCorrelation(subjects)
    rows = measure(*subjects)
    figure = probe.figure(rows)
    table, curves = figure.axes
    decoder = rows[(rows["stack"] == "dec") & (rows["level"] == "out") & (rows["method"] == "pearson")]
    for line, space in zip(curves.lines[:2], ("token", "value"), strict=True):  # then come the baselines
        mean = decoder[decoder["space"] == space].groupby("layer")["correlation"].mean()
        np.testing.assert_allclose(line.get_ydata(), mean)
    assert curves.lines[0].get_marker() != curves.lines[1].get_marker()  # to be told apart without colours
    assert curves.lines[0].get_linestyle() != curves.lines[1].get_linestyle()
    sites = len(layers(subjects[0].sites))
    assert len(table.texts) == 4 * (sites + 2) + 2  # with two baselines, operand bits and scaled bits
    png = io.BytesIO()
    figure.savefig(png)
    assert png.tell() < 300_000


def test_scaled_bits_follow_the_value_without_any_network() -> None:
    """At seven bits 0.746 on the pairs (A, A), as much as the second and the fourth layer of the authors' decoder."""
    rows = measure(untrained(Add(7)))
    cells = rows[rows["method"] == "pearson"].set_index(["stack", "level", "space"])["correlation"]
    assert cells["scaled bits", "out", "value"] == pytest.approx(0.746, abs=0.001)
    assert cells["operand bits", "in", "token"] > 0.98
    assert cells["input", "in", "value"] == pytest.approx(0.339, abs=0.0005)


def test_untrained_network_is_that_of_the_seed_before_training() -> None:
    task = Add(3)
    subject = untrained(task)
    make = partial(Transformer, task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=2)
    with_baseline = Hooked(subject.network, task=task, seed=7, untrained=make)
    rows = measure(with_baseline)
    assert {"untrained enc", "untrained dec"} <= set(rows["stack"])
    torch.manual_seed(derive(7, "weights"))
    itself = measure(Hooked(make(), task=task, seed=7))
    encoder = [rows[rows["stack"] == stack]["correlation"].to_numpy() for stack in ("untrained enc",)]
    np.testing.assert_allclose(encoder[0], itself[itself["stack"] == "enc"]["correlation"])
