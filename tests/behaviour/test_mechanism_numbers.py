"""Our own claims about mechanisms are those of cards and calibrations in ``results/``."""

import pandas as pd
import pytest
import yaml

from arith_erd.mechanism.signature import POST_HOC
from tests.behaviour.pages import RESULTS, cards


def test_own_claims_are_those_of_the_cards() -> None:
    """By bit where a component belongs to no site, else means by site, in the decoder after cross-attention."""
    rows = cards()["published"]()
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
    probes = pd.read_csv(RESULTS / "reference-probes.csv").set_index(["network", "test"])
    assert probes.loc[("erd", "dose"), "least"].min() == 1
