"""Verdicts come from the data alone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from arith_erd.report.claim_tables import markdown, ours_text, table
from arith_erd.report.claims import Result, evaluate, judge, missing
from arith_erd.report.collect import GIVEN, collect
from arith_erd.report.paper import load_paper


def one(runs, claim: str) -> Result:
    paper = load_paper()
    return judge(paper[claim], collect(runs.root, paper.setup))


def set_accuracy(run, epoch: int, seed: int, value: float) -> None:
    rows = pd.read_csv(run.path / "metrics.csv")
    rows.loc[(rows["epoch"] == epoch) & (rows["seed"] == seed), "val_seq_acc"] = value
    rows.to_csv(run.path / "metrics.csv", index=False)


def test_a_verdict_follows_the_numbers_in_metrics_csv(synthetic) -> None:
    run = synthetic.run("split=vs_v", reach=None, final=0.93)
    assert one(synthetic, "fig3-add-vs_v").verdict == "reproduced"
    for seed in range(5):
        set_accuracy(run, 50, seed, 0.90)
    changed = one(synthetic, "fig3-add-vs_v")
    assert changed.verdict == "differs"
    assert changed.mean == pytest.approx(0.90)


def test_a_verdict_follows_the_numbers_in_summary_json(synthetic) -> None:
    run = synthetic.run(summary={"val_mae": 0.01})
    assert one(synthetic, "add-mae").verdict == "reproduced"
    summary = run.summary()
    for entry in summary["seeds"]:
        entry["val_mae"] = 3.0
    (run.path / "summary.json").write_text(json.dumps(summary))
    assert one(synthetic, "add-mae").verdict == "differs"


def test_a_verdict_follows_the_rows_of_a_probe(synthetic) -> None:
    run = synthetic.run()
    path = synthetic.erasures(run.path, range(5))
    assert one(synthetic, "appD-before").verdict == "reproduced"
    rows = pd.read_csv(path)
    rows["seq_acc_before"] = 0.4
    rows.to_csv(path, index=False)
    assert one(synthetic, "appD-before").verdict == "differs"


def test_the_mean_of_the_seeds_and_its_interval(synthetic) -> None:
    values = [0.92, 0.93, 0.94, 0.95, 0.96]
    synthetic.run("split=vs_v", reach=None, final=values)
    result = one(synthetic, "fig3-add-vs_v")
    assert (result.n, result.seeds) == (5, "0-4")
    assert result.mean == pytest.approx(0.94)
    assert result.median == pytest.approx(0.94)
    low, high = result.mean_interval
    assert 0.92 < low < 0.94 < high < 0.96
    assert result.median_interval is not None


def test_no_interval_from_two_seeds(synthetic) -> None:
    synthetic.run("split=vs_v", seeds="0-1", reach=None, final=[0.53, 0.54])
    result = one(synthetic, "fig3-add-vs_v")
    assert result.mean_interval is result.median_interval is None
    assert (result.verdict, result.cause) == ("differs", "seed noise cannot be ruled out from 2 seeds")


def test_a_replica_in_two_packs_counts_once(synthetic) -> None:
    synthetic.run("split=vs_v", seeds="0-4", reach=None, final=0.93)
    synthetic.run("split=vs_v", seeds="0", reach=None, final=0.93)
    assert one(synthetic, "fig3-add-vs_v").n == 5


def test_of_runs_that_differ_in_length_the_one_that_ended_there_counts(synthetic) -> None:
    synthetic.run("split=vs_v", seeds="0", epochs=150, reach=100.0, final=1.0)
    synthetic.run("split=vs_v", seeds="0", epochs=50, reach=None, final=0.93)
    result = one(synthetic, "fig3-add-vs_v")
    assert (result.n, result.mean) == (1, pytest.approx(0.93))


def test_a_longer_run_serves_where_there_is_no_other(synthetic) -> None:
    synthetic.run(epochs=150, reach=39.0)
    assert one(synthetic, "fig1-add").n == 5
    assert one(synthetic, "add-mae").n == 0  # the summary is of epoch 150


@pytest.mark.parametrize(
    "settings",
    [{"model.optimizer.lr": 0.01}, {"task.bits": 5}, {"model.net.dropout": 0.2}, {"trainer.precision": "bf16-mixed"}],
    ids=str,
)
def test_a_run_with_other_settings_never_counts(synthetic, settings: dict) -> None:
    run = synthetic.run(settings=settings)
    result = one(synthetic, "fig1-add")
    assert (result.n, result.verdict) == (0, "not run")
    key = next(iter(settings))
    assert f"{run.name} departs in {key}={settings[key]}" in result.cause


def test_an_unfinished_run_is_reported_and_does_not_count(synthetic) -> None:
    synthetic.run(epochs=30, finished=False)
    result = one(synthetic, "fig1-add")
    assert (result.n, result.verdict, result.unfinished) == (0, "not run", 5)
    assert "at epoch 30, unfinished" in result.cause


def test_a_run_that_is_too_short_says_so(synthetic) -> None:
    synthetic.run("model=nanogpt", epochs=10, reach=8.0)
    assert "has 10 of 50 epochs" in one(synthetic, "figE8-add-random").cause
    assert one(synthetic, "figE7-add").verdict == "reproduced"


def test_a_seed_that_never_got_there_is_censored_and_never_averaged(synthetic) -> None:
    synthetic.run(epochs=100, reach=[38.0, 39.0, 40.0, 41.0, None], final=[1.0, 1.0, 1.0, 1.0, 0.8])
    result = one(synthetic, "table3-add-none")
    assert (result.n, result.censored) == (5, 1)
    assert result.median == 40  # the third of five, whatever the fifth is
    assert result.mean is result.mean_interval is result.median_interval is None
    assert result.verdict == "reproduced"
    assert "1 of 5 seeds censored: below 95% when their runs ended, at epoch 100" in result.cause


def test_with_most_seeds_censored_there_is_a_bound(synthetic) -> None:
    synthetic.run(epochs=100, reach=[39.0, 40.0, None, None, None], final=[1.0, 1.0, 0.8, 0.8, 0.8])
    result = one(synthetic, "table3-add-none")
    assert result.median is None
    assert ours_text(result) == "> 100 epochs"
    assert result.verdict == "differs"  # above 100 is above 39 and a quarter, however far


def test_where_the_bound_leaves_it_open_there_is_no_verdict(synthetic) -> None:
    synthetic.run(epochs=50, seeds="0-2", reach=40.0)
    synthetic.run("task.prompt_order=plain", epochs=50, seeds="0-2", reach=None, final=0.8)
    result = one(synthetic, "figC6-add-prompt")  # 50 / 40 is within a quarter of 1, and any more is not
    assert (result.n, result.censored, result.verdict) == (3, 3, "not run")
    assert "too many" in result.cause
    assert ours_text(result) == "> 1.25 times"


def test_a_trial_too_short_to_get_there_is_no_censored_seed(synthetic) -> None:
    synthetic.run(seeds="0", epochs=50, reach=39.0)
    synthetic.run(seeds="1-5", epochs=2, reach=None, final=0.01)
    result = one(synthetic, "table3-add-none")
    assert (result.n, result.censored, result.verdict) == (1, 0, "reproduced")
    synthetic.run("task=mul", seeds="0", epochs=100, reach=90.0)  # nor one that got there: that would bias the seeds
    early = one(synthetic, "table3-mul-none")
    assert (early.n, early.verdict) == (0, "not run")
    assert "was to end at epoch 100" in early.cause


def test_a_run_that_stopped_at_its_aim_was_to_go_on(synthetic) -> None:
    stop = {"trainer.stop_at": 0.95, "trainer.max_epochs": 1000}
    synthetic.run("ablation=one_head", epochs=26, reach=[24.0, 25.0, 25.0, 26.0, 24.0], settings=stop)
    assert one(synthetic, "table3-add-one_head").n == 5


def test_a_ratio_is_of_the_same_seed_and_keeps_its_bound(synthetic) -> None:
    plain = ("task.prompt_order=plain", "task.completion_order=plain")
    synthetic.run(epochs=150, seeds="0-2", reach=[40.0, 50.0, 30.0])
    synthetic.run(*plain, epochs=150, seeds="0-2", reach=[120.0, 100.0, None], final=[1.0, 1.0, 0.5])
    result = one(synthetic, "figC6-add")
    assert result.values["low"].tolist() == [3.0, 2.0, 5.0]
    assert result.values["high"].tolist() == [3.0, 2.0, np.inf]
    assert result.verdict == "reproduced"
    assert ours_text(result) == "3.00 times"


def test_a_difference_is_of_the_same_seed(synthetic) -> None:
    synthetic.run(seeds="0-2", final=[1.0, 0.99, 0.98])
    synthetic.run("split=vs_v", seeds="1-3", reach=None, final=[0.93, 0.92, 0.1])
    result = one(synthetic, "fig3-add-vs_v-loss")
    assert result.values["seed"].tolist() == [1, 2]
    assert result.mean == pytest.approx(0.06)


def test_the_authors_weights_stand_beside_ours_and_serve_where_ours_are_missing(synthetic) -> None:
    synthetic.erasures(synthetic.root, (0,), "amnesic-add")
    alone = one(synthetic, "appD-rmse")
    assert (alone.source, alone.n, alone.verdict) == (GIVEN, 1, "reproduced")
    assert "authors' weights" in alone.cause
    run = synthetic.run()
    synthetic.erasures(run.path, range(5))
    both = one(synthetic, "appD-rmse")
    assert both.n == 5
    assert both.theirs == pytest.approx(0.27)


def test_a_difference_beyond_seed_noise_is_told_from_one_within(synthetic) -> None:
    synthetic.run("split=vs_v", reach=None, final=[0.80, 0.85, 0.90, 0.93, 0.99])
    assert "seed noise can explain it" in one(synthetic, "fig3-add-vs_v").cause
    synthetic.run("split=vs_t", reach=None, final=0.5)
    assert "more than seed noise" in one(synthetic, "fig3-add-vs_t").cause


def test_the_known_cause_is_given_with_the_device(synthetic) -> None:
    synthetic.run()
    result = one(synthetic, "add-minutes")
    assert result.verdict == "differs"
    assert result.cause == "the paper had a Titan RTX, these runs a CPU, 1 thread"


def test_with_everything_there_nothing_is_left_but_the_4000_epochs(whole: Path, whole_report) -> None:
    paper, found, verdicts = load_paper(), whole_report.found, whole_report.results
    assert found.problems == {}
    assert list(missing(verdicts, paper, whole)) == [paper.command("fig2_4000", whole)]
    assert [result.claim.id for result in verdicts if result.n == 0] == ["fig2-train-4000"]
    by_id = {result.claim.id: result for result in verdicts}
    assert by_id["table3-mul-squeezed_encoder"].verdict == "reproduced"
    assert by_id["appD-after"].verdict == "differs"
    assert by_id["examples"].verdict == "reproduced"
    assert ours_text(by_id["examples"]) == "16,384 examples"
    rows = table(verdicts, found, paper, whole)
    assert len(rows) == len(paper.claims)
    assert set(rows.loc[rows["measured_on"] == "our runs", "commit"]) == {"abc1234"}
    text = markdown(verdicts, paper, whole)
    assert all(line.count(" | ") == 6 for line in text.splitlines() if line.startswith("| ") and "---" not in line)


def test_an_empty_folder_gives_no_verdict_and_every_command(synthetic) -> None:
    paper = load_paper()
    found = collect(synthetic.root, paper.setup)
    verdicts = evaluate(paper, found)
    assert {result.verdict for result in verdicts} == {"not run"}
    assert all(result.cause for result in verdicts)
    commands = missing(verdicts, paper, Path("runs"))
    assert set(commands) == {paper.command(make, Path("runs")) for make in {claim.make for claim in paper.claims}}
    text = markdown(verdicts, paper, Path("runs"))
    assert "`python train.py -m experiment=fig1`" in text
