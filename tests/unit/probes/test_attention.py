"""Weights of attention: identities that hold for any network."""

import numpy as np
import pytest

from arith_erd.errors import UserError
from arith_erd.interp.interventions import Replace
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.attention import Attention
from arith_erd.tasks import Add, Mul
from tests.unit.probes.small import measured, untrained

TASK = Add(3)


@pytest.mark.parametrize("model", [Transformer, NanoGPT])
def test_attention_weights_of_a_query_sum_to_one_and_spread_where_operands_decide(model: type[Network]) -> None:
    probe = Attention([untrained(Mul(3), model)], num_examples=None)
    rows = measured(probe)
    sums = rows.groupby(["site", "head", "query"])["weight"].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    assert rows["spread"].max() > 1e-3
    only = rows[(rows["query"] == rows["query"][0]) & (rows["key"] == "<s>") & (rows["site"] == "dec.1.attn.pattern")]
    assert (only["spread"] < 1e-6).all()  # the first query of a decoder sees one token, which is always the same
    with pytest.raises(UserError, match=r"^probe=attention: test has no attention"):
        Attention([untrained(TASK, model, attention=False)])


def test_heads_in_rows_are_numbered_as_in_interventions():
    model = untrained(TASK, NanoGPT)
    rows = measured(Attention([model]))
    assert sorted(rows["head"].unique()) == [0, 1]
    examples, site = TASK.examples(), "dec.2.attn.pattern"
    for head in (0, 1):
        chosen = rows[(rows["site"] == site) & (rows["head"] == head) & (rows["query"] == "r1")]
        _, cache = model.run_with_cache(examples, site, include_prompt=True)
        replaced = Replace(site, "r1", cache[site].mean(0, keepdim=True)[:, -TASK.width + 1], head=head)  # (1, nh, S)
        _, patched = model.run_with_cache(examples, site, replaced, include_prompt=True)
        pattern = patched[site][:, -TASK.width + 1].mean(0)  # the same mean, and no spread
        np.testing.assert_allclose(chosen["weight"], pattern[head], atol=1e-5)
        spread = patched[site][:, -TASK.width + 1].std(0).sum(-1)
        assert spread[head] < 1e-4 < spread[1 - head]
