"""``paper.yaml`` holds every published number, each with all it takes to measure and judge it."""

from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
import yaml

from arith_erd.errors import UserError
from arith_erd.plots.numbers import UNITS, number
from arith_erd.report.collect import DEFAULTS, departures
from arith_erd.report.measures import MEASURES, Metrics
from arith_erd.report.paper import PAPER, load_paper
from arith_erd.runs import METRICS, settings

CLAIMS = {claim.id: claim for claim in load_paper().claims}


def test_there_are_at_least_45_claims_and_table_3_has_all_its_cells() -> None:
    assert len(CLAIMS) >= 45
    assert sum(name.startswith("table3-") for name in CLAIMS) == 14


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ("table3-add-none", "39 epochs"),
        ("table3-mul-squeezed_encoder", "426 epochs"),
        ("table3-mul-no_attention", "— (1.7%)"),
        ("fig3-add-vs_v", "93.7%"),
        ("fig3-mul-vs_t-loss", "1.4 points"),
        ("fig2-train", "87.8%"),
        ("mul-mae", "1.3"),
        ("add-flops", "59e12"),
        ("mul-flops", "374e12"),
        ("add-minutes", "≤ 8 min"),
        ("transformer-parameters", "701K"),
        ("nanogpt-parameters", "298K"),
        ("vocabulary", "5 tokens"),
        ("training-examples", "12,288 examples"),
        ("appendixA-cell", "27.9%"),
        ("fig4-value-maximum", "layer 3"),
        ("appD-rmse", "0.28"),
        ("appD-after", "0.13%"),
        ("figE8-mul-vs_v", "80.6%"),
    ],
)
def test_numbers_are_those_of_the_paper(claim: str, says: str) -> None:
    assert CLAIMS[claim].text == says


def test_known_errata_stand_beside_their_claims() -> None:
    assert "4000" in CLAIMS["fig2-train"].erratum
    assert "authors' own weights" in CLAIMS["appD-after"].erratum


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_claim_has_a_measure_runs_and_a_tolerance(claim) -> None:
    assert claim.lowest <= claim.highest
    assert claim.lowest - 1e-5 <= claim.value <= claim.highest
    assert claim.unit in UNITS
    assert type(claim.measure) in MEASURES.values()
    for _, runs in claim.arms:
        assert set(runs) <= {"task", "min_epochs", *DEFAULTS}
    if isinstance(claim.measure, Metrics):
        assert {claim.measure.column, claim.measure.minus_column or "epoch"} <= set(METRICS)
        assert (claim.measure.epoch is None) != (claim.measure.until is None)
    assert claim.figure in {figure.name for figure in load_paper().figures} | {""}


def test_linked_claims_point_at_counted_results() -> None:
    linked = [claim for claim in CLAIMS.values() if claim.same_as]
    assert len(linked) >= 10
    assert all(CLAIMS[claim.same_as].kind == "result" for claim in linked)


def rows_of_tolerances(root: Path) -> list[str]:
    return (root / "docs" / "verdicts.md").read_text().partition("## Tolerances")[2].splitlines()


@pytest.mark.parametrize(
    ("row", "claims"),
    [
        ("accuracy of at least 99.9%", {"fig1-add": 0.005, "fig3-add-vs_t": 0.005, "figE8-mul-vs_t": 0.005}),
        ("accuracy of 98.9%", {"fig1-mul": 0.01}),
        ("accuracy from 5% to 98%", {"fig3-add-vs_v": 0.02, "fig3-mul-vs_t": 0.02, "figE8-mul-vs_v": 0.02}),
        ("accuracy below 5%", {"table3-add-no_attention": 0.0045, "appD-after": 0.00065}),
        ("points lost", {"fig3-mul-vs_t-loss": 0.007, "fig3-add-vs_v-loss": 0.02, "fig3-add-vs_t-loss": 0.005}),
        ("training minus validation", {"fig1-add-overlap": 0.01, "fig1-mul-overlap": 0.02}),
        ("epochs", {"table3-add-none": 9.75, "table3-mul-squeezed_encoder": 106.5}),
        ('ratio of epochs, "irrelevant"', {"figC6-add-prompt": 0.25, "squeezing-mul": 0.25}),
        ("mean absolute error, published as 0", {"add-mae": 0.05}),
        ("mean absolute error, published as 1.3", {"mul-mae": 0.65}),
        ("root mean square error", {"appD-rmse": 0.05}),
    ],
)
def test_tolerances_are_those_of_the_rules(root: Path, row: str, claims: dict[str, float]) -> None:
    """``docs/verdicts.md`` was committed before the runs; a tolerance that moves has to move there, too."""
    assert any(line.startswith(f"| {row}") for line in rows_of_tolerances(root))
    for name, tolerance in claims.items():
        claim = CLAIMS[name]
        assert (claim.highest - claim.lowest) / 2 == pytest.approx(tolerance), name


