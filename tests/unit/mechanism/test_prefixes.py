"""Wrong prefixes, on networks that read them in a known way and on one whose positions nobody foresaw."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from arith_erd.bits import ONE, START, ZERO, from_bits
from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.prefixes import INTERVENTIONS, Reading, Sample, distance, hypotheses, read_prefixes, strata
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.attention import split_heads
from arith_erd.models.decoding import shift_right
from arith_erd.models.nanogpt import CausalSelfAttention
from arith_erd.probes.prefix import Prefix
from arith_erd.tasks import Add, Mul

TASK = Add(3)
SAMPLE = Sample.of(CausalModel(TASK), TASK.examples().operands)


class Toy(nn.Module):
    """Answers from operand bits that it knows, and from the carry that r_(t-1) implies if ``reads`` is set."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.reads, self.embedding = reads, nn.Embedding(5, 1)
        self.embedding.weight.data = torch.tensor([[9.0], [9], [9], [0], [1]])
        self.values = {name: torch.as_tensor(x) for name, x in SAMPLE.values.items()}

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        row = 8 * ((prompt[:, :3] - ZERO) @ 2 ** torch.arange(3)) + (prompt[:, 4:] - ZERO) @ 2 ** torch.arange(3)
        read, length = self.embedding(answer_in)[:, 1:, 0], answer_in.shape[1]
        a, b, xor = (self.values[name][row][:, :length] for name in ("a_bit", "b_bit", "xor"))
        carry = nn.functional.pad((a + b)[:, :-1] + 1 - read >= 2, (1, 0)) if self.reads else self.values["carry"][row]
        bit = xor ^ carry[:, :length]
        return nn.functional.one_hot(bit + ZERO, 5).float()


def read(reads: bool, seed: int = 0) -> list[Reading]:
    network = Toy(reads)
    model = Hooked(network, {"dec.embed": network.embedding}, task=TASK)
    clean, changed = read_prefixes(model, SAMPLE.examples, seed=seed)
    assert (clean == SAMPLE.examples.completion).all()
    return changed


def test_network_reading_only_the_prompt_ignores_the_prefix() -> None:
    for reading in read(False):
        assert (reading.tokens == SAMPLE.examples.completion[:, reading.position]).all()


def test_carry_read_off_the_last_token_follows_it_only_where_a_carry_propagates() -> None:
    for reading in read(True):
        changed = reading.tokens != SAMPLE.examples.completion[:, reading.position]
        if reading.intervention == "flip":
            assert (changed == strata(SAMPLE, reading.position)["propagate"]).all()
        if reading.intervention == "far":
            assert not changed.any()
        if reading.prefix is not None:
            assert (reading.tokens - ZERO == hypotheses(SAMPLE, reading.prefix)["local_carry"]).all()


def test_every_intervention_gives_the_prefix_that_it_says_at_every_position() -> None:
    counts = {(t, i): 0 for t in (1, 2, 3) for i in INTERVENTIONS}
    for reading in read(False):
        counts[reading.position, reading.intervention] += 1
        if reading.prefix is None:
            continue
        assert reading.prefix.shape == (64, reading.position)
        wrong = reading.prefix != SAMPLE.values["answer"][:, : reading.position]
        if reading.intervention in ("flip", "far"):
            assert (wrong.sum(axis=1) == 1).all()
            assert (wrong[:, -1] == (reading.intervention == "flip")).all()
        if reading.intervention == "flip":
            assert (np.abs(distance(SAMPLE, reading.prefix)) == 0.5).all()
    assert counts == {(t, i): {"far": t - 1, "random": 2}.get(i, 1) for t in (1, 2, 3) for i in INTERVENTIONS}


@pytest.mark.parametrize("seed", [0, 1])
def test_random_prefixes_are_a_function_of_the_seed(seed: int) -> None:
    first, second = ([r.prefix for r in read(False, s) if r.intervention == "random"] for s in (0, seed))
    assert all(np.array_equal(x, y) for x, y in zip(first, second, strict=True)) == (seed == 0)


class Rotary(CausalSelfAttention):
    """Rotary position embeddings (Su et al., 2021) in place of learned ones."""

    def forward(self, x: Tensor, future: Tensor, last: int) -> Tensor:
        q, k, v = (split_heads(y, self.heads.num_heads) for y in self.qkv(x).chunk(3, dim=-1))
        half = q.shape[-1] // 2
        angle = torch.arange(x.shape[1])[:, None] * 100.0 ** (-torch.arange(half) / half)
        q, k = (
            torch.cat([y[..., :half] * angle.cos() - y[..., half:] * angle.sin(),
                       y[..., :half] * angle.sin() + y[..., half:] * angle.cos()], dim=-1) for y in (q, k)
        )  # fmt: skip
        return self.heads(q[..., -last:, :], k, v, self.out, future[-last:], self.dropout)


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    make = Transformer if kind == "transformer" else NanoGPT
    made = make(7, 4, d_model=16, num_heads=2, num_layers=2, positional_encoding=kind != "rotary")
    if kind == "rotary":
        for block in made.blocks:
            block.attention.sublayer = Rotary(16, 2, 0.0)
    for parameter in made.parameters():
        if parameter.dim() >= 2 and kind != "transformer":  # nanoGPT starts so small that positions hardly matter
            parameter.data = torch.randn_like(parameter) * 0.5
    return made.eval()


