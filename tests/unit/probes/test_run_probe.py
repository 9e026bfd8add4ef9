"""Probes over the epochs that a run kept, the folders of results, and the provenance of weights in them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import save_file

import arith_erd as ae
from arith_erd.catalog.loading import load_run
from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.models.handcoded import PROGRAMS
from arith_erd.probes.errors import Errors
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.run_probe import ProbeTarget, _target_of_weights, run_job
from arith_erd.report.claims_file import load_paper
from arith_erd.report.collect import collect
from arith_erd.runs.directory import Run
from arith_erd.tasks import Add
from tests.unit.probes.small import untrained

SEARCH = {"num_train": 16, "num_validation": 8, "num_test": 8, "steps": 1, "num_controls": 1}
SMALL: dict[str, dict[str, Any]] = {
    "amnesic": {"num_controls": 1, "concept": "value", "method": "leace", "site": "dec.1"},
    "attention": {"num_examples": 8},
    "distance_correlation": {},
    "dose": {"num_examples": 8, "delta": [1], "site": ["dec.1", "dec.2"]},
    "encoder_table": {},
    "errors": {},
    "explorer": {"num_examples": 8},
    "interchange": {"num_examples": 4, "site": ["dec.1", "dec.2"]},
    "certificate": {},
    "logit_lens": {"num_examples": 8},
    "mechanism": {"num_examples": 64, "num_steered": 64},
    "patching": {"num_examples": 16},
    "place_value": {"num_examples": 512, "num_pairs": 8},
    "subspaces": SEARCH | {"site": "dec.1", "variable": "sum", "rank": 1},
}
NETWORKS = [untrained(Add(3), seed=seed) for seed in range(2)]


def ask(probe: str, *overrides: str) -> None:
    """As ``python probe.py probe=PROBE ...``."""
    run_job(compose("probe", [f"probe={probe}", *overrides]))


def copied(run: Run, path: Path) -> Run:
    """The same run elsewhere, to write probes into."""
    return Run(shutil.copytree(run.path, path))


def test_all_probes_of_networks_are_known_here(root: Path) -> None:
    files = (root / "conf/probe").glob("*.yaml")
    assert {file.stem for file in files if "needs: [models]" in file.read_text()} == set(SMALL)


@pytest.mark.slow_after(5)
@pytest.mark.parametrize("name", SMALL)
def test_every_probe_of_networks_has_a_measure_to_follow_over_epochs(name: str) -> None:
    result = ae.probe(name, NETWORKS, **SMALL[name])
    curves = result.probe.epoch_curves(result.rows)
    assert not curves.table.duplicated(["seed", "panel", "line"]).any()
    assert set(curves.table["seed"]) >= {0, 1}
    assert curves.table["value"].notna().mean() > 0.8
    course = replace(curves, table=pd.concat([curves.table.assign(epoch=epoch) for epoch in (1, 2)]))
    assert len(course.summary_table()) == 2
    assert course.draw(name).axes


def test_rows_of_an_epoch_are_those_of_its_network(whole, tmp_path, capsys) -> None:
    """All epochs that were kept; the last one is the finished network. They lie inside the run directory."""
    whole = copied(whole, tmp_path / whole.name)
    ask("logit_lens", f"run={whole.path}", "epoch=all")
    rows = pd.read_csv(whole.path / "probes" / "logit_lens-epochs" / "rows.csv")
    assert list(rows.columns[:2]) == ["epoch", "seed"]
    assert sorted(set(rows["epoch"])) == [1, 2, 3, 4]
    assert (whole.path / "probes" / "logit_lens-epochs" / "figure.png").stat().st_size > 10_000
    for epoch, own in ((2, 2), (4, None)):
        found = rows[(rows["epoch"] == epoch) & (rows["seed"] == 1)].drop(columns="epoch").reset_index(drop=True)
        itself = pd.DataFrame(LogitLens([load_run(whole.path, 1, own)]).rows())
        pd.testing.assert_frame_equal(found, itself, atol=1e-7)
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[:5]] == ["epoch", "1", "2", "3", "4"]


def test_curve_of_errors_is_one_minus_accuracy(whole: Run) -> None:
    model = load_run(whole.path, 1)
    probe = Errors([model])
    table = probe.epoch_curves(pd.DataFrame(probe.rows(), columns=list(probe.columns))).table
    course = table[table["panel"] == "answer"].set_index("line")["value"]
    last = next(row for row in reversed(whole.metrics()) if row["seed"] == 1)
    assert course["validation"] == pytest.approx(1 - last["val_seq_acc"])
    assert course["train"] == pytest.approx(1 - last["train_seq_acc"])


def test_missing_epochs_and_runs_that_share_a_name_are_refused(whole: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"epoch=9: .* has weights of epoch 1-4 and 0"):
        ask("errors", f"run={whole.path}", "epoch=[0,9]", f"out={tmp_path}/out")
    for place in ("a", "b"):
        copied(whole, tmp_path / place / whole.name)
    with pytest.raises(UserError, match=r"out=\S+: runs of .* share a name"):
        ask("errors", f"run={tmp_path}/?/*", f"out={tmp_path}/out")
    assert not (tmp_path / "out").exists()


def test_probe_without_a_figure_is_refused_before_it_measures(whole, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(LogitLens, "picture", None)
    monkeypatch.setattr(LogitLens, "measure", lambda self, model: 1 / 0)
    with pytest.raises(UserError, match=r"^LogitLens: expected a picture, or a method figure"):
        ask("logit_lens", f"run={whole.path}", f"out={tmp_path}/out")
    assert not (tmp_path / "out").exists()


def test_rows_are_kept_if_the_figure_fails(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogitLens, "figure", lambda self, rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask("logit_lens", "probe.num_examples=8", f"run={whole.path}", f"out={tmp_path}")
    assert len(pd.read_csv(tmp_path / "rows.csv"))


def target(*overrides: str) -> ProbeTarget:
    return _target_of_weights(compose("probe", ["probe=errors", *overrides]))


@pytest.mark.parametrize("other", ["seed=1", "seed=0-1", "handcoded=remainder"])
def test_results_for_other_handcoded_networks_do_not_overwrite_each_other(other):
    first, second = (target("handcoded=erd", "seed=0", *more).folder for more in ([], [other]))
    assert first != second


@pytest.mark.parametrize("probe", ["dataset", "errors"])
def test_networks_written_by_hand_are_listed_by_any_probe(probe, capsys):
    ask(probe, "handcoded=list")
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*PROGRAMS]


def test_rows_of_other_options_do_not_replace_each_other(trained_pack, tmp_path):
    run = copied(trained_pack, tmp_path / trained_pack.name)
    for options in ([], ["probe.num_examples=16"], ["probe.num_examples=2048"]):
        ask("logit_lens", f"run={run.path}", *options)
    folders = {path.name for path in run.path.joinpath("probes").iterdir()}
    assert folders == {"logit_lens", "logit_lens-num_examples16"}


def test_only_the_same_command_replaces_a_result_in_out(whole, tmp_path):
    other, out = copied(whole, tmp_path / "other"), tmp_path / "out"
    asked = (f"run={whole.path}", f"out={out}")
    ask("errors", *asked)
    before = (out / "rows.csv").read_bytes()
    for change in ("probe=logit_lens", f"run={other.path}", "epoch=2"):
        with pytest.raises(UserError, match=r"^out=\S+: expected a folder that holds no result of another probe"):
            ask("errors", *asked, change)
    assert (out / "rows.csv").read_bytes() == before
    ask("errors", *asked)


def test_results_name_weights_that_come_from_no_run(tmp_path):
    assert target("handcoded=erd", "seed=0-2").weights == {"handcoded": "erd", "seeds": "0-2"}
    file = tmp_path / "mine.safetensors"
    save_file(compose("train", ["model=nanogpt"]).network().state_dict(), file)
    given = (f"checkpoint={file}", "model=nanogpt", "task=add")
    own = target(*given)
    assert own.weights == {"checkpoint": "mine.safetensors", "model": "nanogpt"}
    assert target(*given, "model.net.num_heads=2").folder != own.folder


def test_result_that_cannot_be_written_is_named_and_the_others_are_measured(whole, tmp_path, capsys) -> None:
    first, second = (copied(whole, tmp_path / name) for name in ("first", "second"))
    (first.path / "probes/errors/rows.csv").mkdir(parents=True)
    with pytest.raises(UserError, match=r"run=.*/\*: 1 of 2 results failed"):
        ask("errors", f"run={tmp_path}/*")
    folder = f"{first.path}/probes/errors"
    assert f"error: {folder}: {folder}/rows.csv: Is a dir" in capsys.readouterr().err
    assert (second.path / "probes/errors/figure.png").exists()


@pytest.mark.slow
def test_rows_of_an_unfinished_run_are_marked(trained_pack, tmp_path, capsys):
    """They stay marked when the run has finished."""
    run = copied(trained_pack, tmp_path / trained_pack.name)
    run.summary_file.rename(tmp_path / "summary.json")
    ask("errors", f"run={run.path}")
    assert "the run is not finished: after epoch 4 of 4" in " ".join(capsys.readouterr().out.split())
    description = run.path / "probes" / "errors" / "probe.json"
    assert json.loads(description.read_text())["settings"]["weights"] == {"unfinished": "after epoch 4 of 4"}
    (tmp_path / "summary.json").rename(run.summary_file)
    unpublished = collect([tmp_path], load_paper().setup).probes["errors"]["unpublished_settings"]
    assert unpublished.str.contains("unfinished").all()
    ask("errors", f"run={run.path}")
    assert "weights" not in json.loads(description.read_text())["settings"]
