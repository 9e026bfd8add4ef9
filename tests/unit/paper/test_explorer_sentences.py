"""Findings are about the network in the page."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from arith_erd.paper import explorer_sentences
from arith_erd.paper.explorer_sentences import FINDINGS, finding_sentences, methods_sentence


def test_findings_are_of_the_network_in_the_page() -> None:
    def sentences(name: str, seed: int) -> dict[str, str]:
        model: Any = SimpleNamespace(name=f"add-random-{name}-x", seed=seed, provenance=SimpleNamespace(epoch=None))
        return finding_sentences(model)

    transformer = sentences("transformer-none-seed1", 1)
    assert transformer["tokens"].startswith("In our Transformer of seed 1, 1.4% of answers")  # as in the appendix
    assert {*transformer} == {*FINDINGS}
    assert {*sentences("nanogpt-none-seed1", 1)} == {"invert", "exchange", "steer"}  # it has no encoder
    assert sentences("nanogpt-none-seed1", 99) == sentences("nanogpt-none-bits5-seed1", 1) == {}


def test_methods_are_counted_by_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = {
        "method": ["DAS", "DAS", "INLP", "INLP", "INLP", "DAS"],
        "kind": ["erd"] * 4 + ["mine"] * 2,
        "named": ["sum", "sum", "carries", "abstains", "sum", None],
        "right": [1, 1, 0, 0, 1, None],
    }
    pd.DataFrame(table).to_csv(tmp_path / "methods.csv")
    monkeypatch.setattr(explorer_sentences, "METHODS", tmp_path / "methods.csv")
    said = "Methods gave 4 verdicts on networks of this kind: 2 right, 1 wrong, 1 abstained. Always right: DAS."
    assert methods_sentence("erd") == said
    assert methods_sentence("mine").startswith("Methods gave 1 verdicts on networks of this kind: 1 right")
    assert methods_sentence("other") == ""