@pytest.mark.parametrize("kind", ["rotary", "nanogpt", "transformer"])
def test_prefix_is_what_a_plain_loop_of_decodes_finds_whatever_the_position_scheme(kind: str) -> None:
    made = network(kind)
    prompt, completion = torch.from_numpy(SAMPLE.examples.prompt), torch.from_numpy(SAMPLE.examples.completion)
    answer_in = shift_right(completion)
    embedding = made.answer_embedding if kind == "transformer" else made.embedding
    ablated = (embedding.weight[ZERO] + embedding.weight[ONE]) / 2

    @torch.no_grad()
    def decoded(given: Tensor) -> Tensor:
        return made.decode(made.encode(prompt), given)[:, -1]

    def at_last(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return torch.cat([output[:, :-1], ablated.expand(64, 1, 16)], dim=1)

    probe = Prefix([Hooked(made, task=TASK)], draws=1)
    rows = {(r["position"], r["intervention"], r["stratum"]): r["changed"] for r in probe.rows() if r["d"] is None}
    model = Hooked(made, task=TASK)
    random = [r.prefix for r in read_prefixes(model, SAMPLE.examples, 1)[1] if r.intervention == "random"]
    for t in (1, 2, 3):
        clean = decoded(answer_in[:, : t + 1])
        assert torch.allclose(model.run((prompt, answer_in[:, : t + 1]))[:, -1], clean, atol=1e-5)
        for intervention in ("flip", "start", "mean_ablation", "random"):
            given = answer_in[:, : t + 1].clone()
            if intervention == "random":
                given[:, 1:] = torch.from_numpy(random[t - 1]) + ZERO
            elif intervention != "mean_ablation":
                given[:, t] = START if intervention == "start" else ZERO + ONE - given[:, t]
            handle = embedding.register_forward_hook(at_last) if intervention == "mean_ablation" else None
            tokens = decoded(given).argmax(-1)
            if handle:
                handle.remove()
            changed = (tokens != clean.argmax(-1)).double().mean().item()
            assert rows[t, intervention, "all"] == pytest.approx(changed, abs=1e-5)
    assert len({round(share, 6) for share in rows.values()}) > 5


def test_network_without_embedded_answer_tokens_is_refused() -> None:
    network = Toy(False)
    with pytest.raises(UserError, match=r"^probe=prefix: mine has no site dec\.embed; expected one"):
        Prefix([Hooked(network, {"dec.1": network.embedding}, task=TASK, name="mine")])


def test_hypotheses_follow_from_the_operands_alone() -> None:
    """`hypotheses` gets there from the right carry and the error of the prefix."""
    generator, outside = np.random.default_rng(0), set()
    causal = CausalModel(Add(5))
    sample = Sample.of(causal, causal.examples.operands)
    a, b = sample.examples.a, sample.examples.b
    for t in range(1, 6):
        prefix = generator.integers(2, size=(len(a), t))
        given = from_bits(prefix)
        carry = (a % 2**t + b % 2**t - given) / 2**t
        total = (a % 2 ** (t + 1) + b % 2 ** (t + 1) - given) / 2**t
        left = (a + b - given) / 2**t
        tie = carry % 1 == 0.5
        found = hypotheses(sample, prefix)
        held = np.clip(np.floor(total + 0.5), 0, 1 if t == 5 else 3).astype(int)
        expected = {
            "remainder": np.floor(left + 0.5).astype(int) % 2,
            "graded_carry": ((a >> t) + (b >> t) + (carry > 0.5)) % 2,
            "local_remainder": held % 2,
        }
        for name, bits in expected.items():
            assert (found[name] == np.where(tie, -1, bits)).all()
        if t < 5:
            outside |= set(np.floor(total + 0.5)[~tie]) - {0.0, 1.0, 2.0, 3.0}
    assert outside == {-1.0, 4.0}


def test_ties_are_a_column_of_their_own_and_agreement_counts_all_prefixes() -> None:
    """At t = 2 prefixes with |d| = 1/2 are off by two: 4 of the 16 pairs of a right and a given prefix."""
    network = Toy(True)
    rows = pd.DataFrame(Prefix([Hooked(network, {"dec.embed": network.embedding}, task=TASK)], draws=50).rows())
    random = rows[(rows["intervention"] == "random") & (rows["stratum"] == "all") & (rows["position"] == 2)]
    parts = random.assign(d=random["d"].fillna("whole")).set_index("d")
    whole, tied = parts.loc["whole"], parts.loc["1/2"]
    assert whole["ties"] == pytest.approx(0.25, abs=0.03)
    assert whole["ties"] == tied["n"] / whole["n"]
    assert (tied["ties"], tied["remainder"], tied["n_differ"]) == (1, 0.5, 0)
    assert whole["local_carry"] == 1
    parts = parts.drop("whole")
    assert whole["remainder"] == pytest.approx((parts["remainder"] * parts["n"]).sum() / whole["n"])


def test_product_has_no_carry_of_one_bit_and_no_strata() -> None:
    causal = CausalModel(Mul(3))
    sample = Sample.of(causal, causal.examples.operands)
    assert set(strata(sample, 2)) == {"all"}
    assert set(hypotheses(sample, np.zeros((64, 2), dtype=np.int64))) == {"prompt_only", "remainder"}
