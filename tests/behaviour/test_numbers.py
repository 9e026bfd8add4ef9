"""The numbers in the pages, and our own claims about mechanisms, are those in ``results/``."""

import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def test_making_the_numbers_anew_changes_no_page(cli) -> None:
    result = cli("benchmarks/page_numbers.py", "--check", timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_own_claims_are_those_of_the_cards(monkeypatch) -> None:
    """By bit where a component belongs to no site, else means by site, in the decoder after cross-attention."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    rows = runpy.run_path(str(ROOT / "benchmarks" / "mechanism_numbers.py"))["cards"]()
    for claim in yaml.safe_load((RESULTS / "found.yaml").read_text())["claims"]:
        card = rows[(rows["network"] == claim["network"]) & (rows["seed"] == claim["seed"])]
        card = card[(card["test"] == claim["test"]) & (card["component"] == claim["component"])]
        if claim["test"] == "signature":
            measured = card.loc[card["position"].astype(int) >= claim.get("from_bit", 0), "value"]
        else:
            answers = card["site"].str.endswith(".resid_mid_cross") | (card["position"] == "all")
            measured = card[answers].groupby("site", sort=False)["value"].mean()
        assert claim["value"] == pytest.approx([*measured], abs=0.006), claim["id"]
