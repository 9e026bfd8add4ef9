"""Losses: one number for each replica, which no other replica changes."""

import pytest
import torch
from torch.nn import functional as F

from arith_erd.losses import CrossEntropy, CrossEntropyAndValue, Loss
from arith_erd.tasks import Mul

R, B, M, V, T, C = 3, 5, 4, 5, 4, 6


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "logits": torch.randn(R, B, M, V, generator=generator),
        "completion": torch.randint(3, 5, (R, B, M), generator=generator),
        "activation": torch.randn(R, B, T, C, generator=generator),
        "targets": torch.randn(R, B, 2, generator=generator),
    }


def with_head(site: str) -> Loss:
    loss = CrossEntropyAndValue(site, weight=0.5)
    loss.make_parameters(R, (T, C), 2)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return loss


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_the_mean_over_the_tokens_of_each_replica(batch, smoothing):
    losses = CrossEntropy(smoothing)(batch["logits"], batch["completion"])
    for r in range(R):
        logits, completion = batch["logits"][r].flatten(0, 1), batch["completion"][r].flatten()
        torch.testing.assert_close(losses[r], F.cross_entropy(logits, completion, label_smoothing=smoothing))


@pytest.mark.parametrize("site", ["dec.1", "enc.1"])
def test_head_adds_its_mean_squared_error_and_replicas_are_independent(batch, site):
    loss = with_head(site)
    losses = loss(**batch)
    for r in range(R):
        x = batch["activation"][r]
        x = x.flatten(1)[:, None] if site == "enc.1" else x[:, :2]  # of each column of the target
        predicted = (x * loss.head[r]).sum(-1) + loss.offset[r]
        plain = CrossEntropy()(batch["logits"], batch["completion"])[r]
        torch.testing.assert_close(losses[r], plain + 0.5 * (predicted - batch["targets"][r]).square().mean())
    losses[1].backward()
    assert [(g.flatten(1) != 0).any(dim=1).tolist() for g in (loss.head.grad, loss.offset.grad)] == 2 * [
        [False, True, False]
    ]


def test_column_of_a_target_is_read_where_its_token_is_not_yet_known(batch):
    loss = with_head("dec.1")
    batch["activation"].requires_grad_()
    loss(**batch).sum().backward()
    reached = batch["activation"].grad.abs().sum((0, 1, 3))
    assert (reached > 0).tolist() == [True, True, False, False]


def test_columns_follow_the_tokens_in_plain_order():
    reverse, plain = Mul(3), Mul(3, completion_order="plain")
    loss = CrossEntropyAndValue("dec.1", "column_sums")
    assert (loss.targets(plain, plain.examples()) == loss.targets(reverse, reverse.examples())[:, ::-1]).all()
