"""Wrong prefixes, on networks that read them in a known way and on one whose positions nobody foresaw."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from arith_erd.bits import ONE, START, ZERO, from_digits
from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.prefixes import INTERVENTIONS, Sample, hypotheses, read_prefixes, strata
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.attention import split_heads
from arith_erd.models.decoding import shift_right
from arith_erd.models.nanogpt import CausalSelfAttention
from arith_erd.models.references import reference
from arith_erd.probes.prefix import Prefix
from arith_erd.tasks import Add, Mul

TASK = Add(3)
SAMPLE = Sample.of(CausalModel(TASK), TASK.examples().operands)


@pytest.mark.parametrize(("name", "reads"), [("erd", False), ("prefix_carry", True)])
def test_a_carry_read_off_the_last_token_follows_it_only_where_a_carry_propagates(name: str, reads: bool) -> None:
    sample = Sample.draw(CausalModel(Add()), 64, np.random.default_rng(0))
    clean, readings = read_prefixes(Hooked(reference(name).network, task=Add()), sample.examples)
    assert (clean == sample.examples.completion).all()
    times = {(t, i): {"far": t - 1, "random": 2}.get(i, 1) for t in range(1, 8) for i in INTERVENTIONS}
    assert Counter((reading.position, reading.intervention) for reading in readings) == Counter(times)
    for reading in readings:
        changed = reading.tokens != clean[:, reading.position]
        if not reads or reading.intervention == "far":
            assert not changed.any()
        elif reading.intervention == "flip":
            assert (changed == strata(sample, reading.position)["propagate"]).all()
        if reads and reading.prefix is not None:
            assert (reading.tokens - ZERO == hypotheses(sample, reading.prefix)["local_carry"]).all()
        if reading.intervention in ("flip", "far"):
            wrong = reading.prefix != sample.values["answer"][:, : reading.position]
            assert (wrong.sum(axis=1) == 1).all()
            assert (wrong[:, -1] == (reading.intervention == "flip")).all()


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


@pytest.mark.parametrize("kind", ["rotary", "nanogpt", "transformer"])
@torch.no_grad()
def test_prefix_is_what_a_plain_loop_of_decodes_finds_whatever_the_position_scheme(kind: str) -> None:
    torch.manual_seed(0)
    make = Transformer if kind == "transformer" else NanoGPT
    made = make(7, 4, d_model=16, num_heads=2, num_layers=2, positional_encoding=kind != "rotary").eval()
    for block in made.blocks if kind == "rotary" else ():
        block.attention.sublayer = Rotary(16, 2, 0.0).eval()
    for parameter in made.parameters() if kind != "transformer" else ():
        if parameter.dim() >= 2:  # nanoGPT starts so small that positions hardly matter
            parameter.data = torch.randn_like(parameter) * 0.5
    model = Hooked(made, task=TASK)
    prompt, answer_in = (
        torch.from_numpy(SAMPLE.examples.prompt),
        shift_right(torch.from_numpy(SAMPLE.examples.completion)),
    )
    embedding = made.answer_embedding if kind == "transformer" else made.embedding
    ablated = (embedding.weight[ZERO] + embedding.weight[ONE]) / 2

    def at_last(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return torch.cat([output[:, :-1], ablated.expand(64, 1, 16)], dim=1)

    def decoded(given: Tensor) -> Tensor:
        return made.decode(made.encode(prompt), given)[:, -1].argmax(-1)

    rows = {(r["position"], r["intervention"], r["stratum"]): r["changed"] for r in Prefix([model], draws=1).rows()
            if r["d"] is None}  # fmt: skip
    random = [r.prefix for r in read_prefixes(model, SAMPLE.examples, 1)[1] if r.intervention == "random"]
    for t in (1, 2, 3):
        given = {name: answer_in[:, : t + 1].clone() for name in ("flip", "start", "mean_ablation", "random")}
        given["random"][:, 1:] = torch.from_numpy(random[t - 1]) + ZERO
        given["flip"][:, t] = ZERO + ONE - given["flip"][:, t]
        given["start"][:, t] = START
        clean = decoded(answer_in[:, : t + 1])
        for intervention, tokens in given.items():
            handle = embedding.register_forward_hook(at_last) if intervention == "mean_ablation" else None
            changed = (decoded(tokens) != clean).double().mean().item()
            if handle:
                handle.remove()
            assert rows[t, intervention, "all"] == pytest.approx(changed, abs=1e-5)
    assert len({round(share, 6) for share in rows.values()}) > 5


def test_network_without_embedded_answer_tokens_is_refused() -> None:
    network = NanoGPT(7, 4, d_model=8, num_heads=1, num_layers=1)
    with pytest.raises(UserError, match=r"^probe=prefix: mine has no site dec\.embed; expected one"):
        Prefix([Hooked(network, {"dec.1": network.blocks[0]}, task=TASK, name="mine")])


def test_hypotheses_follow_from_the_operands_alone() -> None:
    """`hypotheses` gets there from the right carry and the error of the prefix."""
    generator, outside = np.random.default_rng(0), set()
    causal = CausalModel(Add(5))
    sample = Sample.of(causal, causal.examples.operands)
    a, b = sample.examples.a, sample.examples.b
    for t in range(1, 6):
        prefix = generator.integers(2, size=(len(a), t))
        given = from_digits(prefix)
        carry = (a % 2**t + b % 2**t - given) / 2**t
        total = (a % 2 ** (t + 1) + b % 2 ** (t + 1) - given) / 2**t
        held = np.clip(np.floor(total + 0.5), 0, 1 if t == 5 else 3).astype(int)
        expected = {
            "remainder": np.floor((a + b - given) / 2**t + 0.5).astype(int) % 2,
            "graded_carry": ((a >> t) + (b >> t) + (carry > 0.5)) % 2,
            "local_remainder": held % 2,
        }
        tie, found = carry % 1 == 0.5, hypotheses(sample, prefix)
        for name, bits in expected.items():
            assert (found[name] == np.where(tie, -1, bits)).all()
        outside |= set(np.floor(total + 0.5)[~tie]) - {0.0, 1.0, 2.0, 3.0} if t < 5 else set()
    assert outside == {-1.0, 4.0}


def test_ties_are_a_column_of_their_own_and_agreement_counts_all_prefixes() -> None:
    """At t = 2 prefixes with |d| = 1/2 are off by two: 4 of the 16 pairs of a right and a given prefix."""
    network = NanoGPT(7, 4, d_model=8, num_heads=1, num_layers=1)
    rows = pd.DataFrame(Prefix([Hooked(network, task=TASK)], draws=50).rows())
    random = rows[(rows["intervention"] == "random") & (rows["stratum"] == "all") & (rows["position"] == 2)]
    parts = random.assign(d=random["d"].fillna("whole")).set_index("d")
    whole, tied, parts = parts.loc["whole"], parts.loc["1/2"], parts.drop("whole")
    assert whole["ties"] == pytest.approx(0.25, abs=0.03)
    assert whole["ties"] == tied["n"] / whole["n"]
    assert (tied["ties"], tied["remainder"], tied["n_differ"]) == (1, 0.5, 0)
    assert whole["remainder"] == pytest.approx((parts["remainder"] * parts["n"]).sum() / whole["n"])


def test_product_has_no_carry_of_one_bit_and_no_strata() -> None:
    causal = CausalModel(Mul(3))
    sample = Sample.of(causal, causal.examples.operands)
    assert set(strata(sample, 2)) == {"all"}
    assert set(hypotheses(sample, np.zeros((64, 2), dtype=np.int64))) == {"prompt_only", "remainder"}
