"""Losses of one network: the cross-entropy of its answers, and a head that reads a number."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from arith_erd.losses import CrossEntropy, CrossEntropyAndValue
from arith_erd.tasks import Mul

B, M, V, C = 5, 4, 5, 6
PROMPT = torch.zeros(B, M, dtype=torch.long)


class Fixed(nn.Module):
    """Gives the same logits (B, m, V), and activations (B, m, C) at its site, for every input."""

    def __init__(self, site: str = "dec.1") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.logits, self.x = (torch.randn(B, M, n, generator=generator, requires_grad=True) for n in (V, C))
        self.name, self.layer = site, nn.Identity()

    def sites(self) -> dict[str, nn.Module]:
        return {self.name: self.layer}

    def forward(self, prompt: torch.Tensor, answer_in: torch.Tensor) -> torch.Tensor:
        self.layer(self.x)
        return self.logits


@pytest.fixture
def completion() -> torch.Tensor:
    return torch.randint(3, 5, (B, M), generator=torch.Generator().manual_seed(0))


def with_head(network: Fixed, completion: torch.Tensor) -> CrossEntropyAndValue:
    loss = CrossEntropyAndValue(network.name, weight=0.5)
    loss.add_head(network, PROMPT, completion, columns=2)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return loss


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_the_mean_over_the_tokens(completion, smoothing):
    network = Fixed()
    expected = F.cross_entropy(network.logits.flatten(0, 1), completion.flatten(), label_smoothing=smoothing)
    torch.testing.assert_close(CrossEntropy(smoothing)(network, PROMPT, completion), expected)


@pytest.mark.parametrize("site", ["dec.1", "enc.1"])
def test_head_adds_its_mean_squared_error(completion, site):
    network = Fixed(site)
    loss, targets = with_head(network, completion), torch.randn(B, 2)
    x = network.x.flatten(1)[:, None] if site == "enc.1" else network.x[:, :2]  # of each column of the target
    error = (x * loss.head).sum(-1) + loss.offset - targets
    expected = CrossEntropy()(Fixed(), PROMPT, completion) + 0.5 * error.square().mean()
    torch.testing.assert_close(loss(network, PROMPT, completion, targets), expected)


def test_column_of_a_target_is_read_where_its_token_is_not_yet_known(completion):
    network = Fixed()
    with_head(network, completion)(network, PROMPT, completion, torch.randn(B, 2)).backward()
    assert (network.x.grad.abs().sum((0, 2)) > 0).tolist() == [True, True, False, False]


class Backwards(Mul):
    def completion(self, operands, answer):
        return super().completion(operands, answer)[:, ::-1]

    @property
    def answer_names(self):
        return super().answer_names[::-1]


@pytest.mark.parametrize("plain", [Mul(3, completion_order="plain"), Backwards(3)])
def test_columns_follow_the_tokens_in_plain_order(plain):
    reverse = Mul(3)
    loss = CrossEntropyAndValue("dec.1", "running_sum")
    large = Mul(4, base=10)  # whose table is not listed, as in arXiv 2510.00184
    assert loss.scaled_targets(large, large.sample(64)).shape == (64, 8)
    assert (
        loss.scaled_targets(plain, plain.examples()) == loss.scaled_targets(reverse, reverse.examples())[:, ::-1]
    ).all()
