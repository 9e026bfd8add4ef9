"""The numbers in the pages, and our own claims about mechanisms, are those in ``results/``."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
import yaml

from arith_erd.mechanism.signature import POST_HOC

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def script(name: str) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        return runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))


def test_making_the_numbers_anew_changes_no_page(cli) -> None:
    result = cli("benchmarks/page_numbers.py", "--check", timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_number_and_table_that_differ_are_written_anew() -> None:
    renewed = script("page_numbers")["renewed"]
    old = "It ends at <!--end-->97%<!--/-->.\n\n<!-- layers:begin -->\nold\n<!-- layers:end -->\n"
    new = renewed(old, {"end": "98%"}, {"layers": "| 1 |"})
    assert new == "It ends at <!--end-->98%<!--/-->.\n\n<!-- layers:begin -->\n| 1 |\n<!-- layers:end -->\n"
    with pytest.raises(KeyError):
        renewed(old, {}, {})
    with pytest.raises(ValueError, match="must not begin a line"):
        renewed("<!--end-->97%<!--/--> is the end", {"end": "98%"}, {})


def test_own_claims_are_those_of_the_cards() -> None:
    """By bit where a component belongs to no site, else means by site, in the decoder after cross-attention."""
    rows = script("mechanism_numbers")["cards"]()
    for claim in yaml.safe_load((RESULTS / "found.yaml").read_text())["claims"]:
        card = rows[(rows["network"] == claim["network"]) & (rows["seed"] == claim["seed"])]
        card = card[(card["test"] == claim["test"]) & (card["component"] == claim["component"])]
        if claim["test"] == "signature":
            measured = card.loc[card["position"].astype(int) >= claim.get("from_bit", 0), "value"]
        else:
            answers = card["site"].str.endswith(".resid_mid_cross") | (card["position"] == "all")
            measured = card[answers].groupby("site", sort=False)["value"].mean()
        assert claim["value"] == pytest.approx([*measured], abs=0.006), claim["id"]


def test_fresh_networks_of_known_algorithms_get_their_own_verdict() -> None:
    fresh = pd.read_csv(RESULTS / "mechanism-calibration-fresh.csv")
    assert (fresh["verdict"] == fresh["expected"]).all()
    assert fresh.loc[fresh["expected"] != "none", "distance"].max() <= 1
    assert all((fresh.loc[fresh["network"] == name, "near"] == name).all() for name in POST_HOC)
