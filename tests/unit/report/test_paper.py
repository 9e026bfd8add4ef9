"""``paper.yaml`` holds every published number, each with all it takes to measure and judge it."""

from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
import yaml

from arith_erd.errors import UserError
from arith_erd.report.paper import PAPER, UNITS, load_paper, number, paper_text
from arith_erd.report.replicas import DEFAULTS, departures
from arith_erd.runs import METRICS

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
    assert paper_text(CLAIMS[claim]) == says


def test_the_known_errata_stand_beside_their_claims() -> None:
    assert "4000" in CLAIMS["fig2-train"].erratum
    assert "authors' own weights" in CLAIMS["appD-after"].erratum


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_says_what_to_measure_and_what_counts(claim) -> None:
    assert claim.lowest <= claim.value <= claim.highest
    assert claim.unit in UNITS
    measure = claim.measure
    assert set(measure) <= {
        *("from", "column", "minus_column", "epoch", "until", "accuracy", "planned", "reduce", "along"),
        *("probe", "where", "runs", "minus", "over"),
    }
    for runs in (measure.get("runs", {}), measure.get("minus", {}), measure.get("over", {})):
        assert set(runs) <= {"task", "min_epochs", *DEFAULTS}
    if measure["from"] == "metrics":
        assert {measure["column"], measure.get("minus_column", "epoch")} <= set(METRICS)
        assert ("epoch" in measure) != ("until" in measure)
    if measure["from"] != "probe":
        assert "task" in measure["runs"]


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
def test_a_setting_that_is_not_the_papers_is_named(configuration_of, key: str, value: float) -> None:
    config = configuration_of("task=mul")
    assert departures(config, load_paper().setup) == []
    *groups, last = key.split(".")
    reduce(getitem, groups, config)[last] = value
    assert departures(config, load_paper().setup) == [f"{key}={value}"]


def test_a_command_points_at_the_folder_that_was_read() -> None:
    paper = load_paper()
    assert paper.command("fig3", Path("runs")) == "python train.py -m experiment=fig3"
    assert paper.command("fig3", Path("/data/my runs")).endswith(" runs_dir='/data/my runs'")
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
        ({"statement": ""}, "statement"),
    ],
)
def test_a_mistake_in_the_file_is_named(change: dict, says: str, tmp_path: Path) -> None:
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
