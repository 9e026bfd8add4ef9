"""Estimates come from the data alone."""

import json

import numpy as np
import pandas as pd
import pytest

from arith_erd.report import claims
from arith_erd.report.claims_file import load_paper
from arith_erd.report.page import ours_texts, values_text
from arith_erd.stats import Estimate, Moments

VS_V = [0.92, 0.93, 0.94, 0.95, 0.96]


def evaluate(runs, claim: str) -> claims.Result:
    (chosen,) = (found for found in load_paper().claims if found.id == claim)
    return claims.evaluate_claim(chosen, runs.data())


def test_accuracy_is_the_median_of_the_last_ten_epochs_of_each_seed(synthetic) -> None:
    run = synthetic.run("split=vs_v", reach=None, final=VS_V)
    rows = pd.read_csv(run.path / "metrics.csv")
    rows.loc[rows["epoch"] == 50, "val_seq_acc"] = 0.5  # the last epoch wobbles
    rows.to_csv(run.path / "metrics.csv", index=False)
    result = evaluate(synthetic, "fig3-add-vs_v")
    assert (result.num_seeds, result.seeds) == (5, "0-4")
    assert result.estimate.interval == pytest.approx(Estimate.of_prediction(Moments.from_values(VS_V)).interval)
    assert values_text(result) == "92.00% 93.00% 94.00% 95.00% 96.00%"
    assert result.verdict == "reproduced"


def test_verdict_follows_summaries_and_rows_of_probes(synthetic) -> None:
    run = synthetic.run(summary={"val_mae": 0.01})
    path = synthetic.measured(run.path, range(5), "amnesic", seq_acc_before=1.0)
    assert [evaluate(synthetic, name).verdict for name in ("add-mae", "appD-before")] == ["reproduced"] * 2
    (run.path / "summary.json").write_text(json.dumps(run.summary()).replace('"val_mae": 0.01', '"val_mae": 3.0'))
    pd.read_csv(path).assign(seq_acc_before=0.4, probe_error_before=0.01).to_csv(path, index=False)
    assert [evaluate(synthetic, name).verdict for name in ("add-mae", "appD-before")] == ["differs"] * 2
    assert evaluate(synthetic, "appD-rmse").verdict == "reproduced"  # a smaller error is no failure


def test_cost_of_a_region_is_training_minus_validation_of_the_same_run(synthetic) -> None:
    trained = [1.0, 0.999, 0.998, 0.997, 0.996]
    for split, ends in (("vs_t", 0.99), ("vs_v", VS_V)):
        synthetic.run(f"split={split}", reach=None, final=ends, train_final=trained)
    loss = evaluate(synthetic, "fig3-add-vs_v-loss")
    costs = np.array(trained) - VS_V
    assert loss.estimate.interval == pytest.approx(
        Estimate.of_prediction(Moments.from_values(costs)).interval, abs=1e-6
    )
    more = evaluate(synthetic, "fig3-add-vs_v-more")
    expected = Estimate.of_means(
        [Moments.from_values(costs), Moments.from_values(np.array(trained) - 0.99, -1.0)]
    ).interval
    assert more.estimate.interval == pytest.approx(expected, abs=1e-6)
    assert more.verdict == "reproduced"
    assert values_text(more).startswith("8.00 6.90 5.80 4.70 3.60 / 1.00 0.90")


def test_exact_ceiling_is_confirmed_by_three_seeds_of_100_epochs(synthetic) -> None:
    alone = evaluate(synthetic, "table3-add-no_attention")
    assert (ours_texts(alone)[0], alone.verdict) == ("0.78%", "not run")
    synthetic.run("ablation=no_attention", seeds="0-2", epochs=100, reach=None, final=[0.008, 0.009, 0.0085])
    result = evaluate(synthetic, "table3-add-no_attention")
    assert (ours_texts(result)[0], values_text(result)) == ("0.78%", "0.80% 0.90% 0.85%")
    assert (result.verdict, result.num_seeds) == ("reproduced", 3)
    assert "that of the validation set is 0.95%" in result.cause
    synthetic.run("ablation=no_attention", seeds="3", epochs=100, reach=None, final=0.02)
    assert "the argument is wrong" in evaluate(synthetic, "table3-add-no_attention").cause


def test_censored_seed_enters_the_median_as_a_bound(synthetic) -> None:
    synthetic.run(epochs=100, reach=[38.0, 39.0, 40.0, 41.0, None], final=[1.0, 1.0, 1.0, 1.0, 0.8])
    result = evaluate(synthetic, "table3-add-none")
    assert (result.num_seeds, result.num_censored) == (5, 1)
    assert result.estimate.value == 40  # the third of five, whatever the fifth is
    assert result.estimate.interval == (38, np.inf)
    assert "1 of 5 seeds censored: below 0.95 when their runs ended, at epoch 100" in result.cause
    assert values_text(result) == "38 39 40 41 >100"


def test_trial_too_short_is_not_a_censored_seed(synthetic) -> None:
    synthetic.run(seeds="0", epochs=50, reach=39.0)
    synthetic.run(seeds="1-5", epochs=2, reach=None, final=0.01)
    result = evaluate(synthetic, "table3-add-none")
    assert (result.num_seeds, result.num_censored, result.verdict) == (1, 0, "inconclusive")
    synthetic.run("task=mul", seeds="0", epochs=100, reach=90.0)  # nor one that got there: that would bias the seeds
    early = evaluate(synthetic, "table3-mul-none")
    assert (early.num_seeds, early.verdict) == (0, "not run")
    assert early.cause.startswith("the longest run of mul has 100 of ")


def test_ratio_of_unpaired_seeds_keeps_its_bound(synthetic) -> None:
    plain = ("task.prompt_order=plain", "task.completion_order=plain")
    synthetic.run(epochs=150, seeds="0-4", reach=[40.0, 50.0, 30.0, 42.0, 38.0])
    synthetic.run(*plain, epochs=150, seeds="5-9", reach=[120.0, 100.0, None, 110.0, 130.0], final=[1, 1, 0.5, 1, 1])
    result = evaluate(synthetic, "figC6-add")
    assert result.seeds == "5-9 / 0-4"
    assert ours_texts(result)[0] == "3.00 to 3.10 times"
    assert result.estimate.interval[1] == np.inf
    assert result.verdict == "reproduced"  # the third smallest quotient is above one and a half


def test_probe_of_another_task_matches_no_claim(synthetic) -> None:
    synthetic.discontinuity()
    good = evaluate(synthetic, "appendixA-cell")
    assert (good.verdict, good.num_seeds, good.exact) == ("reproduced", 1, True)
    synthetic.discontinuity(options={"task.bits": 4})
    assert evaluate(synthetic, "appendixA-cell").verdict == "not run"
