"""Where a result goes, and what it says about the weights that were asked."""

import json
import shutil

import pytest

from arith_erd.config.compose import compose
from arith_erd.models.references import DECOYS, OTHERS, REFERENCES
from arith_erd.probes import run_probe
from arith_erd.report.collect import collect
from arith_erd.report.paper import load_paper
from arith_erd.runs import Run

OWN = ("checkpoint=mine.safetensors", "model=nanogpt", "task=add")


def question(*overrides: str) -> dict[str, str]:
    """The folder of a result for given weights, and whose weights its description names."""
    job = compose("probe", ["probe=errors", *overrides])
    groups = [] if job.reference is not None else ["task"]
    return {"folder": run_probe._folder_name(job, groups), **run_probe._weights(job, None)}


@pytest.mark.parametrize("other", ["seed=1", "seed=0-1", "reference=remainder"])
def test_results_for_other_references_do_not_overwrite_each_other(other):
    first, second = (question("reference=erd", "seed=0", *more)["folder"] for more in ([], [other]))
    assert first != second


@pytest.mark.parametrize("probe", ["dataset", "errors"])
def test_networks_written_by_hand_are_listed_by_any_probe(probe, capsys):
    run_probe.run_job(compose("probe", [f"probe={probe}", "reference=list"]))
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*REFERENCES, *OTHERS, *DECOYS]


def test_rows_of_other_options_do_not_replace_each_other(trained_pack, tmp_path):
    run = Run(shutil.copytree(trained_pack.path, tmp_path / trained_pack.name))
    for options in ([], ["probe.pairs=16"], ["probe.pairs=2048"]):
        run_probe.run_job(compose("probe", ["probe=logit_lens", f"run={run.path}", *options]))
    assert sorted(path.name for path in run.probe("").iterdir()) == ["logit_lens", "logit_lens-pairs16"]


def test_weights_of_others_are_named():
    assert question("reference=erd", "seed=0-2").items() >= {"reference": "erd", "seeds": "0-2"}.items()
    assert question(*OWN).items() >= {"checkpoint": "mine.safetensors", "model": "nanogpt"}.items()


def test_rows_of_an_unfinished_run_are_no_result_of_it(trained_pack, tmp_path, capsys):
    """Not even when the run has finished."""
    run = Run(shutil.copytree(trained_pack.path, tmp_path / trained_pack.name))
    run.summary_file.rename(tmp_path / "summary.json")
    run_probe.run_job(compose("probe", ["probe=errors", f"run={run.path}"]))
    assert "the run is not finished: after epoch 4 of 4" in " ".join(capsys.readouterr().out.split())
    weights = json.loads((run.probe("errors") / "probe.json").read_text())["settings"]["weights"]
    assert weights == {"unfinished": "after epoch 4 of 4"}
    (tmp_path / "summary.json").rename(run.summary_file)
    departs = collect(tmp_path, load_paper().setup).probes["errors"]["departs"]
    assert departs.str.contains("unfinished").all()
    run_probe.run_job(compose("probe", ["probe=errors", f"run={run.path}"]))
    assert "weights" not in json.loads((run.probe("errors") / "probe.json").read_text())["settings"]
