"""The how-to page about networks of others, tried on an adder in the style of the page's example."""

import re
import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from arith_erd.digits import ZERO

SEP = 10


class Adder(nn.Module):
    """Fixed attention sums the digits of a column, and the lower columns as fractions of it; steps make the digit."""

    def __init__(self, digits: int) -> None:
        super().__init__()
        num_read = 2 * digits + 2
        weights = torch.zeros(3, digits + 1, num_read, dtype=torch.float64)  # dimensions, answer digits, prompt
        for t in range(digits + 1):
            for column in range(min(t + 1, digits)):
                for key in (column, digits + 1 + column):
                    weights[int(column < t), t, key] = 10.0 ** (column - t)
        self.value = nn.Embedding(11, 1, _weight=torch.tensor([*range(10), 0], dtype=torch.float64)[:, None])
        self.weights, self.num_read = nn.Parameter(weights), num_read
        self.block = nn.Module()
        self.block.o_proj = nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        prompt = self.value(tokens[:, : self.num_read])[..., 0]  # (N, P)
        num_asked = tokens.shape[1] - self.num_read + 1
        stream = self.block.o_proj(torch.einsum("dtp,np->ntd", self.weights[:, :num_asked], prompt))
        total = stream[..., 0] + (stream[..., 1] > 1 - 1e-9)
        digit = total - 10 * (total > 9.5)
        logits = -((digit[..., None] - torch.arange(10)) ** 2)  # (N, t, 10)
        before = logits.new_zeros(len(tokens), self.num_read - 1, 10)
        return nn.functional.pad(torch.cat([before, logits], dim=1), (0, 1), value=-1e9)


def test_what_the_author_of_a_network_says_is_confirmed(root, monkeypatch):
    submission = ModuleType("submission")
    submission.SEP = SEP
    submission.build_model = lambda: (Adder(10), {"name": "tiny"})
    monkeypatch.setitem(sys.modules, "submission", submission)
    page = (root / "docs" / "how-to" / "networks-of-others.md").read_text()
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(block, names)
    assert names["model"].accuracy() == 1
    assert names["FIRST_DIGIT"] == ZERO
    of_columns, of_lower_ones = names["found"]
    assert of_columns < 0.5
    assert of_lower_ones == 1
    assert names["searched"] == pytest.approx([1, 1])
