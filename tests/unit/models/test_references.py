"""Networks written by hand: they add, they differ from seed to seed, and each runs the algorithm it is named after."""

import numpy as np
import pytest
import torch
from torch import Tensor

from arith_erd.bits import ONE, ZERO
from arith_erd.errors import UserError
from arith_erd.models import Transformer
from arith_erd.models.decoding import greedy, shift_right
from arith_erd.models.references import DECOYS, OTHERS, REFERENCES, reference
from arith_erd.tasks import Add

TASK = Add()
EVERY_NAME = [*REFERENCES, *OTHERS, *DECOYS]
FEW = 512


@pytest.fixture(scope="module")
def few() -> tuple[Tensor, Tensor]:
    """512 pairs at random. ``benchmarks/references.py`` takes all of them, for every variant."""
    rng = np.random.default_rng(0)
    examples = TASK.examples(rng.integers(0, 128, FEW), rng.integers(0, 128, FEW))
    return torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)


@torch.no_grad()
def logits(network: Transformer, prompt: Tensor, answer_in: Tensor) -> Tensor:
    return torch.cat([network(p, a) for p, a in zip(prompt.split(1024), answer_in.split(1024), strict=True)])


def margin(logits: Tensor, completion: Tensor) -> float:
    """The smallest difference between the logit of the right token and the largest of the others."""
    right = logits.gather(-1, completion[..., None])[..., 0]
    wrong = logits.scatter(-1, completion[..., None], -torch.inf).amax(-1)
    return float((right - wrong).min())


def answers(network: Transformer, prompt: Tensor, answer_in: Tensor) -> Tensor:
    return logits(network, prompt, answer_in).argmax(-1) - ZERO  # (N, m) bits


def flipped(completion: Tensor) -> Tensor:
    """Decoder input in which the token before each answer is wrong; for one position at a time."""
    return shift_right(ZERO + ONE - completion)


def operands(prompt: Tensor) -> tuple[Tensor, Tensor]:
    return prompt[:, :7] - ZERO, prompt[:, 8:] - ZERO


@pytest.mark.parametrize("name", EVERY_NAME)
def test_references_answer_with_a_wide_margin(name, few):
    prompt, completion = few
    network = reference(name, 1).network
    assert margin(logits(network, prompt, shift_right(completion)), completion) >= 5
    assert torch.equal(greedy(network, prompt[:64], 8), completion[:64])


def test_seed_determines_the_network_and_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, again, other = (reference("mixed", seed).network.state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(
        torch.equal(first[name], other[name]) for name in ("head.weight", "encoder.0.self_attention.norm.bias")
    )


@pytest.mark.parametrize("name", ["erd", "erd_decoy", "lookahead_carry", "lookahead_carry_decoy"])
def test_machines_without_prefix_ignore_the_answer_so_far(name, few):
    prompt, completion = few
    given = torch.randint(1, 5, completion.shape, generator=torch.manual_seed(0))
    assert torch.equal(answers(reference(name, 2).network, prompt, given), completion - ZERO)


@pytest.mark.parametrize("name", ["prefix_carry", "prefix_carry_decoy"])
def test_prefix_carry_follows_the_previous_token_exactly_where_a_carry_passes_through(name, few):
    prompt, completion = few
    a, b = operands(prompt)
    given = answers(reference(name, 2).network, prompt, flipped(completion))
    changed = given != completion - ZERO
    assert torch.equal(changed[:, 1:], (a != b))
    assert not changed[:, 0].any()


def test_remainder_gives_the_parity_of_what_the_prefix_leaves(few):
    prompt, completion = few
    given = torch.randint(ZERO, ONE + 1, completion.shape, generator=torch.manual_seed(0))
    a, b = operands(prompt)
    total = ((a + b) << torch.arange(7)).sum(1)
    found = answers(reference("remainder", 2).network, prompt, shift_right(given))
    for t in range(8):
        spelt = ((given[:, :t] - ZERO) << torch.arange(t)).sum(1)
        rest = (total - spelt) / 2**t
        clear = (rest - rest.floor() - 0.5).abs() > 0.1  # not halfway between two numbers
        assert clear.any()
        assert torch.equal(found[clear, t], (rest.round().long() % 2)[clear])


@pytest.mark.parametrize("own", [False, True])
def test_others_hold_what_the_lower_bits_leave_in_the_range_of_right_prefixes(own, few):
    """``graded_carry`` without bit t of the operands, ``local_remainder`` with it."""
    prompt, completion = few
    given = torch.randint(ZERO, ONE + 1, completion.shape, generator=torch.manual_seed(0))
    a, b = operands(prompt)
    columns = torch.nn.functional.pad(a + b, (0, 1))
    for seed in (2, 3):
        found = answers(
            reference("local_remainder" if own else "graded_carry", seed).network, prompt, shift_right(given)
        )
        for t in range(8):
            spelt = ((given[:, :t] - ZERO) << torch.arange(t)).sum(1)
            lower = (columns[:, : t + own] << torch.arange(t + own)).sum(1)
            rest = (lower - spelt) / 2**t
            clear = (rest - rest.floor() - 0.5).abs() > 0.1
            held = rest.round().long().clamp(0, 3 if own and t < 7 else 1)
            expected = held % 2 if own else columns[:, t] % 2 ^ held
            assert torch.equal(found[clear, t], expected[clear])


@pytest.mark.parametrize(("name", "feature"), [("erd_decoy", "carry"), ("prefix_carry_decoy", "value")])
def test_decoys_store_what_they_do_not_read(name, feature, few):
    made = reference(name, 1)
    prompt, completion = few
    direction = made.decoder.directions(feature).float()[:, 0]
    kept = []

    def remove(module, inputs, output):
        kept.append(output @ direction)
        return output - 5 * direction * (output @ direction)[..., None]

    before = logits(made.network, prompt, shift_right(completion))
    with made.network.decoder[-1].register_forward_hook(remove):
        after = logits(made.network, prompt, shift_right(completion))
    assert torch.allclose(before, after, atol=1e-3)
    a, b = operands(prompt)
    if feature == "value":
        wanted = ((a + b) << torch.arange(7)).sum(1).float()[:, None].expand(-1, 8)
    else:
        wanted = (completion - ZERO) ^ torch.nn.functional.pad(a ^ b, (0, 1))  # the carry into each bit
    for t in range(1, 8):
        correlation = torch.corrcoef(torch.stack([torch.cat(kept)[:, t], wanted[:, t].float()]))[0, 1]
        assert abs(correlation) > 0.99


def test_unknown_names_and_seeds_are_refused_in_one_line():
    with pytest.raises(UserError, match=r"reference=magic: .*erd, prefix_carry"):
        reference("magic")
    with pytest.raises(UserError, match="seed"):
        reference("erd", -1)
