"""Benchmarks run at toy sizes; the pages' numbers and our own claims about mechanisms are those in the results."""

import runpy
import sys

import pytest
import yaml

from paper.mechanism_tables import read_cards
from tests.tiny import NETWORK


@pytest.mark.slow
def test_checks_pass_on_a_machine_without_a_gpu(root, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["correctness.py", *NETWORK])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(root / "benchmarks" / "correctness.py"), run_name="__main__")
    assert not end.value.code
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [" ok " in line for line in lines] == [True] * 8 + [False] * 2
    assert all("bf16-mixed" in line and " for the record " in line for line in lines[8:])


@pytest.mark.slow
def test_making_the_tables_anew_changes_no_page(cli) -> None:
    result = cli("-m", "paper.tables", "--check", timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_own_claims_are_those_of_the_cards(root) -> None:
    """By bit where a component belongs to no site, else means by site, in the decoder after cross-attention."""
    rows = read_cards()
    for claim in yaml.safe_load((root / "paper" / "results" / "found.yaml").read_text())["claims"]:
        card = rows[(rows["network"] == claim["network"]) & (rows["seed"] == claim["seed"])]
        card = card[(card["test"] == claim["test"]) & (card["component"] == claim["component"])]
        if claim["test"] == "signature":
            measured = card.loc[card["position"].astype(int) >= claim.get("from_bit", 0), "value"]
        else:
            answers = card["site"].str.endswith(".resid_mid_cross") | (card["position"] == "all")
            measured = card[answers].groupby("site", sort=False)["value"].mean()
        assert claim["value"] == pytest.approx([*measured], abs=0.006), claim["id"]