def test_every_command_names_options_that_exist(root: Path) -> None:
    """``tests/behaviour/test_experiments.py`` composes the presets and holds them against the setup."""
    for command in load_paper().commands.values():
        _, program, *arguments = command.split()
        assert (root / program).is_file()
        for argument in arguments:
            group, _, options = argument.partition("=")
            if (root / "conf" / group).is_dir():
                for option in options.split(","):
                    assert (root / "conf" / group / f"{option}.yaml").is_file(), command
            else:
                assert group in ("-m", "run", "trainer.max_epochs"), command


@pytest.mark.parametrize(
    ("key", "value"), [("model.optimizer.lr", 0.01), ("task.bits", 5), ("split.seed", 1), ("model.gradient_clip", 1.0)]
)
def test_setting_that_departs_from_the_paper_is_named(configuration_of, key: str, value: float) -> None:
    config = configuration_of("task=mul")
    assert departures(settings(config), load_paper().setup) == []
    *groups, last = key.split(".")
    reduce(getitem, groups, config)[last] = value
    assert departures(settings(config), load_paper().setup) == [f"{key}={value}"]


def test_printed_command_names_the_folder_that_was_read() -> None:
    paper = load_paper()
    assert paper.command("fig3", Path("runs")) == "python train.py -m experiment=fig3"
    assert paper.command("fig3", Path("/data/my runs")).endswith(" runs_dir='/data/my runs'")
    assert paper.command("fig3", Path("a=b")).endswith(""" runs_dir=''"'"'a=b'"'"''""")
    assert paper.command("fig4_mul", Path("elsewhere")).endswith(" run='elsewhere/mul-random-transformer-none-*'")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "many"}, "value"),
        ({"unit": "parsecs"}, "unit"),
        ({"bound": "at_most"}, "tolerance or a bound"),
        ({"tolerence": 1}, "tolerence"),
        ({"make": "fig9"}, "make"),
        ({"measure": {"from": "memory"}}, "measure.from"),
        ({"measure": {"from": "metrics", "row": 3, "runs": {"task": "add"}}}, "measure: keys among column"),
        ({"kind": "rumour"}, "kind"),
        ({"statement": ""}, "statement"),
    ],
)
def test_mistake_in_the_file_is_named(change: dict, says: str, tmp_path: Path) -> None:
    raw = yaml.safe_load(PAPER.read_text().partition("      - id: fig1-mul\n")[0])  # the first claim alone
    raw["sections"][0]["claims"][0] |= change
    path = tmp_path / "paper.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(UserError, match=f"claim fig1-add: .*{says}") as refused:
        load_paper(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0, "accuracy", "100%"),
        (0.99976, "accuracy", "99.98%"),
        (0.0013, "accuracy", "0.13%"),
        (0.0, "accuracy", "0%"),
        (0.0631, "points", "6.31 points"),
        (-0.000001, "points", "0.00 points"),
        (float("inf"), "epochs", "∞ epochs"),
        (38.5, "epochs", "38.5 epochs"),
        (14_131_200, "tokens", "14.13M tokens"),
        (701_381, "parameters", "701,381"),
        (59.47e12, "operations", "59.5e12"),
        (3, "layer", "layer 3"),
        (3.5, "layer", "layer 3.50"),
        (0.26, "ratio", "0.26 times"),
    ],
)
def test_how_numbers_are_written(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text
