"""Interchanges by family: what they measure, where, and which families there are."""

import pandas as pd
import pytest
import torch
from torch import nn

from arith_erd.interp.hooked import Hooked
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.interchange import InterchangeProbe
from arith_erd.probes.patching import Patching
from arith_erd.tasks import Add, ModAdd, Mul, Task
from tests.unit.interp.toys import InDirections
from tests.unit.probes.small import measured, own_model, untrained

ADD = Add(3)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("kind", "task"),
    [(Transformer, Add(2)), (Transformer, Add(1, base=10)), (NanoGPT, Mul(2)), (NanoGPT, ModAdd(2, modulus=3))],
    ids=lambda x: getattr(x, "__name__", type(x).__name__),
)
def test_rows_of_every_network_and_task_are_distinct_and_hold_shares(kind: type[Network], task: Task) -> None:
    rows = measured(InterchangeProbe([untrained(task, kind, seed=5)], num_examples=4))
    assert set(rows["seed"]) == {5}
    assert set(rows["site"]) == {"dec.1", "dec.2"} | ({"enc.1", "enc.2"} if kind is Transformer else set())
    assert not rows.duplicated(["site", "position", "family", "token"]).any()
    shares = rows.filter(regex="^(flipped|iia)")
    assert (shares.isna() | ((shares >= 0) & (shares <= 1))).all(axis=None)


def test_variable_without_pairs_of_its_own_is_named() -> None:
    probe = InterchangeProbe([untrained(Add(2), NanoGPT)], variable=["sum", "carry"], num_examples=4)
    assert set(measured(probe)["family"]) == {"carry", "same sum", "random"}
    assert probe.notes()[0].startswith("no family for sum: no other variable affects the answer together with it")
    probe = InterchangeProbe([untrained(ADD)], causal_model=own_model, site="dec.1")
    assert set(measured(probe)["family"]) == {"low", "high", "same total", "random"}
    assert probe.notes()[0] == "no family for low_carry: none of 64 bases has a pair with vary=low_carry keep=low,high"


def test_own_families_replace_the_default_ones() -> None:
    options = {"site": "dec.1", "variable": "carry", "num_examples": 8}
    suggested = pd.DataFrame(InterchangeProbe([untrained(ADD)], **options).rows())
    own = InterchangeProbe([untrained(ADD)], **options, families={"alone": {"vary": "carry", "keep": ["xor"]}})
    asked = pd.DataFrame(own.rows())
    assert set(asked["family"]) == {"alone"}
    expected = suggested[suggested["family"] == "carry"].assign(family="alone").reset_index(drop=True)
    pd.testing.assert_frame_equal(asked, expected)


def test_interchange_effects_in_a_network_that_stores_carry_and_xor() -> None:
    task = Add(3)
    model = Hooked(InDirections(task), task=task)
    rows = pd.DataFrame(InterchangeProbe([model], site="dec.1", num_examples=30).rows())
    flipped = rows.groupby("family")["flipped"].agg(["min", "max"])
    assert flipped.loc[["carry", "xor"]].to_numpy().tolist() == [[1, 1], [1, 1]]
    assert flipped.loc["same sum"].tolist() == [0, 0]
    assert (rows["iia_sum"] == 1).all()
    assert (rows["iia_none"] == 1 - rows["flipped"]).all()
    assert set(rows.loc[rows["family"] == "carry", "token"]) == {"r1", "r2", "r3"}  # no carry enters bit 0


def test_encoder_positions_are_scored_on_all_answer_tokens_and_on_their_own_prompt_token() -> None:
    task = Add(3, prompt_order="plain")
    model = untrained(task, num_layers=1)
    rows = measured(InterchangeProbe([model], site=["enc.1", "dec.1"], variable="carry", num_examples=8))
    encoder = rows[rows["site"] == "enc.1"]
    assert (set(encoder["position"]), set(encoder["token"])) == ({*task.prompt_names}, {*task.answer_names})
    operator = encoder[encoder["position"] == "+"]
    assert encoder["iia_token"].notna().all()
    assert (operator["iia_token"] == operator["iia_none"]).all()
    assert rows.loc[rows["site"] == "dec.1", "iia_token"].isna().all()
    assert not rows.duplicated(["site", "position", "family", "token"]).any()


class Pooled(nn.Module):
    """Reads the prompt into one vector, from which it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.pool, self.spread = nn.Embedding(5, 8), nn.Linear(8, 8), nn.Linear(8, 32)
        self.out, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, prompt: torch.Tensor, answer_in: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.read(prompt).mean(1, keepdim=True))
        return self.head(self.out(self.spread(x).view(-1, 4, 8)[:, : answer_in.shape[1]]))


def test_positions_are_named_by_what_a_site_holds_whatever_its_name() -> None:
    network = Pooled()
    sites = {"read": network.read, "pool": network.pool, "out": network.out}
    model = Hooked(network, sites, task=ADD)
    probe = InterchangeProbe([model], [*sites], variable="carry", num_examples=8)
    rows = pd.DataFrame(probe.rows())
    assert (rows.groupby("site")["iia_token"].count() > 0).to_dict() == {"read": True, "pool": False, "out": False}
    shown = {tuple(label.get_text() for label in ax.get_xticklabels()) for ax in probe.figure(rows).axes}
    assert shown == {tuple(ADD.prompt_names), ("0",), tuple(ADD.answer_names)}
    assert [row["position"] for row in Patching([model], site="pool", num_examples=8).rows()] == [0] * 4
