"""``paper.yaml`` and ``mini.yaml`` hold every claim, each with all it takes to measure and judge it."""

from pathlib import Path

import pytest
import yaml

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.report.collect import DEFAULTS, departures
from arith_erd.report.measures import Metrics
from arith_erd.report.paper import MINI, PAPER, load_paper
from arith_erd.runs import METRICS, settings


@pytest.mark.parametrize("file", [PAPER, MINI], ids=lambda file: file.stem)
def test_every_claim_can_be_measured_and_its_own_number_counts_as_reproduced(file: Path) -> None:
    paper = load_paper(file)
    counted = {claim.id for claim in paper.claims if claim.counted}
    for claim in paper.claims:
        assert claim.accepted[0] - 1e-5 <= claim.value <= claim.accepted[1], claim.id
        for _, runs in claim.measure.arms:
            assert set(runs) <= {"task", "min_epochs", *DEFAULTS}, claim.id
        if isinstance(claim.measure, Metrics):
            assert {claim.measure.column, claim.measure.minus_column or "epoch"} <= set(METRICS), claim.id
            assert (claim.measure.epoch is None) != (claim.measure.until is None), claim.id
        assert claim.figure in {figure.name for figure in paper.figures} | {""}, claim.id
        assert claim.same_as in counted | {""}, claim.id


@pytest.mark.parametrize(("key", "value"), [("task.bits", 5), ("model.gradient_clip", 1.0)])
def test_setting_that_departs_from_the_paper_is_named(key: str, value: float) -> None:
    given = settings(compose("train", ["task=mul"]).resolved)
    assert departures(given, load_paper().setup) == []
    assert departures(given | {key: value}, load_paper().setup) == [f"{key}={value}"]


def test_printed_command_names_the_folder_that_was_read() -> None:
    paper = load_paper()
    assert paper.command("fig3", Path("runs")) == "python train.py -m experiment=fig3"
    assert paper.command("fig3", Path("/data/my runs")).endswith(" runs_dir='/data/my runs'")
    assert paper.command("fig4_mul", Path("elsewhere")).endswith(" run='elsewhere/mul-random-transformer-none-*'")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "1"}, "value=1: Input should be a valid number"),
        ({"tolerance": None}, "expected a tolerance or a bound"),
        ({"make": "nothing"}, "make=nothing: expected appendixA"),
        ({"same_as": "fig1-add"}, "expected same_as: a claim that is counted itself"),
        ({"measure": {"from": "guess"}}, "expected tags: 'metrics', 'ceiling', "),
        ({"measure": {"from": "summary", "column": "x", "epoc": 5, "runs": {"task": "add"}}}, "measure.epoc=5: Extra"),
        ({"measure": {"from": "summary", "column": "x", "runs": {}}}, "expected measure.runs: a task"),
    ],
)
def test_wrong_entry_is_refused_in_one_line(tmp_path: Path, change: dict, says: str) -> None:
    raw = yaml.safe_load(PAPER.read_text())
    raw["sections"][0]["claims"][0] |= change
    path = tmp_path / "paper.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(UserError, match=r"^paper\.yaml: claim fig1-add: ") as refused:
        load_paper(path)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
