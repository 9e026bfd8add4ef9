"""Sentences on what was found are of the network in the page."""

from types import SimpleNamespace
from typing import Any

from paper.findings import FINDINGS, finding_sentences


def test_findings_are_of_the_network_in_the_page() -> None:
    def sentences(name: str, seed: int) -> dict[str, str]:
        model: Any = SimpleNamespace(name=f"add-random-{name}-x", seed=seed, provenance=SimpleNamespace(epoch=None))
        return finding_sentences(model)

    transformer = sentences("transformer-none-seed1", 1)
    assert transformer["tokens"].startswith("In our Transformer of seed 1, 1.4% of answers")  # as in the appendix
    assert {*transformer} == {*FINDINGS}
    assert {*sentences("nanogpt-none-seed1", 1)} == {"invert", "exchange", "steer"}  # it has no encoder
    assert sentences("nanogpt-none-seed1", 99) == sentences("nanogpt-none-bits5-seed1", 1) == {}
