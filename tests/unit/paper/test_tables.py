"""The tables of the pages, and our own claims about mechanisms, are those in the results."""

import pytest
import yaml

from arith_erd.paper.mechanism_tables import read_profiles
from arith_erd.paper.tables import fill, read_claims


def test_an_edited_cell_is_written_anew_and_an_unknown_table_refused() -> None:
    begin, end = (f"<!-- claims fig1-mul:{where} -->" for where in ("begin", "end"))
    filled = fill(f"Before\n\n{begin}\n{end}\n\nAfter", {})
    ours = read_claims().loc["fig1-mul", "ours_text"]
    assert ours in filled
    assert fill(filled.replace(ours, "100%"), {}) == filled
    with pytest.raises(KeyError, match="nothing"):
        fill("<!-- nothing:begin -->\n<!-- nothing:end -->", {})


@pytest.mark.slow
def test_making_the_tables_anew_changes_no_page(cli) -> None:
    result = cli("-m", "arith_erd.paper.tables", "--check", timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_own_claims_are_those_of_the_profiles(root) -> None:
    """They are by bit where a component belongs to no site, else by site, in the decoder after cross-attention."""
    rows = read_profiles()
    for claim in yaml.safe_load((root / "paper" / "results" / "own-claims.yaml").read_text())["claims"]:
        profile = rows[(rows["network"] == claim["network"]) & (rows["seed"] == claim["seed"])]
        profile = profile[(profile["test"] == claim["test"]) & (profile["component"] == claim["component"])]
        if claim["test"] == "signature":
            measured = profile.loc[profile["position"].astype(int) >= claim.get("from_bit", 0), "value"]
        else:
            answers = profile["site"].str.endswith(".resid_mid_cross") | (profile["position"] == "all")
            measured = profile[answers].groupby("site", sort=False)["value"].mean()
        assert claim["value"] == pytest.approx([*measured], abs=0.006), claim["id"]
