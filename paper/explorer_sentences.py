"""Sentences on what was found about each network, for the explorer's page in the documentation."""

import re
from typing import Any

import pandas as pd
import yaml

from arith_erd.bundled import PAPER, RESULTS
from arith_erd.interp.hooked import Hooked

from .formats import MODELS

TABLES = [RESULTS / name for name in ("response-profiles.csv", "older-profiles.csv")]
FINDINGS: dict[str, dict[str, Any]] = yaml.safe_load((PAPER / "explorer_sentences.yaml").read_text("utf-8"))
SECTIONS = {intervention: finding["section"] for intervention, finding in FINDINGS.items()}
METHODS = RESULTS / "methods.csv"


def finding_sentences(model: Hooked) -> dict[str, str]:
    """Intervention -> a sentence with the network's results in `TABLES`; empty if they have none."""
    ours = re.match("add-random-(transformer|nanogpt)-none-seed", model.name)  # other options stand before the seed
    network = ours[1] if ours else "authors" if model.name == "add_model" else None
    if network is None or model.provenance.epoch is not None:
        return {}
    rows = pd.concat(map(pd.read_csv, TABLES)).query("network == @network and seed == @model.seed and control.isna()")
    described = f"our {MODELS[network]} of seed {model.seed}" if ours else "the authors' network"
    sentences = {}
    for intervention, finding in FINDINGS.items():
        statistics = [rows.query(query)["value"].clip(lower=0).describe() for query in finding["queries"]]
        if all(of_values["count"] for of_values in statistics):
            said = finding["sentence"].format(*statistics).replace("at most 0%", "none")
            sentences[intervention] = f"In {described}, {said}."
    return sentences


def methods_sentence(kind: str) -> str:
    """How the methods fared on networks of a kind of `arith_erd.zoo`; empty if none was judged."""
    rows = pd.read_csv(METHODS).query("kind == @kind").dropna(subset=["right"])
    if rows.empty:
        return ""
    right, abstained = rows["right"] == 1, rows["named"] == "abstains"
    always = right.groupby(rows["method"]).all()
    hits, wrong = right.sum(), (~right & ~abstained).sum()
    count = f"Methods gave {len(rows)} verdicts on networks of this kind: {hits} right, {wrong} wrong"
    return f"{count}, {len(rows) - hits - wrong} abstained. Always right: {', '.join(always.index[always])}."
