"""Verdicts come from the data alone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from arith_erd.report.claims import Result, evaluate, judge, missing, tally
from arith_erd.report.collect import EXACT, collect
from arith_erd.report.page import markdown
from arith_erd.report.paper import load_paper
from arith_erd.report.tables import claims_table, estimate_text, ours_text, values_text
from arith_erd.stats import Mean, contrast


def one(runs, claim: str) -> Result:
    paper = load_paper()
    return judge(paper[claim], collect(runs.root, paper.setup))


def set_accuracy(run, epoch: int, seed: int, value: float) -> None:
    rows = pd.read_csv(run.path / "metrics.csv")
    rows.loc[(rows["epoch"] == epoch) & (rows["seed"] == seed), "val_seq_acc"] = value
    rows.to_csv(run.path / "metrics.csv", index=False)


def test_verdict_follows_the_numbers_in_metrics_csv(synthetic) -> None:
    run = synthetic.run("split=vs_v", reach=None, final=0.93)
    assert one(synthetic, "fig3-add-vs_v").verdict == "reproduced"
    for seed in range(5):
        set_accuracy(run, 50, seed, 0.90)
    changed = one(synthetic, "fig3-add-vs_v")
    assert changed.verdict == "differs"
    assert changed.estimate.value == pytest.approx(0.90)


def test_verdict_follows_the_numbers_in_summary_json(synthetic) -> None:
    run = synthetic.run(summary={"val_mae": 0.01})
    assert one(synthetic, "add-mae").verdict == "reproduced"
    summary = run.summary()
    for entry in summary["seeds"]:
        entry["val_mae"] = 3.0
    (run.path / "summary.json").write_text(json.dumps(summary))
    assert one(synthetic, "add-mae").verdict == "differs"


def test_verdict_follows_the_rows_of_a_probe(synthetic) -> None:
    run = synthetic.run()
    path = synthetic.erasures(run.path, range(5))
    assert one(synthetic, "appD-before").verdict == "reproduced"
    rows = pd.read_csv(path)
    rows["seq_acc_before"] = 0.4
    rows.to_csv(path, index=False)
    assert one(synthetic, "appD-before").verdict == "differs"


def test_accuracy_is_the_mean_with_students_t_interval(synthetic) -> None:
    values = [0.92, 0.93, 0.94, 0.95, 0.96]
    synthetic.run("split=vs_v", reach=None, final=values)
    result = one(synthetic, "fig3-add-vs_v")
    assert (result.n, result.seeds) == (5, "0-4")
    assert result.estimate.value == pytest.approx(0.94)
    half = 2.776445 * np.std(values, ddof=1) / 5**0.5
    assert result.estimate.interval == pytest.approx((0.94 - half, 0.94 + half), abs=1e-6)
    assert values_text(result) == "92.00% 93.00% 94.00% 95.00% 96.00%"


def test_interval_of_an_accuracy_is_clipped_at_one(synthetic) -> None:
    synthetic.run(reach=39.0, final=[1.0, 1.0, 1.0, 1.0, 0.99])
    assert one(synthetic, "fig1-add").estimate.interval[1] == 1.0


def test_verdict_needs_the_whole_interval(synthetic) -> None:
    synthetic.run("split=vs_v", reach=None, final=[0.91, 0.92, 0.93, 0.94, 0.95])  # the mean is within two points
    crossing = one(synthetic, "fig3-add-vs_v")
    assert (crossing.verdict, crossing.seeds_needed) == ("inconclusive", 9)
    assert "about 9 seeds like these would decide it" in crossing.cause
    synthetic.run("split=vs_t", reach=None, final=[0.90, 0.90, 0.91, 0.92, 0.91])
    assert one(synthetic, "fig3-add-vs_t").verdict == "differs"


def test_number_of_seeds_that_would_decide_is_the_smallest_one() -> None:
    from scipy.stats import t

    deviation, margin = np.std([0.91, 0.92, 0.93, 0.94, 0.95], ddof=1), 0.013

    def half(n: int) -> float:
        return t.ppf(0.975, n - 1) * deviation / n**0.5

    assert half(8) > margin >= half(9)


def test_two_seeds_are_inconclusive_whatever_they_say(synthetic) -> None:
    synthetic.run("split=vs_v", seeds="0-1", reach=None, final=0.937)
    synthetic.run("split=vs_t", seeds="0-1", reach=None, final=0.2)
    for claim in ("fig3-add-vs_v", "fig3-add-vs_t"):
        result = one(synthetic, claim)
        assert result.estimate.interval is None
        assert (result.verdict, result.seeds_needed) == ("inconclusive", None)
        assert result.cause == "2 seeds, and a verdict takes 3"


def test_range_of_a_median_takes_five_seeds(synthetic) -> None:
    synthetic.run(seeds="0-3", reach=39.0)
    result = one(synthetic, "table3-add-none")
    assert (result.estimate.value, result.verdict) == (39, "inconclusive")
    assert result.cause == "4 seeds, and a verdict takes 5"
    synthetic.run(seeds="4", reach=44.0)
    result = one(synthetic, "table3-add-none")
    assert (result.estimate.interval, result.verdict) == ((39, 44), "reproduced")


def test_replica_in_two_packs_counts_once(synthetic) -> None:
    synthetic.run("split=vs_v", seeds="0-4", reach=None, final=0.93)
    synthetic.run("split=vs_v", seeds="0", reach=None, final=0.93)
    assert one(synthetic, "fig3-add-vs_v").n == 5


def test_run_of_the_exact_length_is_preferred(synthetic) -> None:
    synthetic.run("split=vs_v", seeds="0", epochs=150, reach=100.0, final=1.0)
    synthetic.run("split=vs_v", seeds="0", epochs=50, reach=None, final=0.93)
    result = one(synthetic, "fig3-add-vs_v")
    assert (result.n, result.estimate.value) == (1, pytest.approx(0.93))


def test_longer_run_is_used_when_no_exact_one_exists(synthetic) -> None:
    synthetic.run(epochs=150, reach=39.0)
    assert one(synthetic, "fig1-add").n == 5
    assert one(synthetic, "add-mae").n == 0  # the summary is of epoch 150


def test_censored_seed_enters_the_median_as_a_bound(synthetic) -> None:
    synthetic.run(epochs=100, reach=[38.0, 39.0, 40.0, 41.0, None], final=[1.0, 1.0, 1.0, 1.0, 0.8])
    result = one(synthetic, "table3-add-none")
    assert (result.n, result.censored) == (5, 1)
    assert result.estimate.value == 40  # the third of five, whatever the fifth is
    assert result.estimate.interval == (38, np.inf)
    assert result.verdict == "inconclusive"
    assert "1 of 5 seeds censored: below 0.95 when their runs ended, at epoch 100" in result.cause
    assert values_text(result) == "38 39 40 41 >100"


def test_with_most_seeds_censored_the_median_is_a_bound(synthetic) -> None:
    synthetic.run(epochs=100, reach=[60.0, 70.0, None, None, None], final=[1.0, 1.0, 0.8, 0.8, 0.8])
    result = one(synthetic, "table3-add-none")
    assert result.estimate.value is None
    assert estimate_text(result) == "> 100 epochs"
    assert result.verdict == "differs"  # all of them later than 39 and a quarter


def test_undecided_bounds_are_inconclusive(synthetic) -> None:
    synthetic.run(epochs=50, reach=40.0)
    synthetic.run("task.prompt_order=plain", epochs=50, reach=None, final=0.8)
    result = one(synthetic, "figC6-add-prompt")  # 50 / 40 is within a quarter of 1, and any more is not
    assert (result.n, result.censored, result.verdict) == (5, 5, "inconclusive")
    assert estimate_text(result) == "> 1.25 times"
    assert "would not decide it" in result.cause


def test_trial_too_short_is_not_a_censored_seed(synthetic) -> None:
    synthetic.run(seeds="0", epochs=50, reach=39.0)
    synthetic.run(seeds="1-5", epochs=2, reach=None, final=0.01)
    result = one(synthetic, "table3-add-none")
    assert (result.n, result.censored, result.verdict) == (1, 0, "inconclusive")
    synthetic.run("task=mul", seeds="0", epochs=100, reach=90.0)  # nor one that got there: that would bias the seeds
    early = one(synthetic, "table3-mul-none")
    assert (early.n, early.verdict) == (0, "not run")
    assert "was to end at epoch 100" in early.cause


def test_stopped_at_aim_resumes_with_a_higher_aim(synthetic) -> None:
    stop = {"trainer.stop_at": 0.95, "trainer.max_epochs": 1000}
    synthetic.run("ablation=one_head", epochs=26, reach=[24.0, 25.0, 25.0, 26.0, 24.0], settings=stop)
    assert one(synthetic, "table3-add-one_head").n == 5


def test_ratio_of_unpaired_seeds_keeps_its_bound(synthetic) -> None:
    plain = ("task.prompt_order=plain", "task.completion_order=plain")
    synthetic.run(epochs=150, seeds="0-4", reach=[40.0, 50.0, 30.0, 42.0, 38.0])
    synthetic.run(*plain, epochs=150, seeds="5-9", reach=[120.0, 100.0, None, 110.0, 130.0], final=[1, 1, 0.5, 1, 1])
    result = one(synthetic, "figC6-add")
    assert result.seeds == "5-9 / 0-4"
    assert (result.estimate.low, result.estimate.high) == pytest.approx((3.0, 3.095), abs=0.001)
    assert estimate_text(result) == "3.00 to 3.10 times"
    assert result.estimate.interval[1] == np.inf
    assert result.verdict == "reproduced"  # the third smallest quotient is above one and a half


def test_ratio_of_three_seeds_to_three_has_no_interval(synthetic) -> None:
    """The most extreme order of three and three has a probability of 1 in 20, two-sided 1 in 10."""
    synthetic.run("model=nanogpt", seeds="0-2", reach=7.0)
    synthetic.run(seeds="0-2", reach=39.0)
    result = one(synthetic, "figE7-add-efficiency")
    assert (result.estimate.interval, result.verdict, result.seeds_needed) == (None, "inconclusive", 4)


def test_difference_is_of_means_of_unpaired_seeds(synthetic) -> None:
    random, held_out = [1.0, 0.99, 0.98, 0.97], [0.93, 0.92, 0.94]  # without skewness
    synthetic.run(seeds="0-3", final=random)
    synthetic.run("split=vs_v", seeds="7-9", reach=None, final=held_out)
    result = one(synthetic, "fig3-add-vs_v-loss")
    assert result.estimate.value == pytest.approx(np.mean(random) - np.mean(held_out))
    interval = contrast([Mean.of(random), Mean.of(held_out, -1.0)])
    assert result.estimate.interval == pytest.approx(interval)


def test_difference_of_differences_uses_four_kinds_of_run(synthetic) -> None:
    for model, losses in (("nanogpt", (0.999, 0.82)), ("transformer", (0.999, 0.937))):
        for split, end in zip(("vs_t", "vs_v"), losses, strict=True):
            finals = [end - 0.002, end - 0.001, end, end + 0.0005, end + 0.001]
            synthetic.run(f"split={split}", f"model={model}", reach=None, final=finals)
    result = one(synthetic, "figE8-add-gap")
    assert result.estimate.value == pytest.approx(0.937 - 0.82)
    assert (result.verdict, len(result.samples)) == ("reproduced", 4)


def test_difference_within_seed_noise_is_inconclusive(synthetic) -> None:
    synthetic.run("split=vs_v", reach=None, final=[0.80, 0.85, 0.90, 0.93, 0.99])
    assert one(synthetic, "fig3-add-vs_v").verdict == "inconclusive"
    synthetic.run("split=vs_t", reach=None, final=0.5)
    assert "the whole interval lies outside the tolerance" in one(synthetic, "fig3-add-vs_t").cause


@pytest.mark.parametrize("options", [{"task.bits": 4}, {"task.prompt_order": "plain"}])
def test_probe_of_another_task_matches_no_claim(synthetic, options: dict) -> None:
    synthetic.tables("add")
    good = one(synthetic, "appendixA-cell")
    assert (good.verdict, good.n, good.exact) == ("reproduced", 1, True)
    rows = pd.read_csv(synthetic.root / "probes" / "discontinuity-add" / "rows.csv").assign(percent=1.0)
    synthetic.probe(synthetic.root, "discontinuity-add", rows, options)
    departing = one(synthetic, "appendixA-cell")
    assert departing.verdict == "not run"
    assert "but one departs in" in departing.cause


def test_known_cause_is_given_with_the_device(synthetic) -> None:
    synthetic.run()
    result = one(synthetic, "add-minutes")
    assert result.verdict == "differs"
    assert result.cause == "the paper had a Titan RTX, these runs a CPU, 1 thread"


def test_full_results_leave_only_the_4000_epochs_open(whole: Path, whole_report) -> None:
    paper, found, verdicts = load_paper(), whole_report.found, whole_report.results
    assert found.problems == {}
    long_runs = [paper.command(make, whole) for make in ("fig2_4000", "figC6")]
    assert list(missing(verdicts, paper, whole)) == long_runs
    assert [result.claim.id for result in verdicts if result.n == 0] == ["fig2-train-4000", "figC6-mul-stable"]
    by_id = {result.claim.id: result for result in verdicts}
    assert by_id["table3-mul-squeezed_encoder"].verdict == "reproduced"
    assert by_id["appD-after"].verdict == "differs"
    assert by_id["examples"].verdict == "reproduced"
    assert ours_text(by_id["examples"]) == "16,384 examples"
    assert by_id["discontinuity-mul"].verdict == "reproduced"
    rows = claims_table(verdicts, found, paper, whole)
    assert len(rows) == len(paper.claims)
    assert set(rows.loc[rows["measured_on"] == "our runs", "commit"]) == {"abc1234"}
    text = markdown(verdicts, paper, whole)
    assert all(line.count(" | ") == 6 for line in text.splitlines() if line.startswith("| ") and "---" not in line)


def test_empty_folder_gives_no_verdict_and_every_command(synthetic) -> None:
    paper = load_paper()
    found = collect(synthetic.root, paper.setup)
    verdicts = evaluate(paper, found)
    free = [result for result in verdicts if result.claim.measure.source == EXACT and not result.claim.make]
    assert {result.verdict for result in free} == {"reproduced"}  # what follows from definitions needs no run
    waiting = [result for result in verdicts if result not in free]
    assert {result.verdict for result in waiting} == {"not run"}
    assert all(result.cause for result in waiting)
    commands = missing(verdicts, paper, Path("runs"))
    assert set(commands) == {paper.command(claim.make, Path("runs")) for claim in paper.claims if claim.make}
    text = markdown(verdicts, paper, Path("runs"))
    assert "`python train.py -m experiment=fig1`" in text


def test_tally_names_the_verdicts_that_there_are() -> None:
    assert tally(["differs", "not run", "reproduced", "differs"]) == "1 reproduced, 2 differ, 1 not run"
    assert tally(["differs"]) == "1 differs"
