"""Exchanged positions tell what each of them holds, in networks whose algorithm is known."""

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.interp.causal import CausalTask
from arith_erd.interp.evidence import Evidence, Searched, entrance
from arith_erd.interp.exchange import Exchanged, exchanges
from arith_erd.interp.interchange import Subspace
from arith_erd.interp.search import Found
from arith_erd.interp.signature import some_of
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.references import reference
from arith_erd.tasks import Add, Mul

PAIRS = some_of(CausalTask(Add()), 2048, np.random.default_rng(0))


def evidence(name: str, seed: int) -> Evidence:
    return Evidence(list(exchanges(reference(name, seed).network, PAIRS, sample=30)), pd.DataFrame(), [])


def test_carries_from_the_prefix_need_no_exchange_between_tokens_of_the_prompt():
    found = evidence("prefix_carry", 0)
    assert found.moved_in_prompt == 0
    assert {found.share("mosaic", stage) for stage in found.stages("mosaic")} == {0.0}
    assert found.share("token", "enc.6") == 1
    assert {found.share("neither", stage) for stage in found.stages("neither")} == {0.0}
    assert [found.holds(name, "dec.1.self") for name in ("carry", "xor")] == [0, 0]
    assert [found.holds(name, "dec.6") for name in ("carry", "xor")] == [1, 1]
    assert found.appears("carry", "4").endswith(("cross", "1", "2", "3", "4", "5"))
    assert found.holds("carry", entrance(found, ["dec.1", "dec.6"], "4")) == 1


@pytest.mark.slow
def test_encoder_that_looks_for_carries_holds_other_tokens():
    assert evidence("lookahead_carry", 0).moved_in_prompt > 0.2


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize("task", [Add(3), Mul(3)], ids=["add", "mul"])
def test_every_stage_with_the_position_is_exchanged(kind, task):
    torch.manual_seed(0)
    network = kind(task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=2).eval()
    found = list(exchanges(network, CausalTask(task), sample=40))
    tests = {e.test for e in found}
    assert tests == {"token", "elsewhere", "mosaic"} | ({"carry", "xor", "neither"} if task.name == "add" else set())
    prompt_stages = {e.stage for e in found if e.test == "elsewhere"}
    expected = {"enc.1.self", "enc.1", "enc.2.self", "enc.2"} if kind is Transformer else {"dec.1.self", "dec.1"}
    assert prompt_stages == expected
    assert sum(e.n for e in found if (e.test, e.stage) == ("elsewhere", min(expected))) == 40
    if task.name == "add":
        assert {e.position for e in found if e.test == "carry"} == {"1", "2", "3"}
        assert {e.position for e in found if e.test == "xor"} == {"1", "2"}  # beyond the operands it is always 0


def test_shares_weigh_positions_by_their_couples():
    found = Evidence(
        [Exchanged("dec.1", "carry", "1", 1, 1.0), Exchanged("dec.1", "carry", "2", 3, 0.0)], pd.DataFrame(), []
    )
    assert found.share("carry", "dec.1") == 0.25
    assert found.share("carry", "dec.1", "1") == 1
    assert np.isnan(found.share("carry", "dec.2"))


@pytest.mark.parametrize(
    ("iia", "control", "span", "passes"), [(1.0, 0.6, 60, True), (0.8, 0.5, 60, False), (1.0, 0.95, 60, False),
                                           (1.0, 0.6, 1, False)]
)  # fmt: skip
def test_subspace_passes_only_beyond_its_controls(iia, control, span, passes):
    controls = {"iia_random_max": 0.5, "iia_flipped_max": control, "iia_untrained": 0.4}
    found = Found(1, span, Subspace(torch.eye(4)[:, :1]), True, iia, iia, iia, 0.5, 1.0, 1.0, 1.0, controls)
    assert Searched("carry", "dec.3", "4", found).passes == passes
