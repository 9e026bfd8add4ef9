"""Patched positions tell which variables each of them holds, in networks whose algorithm is known."""

import pytest
import torch

from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Subspace
from arith_erd.interp.search import Found
from arith_erd.mechanism.card import Row
from arith_erd.mechanism.evidence import Evidence, Searched
from arith_erd.mechanism.patching import POSITION_WISE, RESAMPLE, patch
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.references import reference
from arith_erd.tasks import Add, Mul


def evidence(name: str) -> Evidence:
    return Evidence(list(patch(Hooked(reference(name, 0).network, task=Add()), count=30)))


def test_carries_from_the_prefix_appear_in_the_decoder_and_need_no_mixing_of_prompt_positions() -> None:
    found = evidence("prefix_carry")
    assert found.mixed_in_prompt == 0
    assert found.share("interchange", "enc.6", "token") == 1
    assert {p.value for p in found.patched if p.component == "neither"} == {0.0}
    assert [found.holds(name, "dec.1.resid_mid") for name in ("carry", "xor")] == [0, 0]
    assert [found.holds(name, "dec.6") for name in ("carry", "xor")] == [1, 1]
    assert str(found.appears("carry", "4")).startswith("dec.")
    assert found.appears("carry", "4", ["dec.1", "dec.6"]) == "dec.6"


@pytest.mark.slow
def test_encoder_that_looks_for_carries_mixes_prompt_positions() -> None:
    assert evidence("lookahead_carry").mixed_in_prompt > 0.2


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize("task", [Add(3), Mul(3)], ids=["add", "mul"])
def test_every_site_with_the_position_is_patched(kind, task) -> None:
    torch.manual_seed(0)
    network = kind(task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=2)
    found = list(patch(Hooked(network, task=task), count=40))
    adds = task.name == "add"
    of_prompt = {("interchange", "token"), (RESAMPLE, ""), (POSITION_WISE, "")}
    of_answer = {("interchange", name) for name in ("carry", "xor", "neither")} if adds else set()
    assert {(p.test, p.component) for p in found} == of_prompt | of_answer
    layers = ["enc.1", "enc.2"] if kind is Transformer else ["dec.1"]
    sites = {f"{layer}{inside}" for layer in layers for inside in ("", ".resid_mid")}
    assert {p.site for p in found if p.test == RESAMPLE} == sites
    assert sum(p.n for p in found if (p.test, p.site) == (RESAMPLE, min(sites))) == 40
    # Beyond the operands a xor b is always 0.
    at = {name: {p.position for p in found if p.component == name} for name in ("carry", "xor")}
    assert at == ({"carry": {"1", "2", "3"}, "xor": {"1", "2"}} if adds else {"carry": set(), "xor": set()})


def test_shares_weigh_positions_by_their_pairs() -> None:
    rows = [("1", 1.0, 1), ("2", 0.0, 3)]
    found = Evidence([Row("interchange", "carry", "", "", "dec.1", *row) for row in rows])
    assert found.share("interchange", "dec.1", "carry") == 0.25
    assert found.share("interchange", "dec.1", "carry", "1") == 1


@pytest.mark.parametrize(
    ("iia", "control", "span", "passes"), [(1.0, 0.6, 60, True), (0.8, 0.5, 60, False), (1.0, 0.95, 60, False),
                                           (1.0, 0.6, 1, False)]
)  # fmt: skip
def test_subspace_passes_only_beyond_its_controls(iia, control, span, passes) -> None:
    controls = {"iia_random_max": 0.5, "iia_flipped_max": control, "iia_untrained": 0.4}
    found = Found(1, span, Subspace(torch.eye(4)[:, :1]), True, iia, iia, iia, 0.5, 1.0, 1.0, 1.0, controls)
    assert Searched("carry", "dec.3", "4", found).passes == passes
