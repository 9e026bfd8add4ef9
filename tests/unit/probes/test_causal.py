"""The causal probes: rows, tables and figures on small networks, and what they refuse."""

from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.erasure import whiten
from arith_erd.interp.hooked import Hooked
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.paper.probes.amnesic import PaperAmnesic
from arith_erd.paper.probes.place_value import PlaceValue
from arith_erd.probes import dose
from arith_erd.probes.amnesic import Amnesic
from arith_erd.probes.dose import Dose
from arith_erd.probes.interchange import InterchangeProbe
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.mechanism import Mechanism
from arith_erd.probes.patching import Patching
from arith_erd.probes.subspaces import Subspaces
from arith_erd.tasks import Add, ModAdd, Mul, RandomOutput, Sub, Task
from tests.unit.interp.toys import InDirections, OneNumber
from tests.unit.probes.small import measured, untrained

ADD, RANDOM = Add(3), RandomOutput(3)
SMALL = {"num_train": 64, "num_validation": 20, "num_test": 20, "steps": 4, "num_controls": 2}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("kind", "task"),
    [(Transformer, Add(2)), (Transformer, Add(1, base=10)), (NanoGPT, Mul(2)), (NanoGPT, ModAdd(2, modulus=3))],
    ids=lambda x: getattr(x, "__name__", type(x).__name__),
)
def test_interchange_on_every_network_and_task(kind: type[Network], task: Task) -> None:
    rows = measured(InterchangeProbe([untrained(task, kind, seed=5)], num_examples=4))
    assert set(rows["seed"]) == {5}
    assert set(rows["site"]) == {"dec.1", "dec.2"} | ({"enc.1", "enc.2"} if kind is Transformer else set())
    assert not rows.duplicated(["site", "position", "family", "token"]).any()
    shares = rows.filter(regex="^(flipped|iia)")
    assert (shares.isna() | ((shares >= 0) & (shares <= 1))).all(axis=None)


def own_model(task: Task) -> CausalModel:
    """The lowest bits are added first; their carry depends on nothing else, and ``idle`` affects nothing."""
    parts = {"idle": lambda a: a, "low": lambda a, b: a % 2 + b % 2, "high": lambda a, b: a // 2 + b // 2}
    total = {"total": lambda low, low_carry, high: low % 2 + 2 * (high + low_carry), "sum": lambda total: total}
    return CausalModel(task, parts | {"low_carry": lambda low: low // 2} | total)


OWN = partial(InterchangeProbe, causal_model=own_model)


def only_bits(task: Task) -> CausalModel:
    return CausalModel(task, {"answer": lambda a, b: a + b})


def difference(task: Task) -> CausalModel:
    return CausalModel(task, {"difference": lambda a, b: abs(a - b)})


def test_dose_accepts_any_task_whose_causal_model_has_the_answer_as_a_variable() -> None:
    probe = Dose([untrained(Sub(3))], "dec.1", delta=1, num_examples=8, causal_model=difference)
    rows = measured(probe)
    assert (rows["n"] == 8).all()
    assert "sum" not in " ".join(ax.get_title(loc="left") for ax in probe.figure(rows).axes)


@pytest.mark.parametrize(
    ("task", "words", "others"),
    [
        (Add(3), ("bit t also scores high for the sum", "dose can", "linear in the operands' digits"), ("0.13%",)),
        (Add(), ("an accuracy of 0.13%",), ()),
        (Add(1, base=10), ("digit t also scores",), ("bits", "0.13%")),
        (Mul(3), ("for the product", "dose can"), ("sum", "addition")),
        (Sub(3), ("probe=subspaces can",), ("sum", "dose", "addition", "bit t")),
    ],
    ids=lambda x: repr(x) if isinstance(x, Task) else "",
)
def test_notes_say_what_holds_for_the_task(task: Task, words: tuple[str, ...], others: tuple[str, ...]) -> None:
    models = [untrained(task)]
    probes = PaperAmnesic(models, "dec.1"), InterchangeProbe(models, num_examples=2), Subspaces(models, "dec.1")
    notes = " ".join(note for probe in probes for note in probe.notes()).replace("baseline_operand_bits", "")
    assert [word for word in words if word not in notes] == []
    assert [word for word in others if word in notes] == []


def test_variable_without_pairs_of_its_own_is_named() -> None:
    probe = InterchangeProbe([untrained(Add(2), NanoGPT)], variable=["sum", "carry"], num_examples=4)
    assert set(measured(probe)["family"]) == {"carry", "same sum", "random"}
    assert probe.notes()[0].startswith("no family for sum: no other variable affects the answer together with it")
    probe = OWN([untrained(ADD)], site="dec.1")
    assert set(measured(probe)["family"]) == {"low", "high", "same total", "random"}
    assert probe.notes()[0] == "no family for low_carry: none of 64 bases has a pair with vary=low_carry keep=low,high"


@pytest.mark.parametrize(("num_layers", "middle"), [(1, "dec.1"), (2, "dec.1"), (6, "dec.3")])
def test_subspaces_are_searched_in_the_middle_of_the_decoder(num_layers: int, middle: str) -> None:
    task = Add(2)
    for kind in (Transformer, NanoGPT):
        network = kind(task.prompt_length, task.width, d_model=8, num_heads=2, num_layers=num_layers)
        assert Subspaces([Hooked(network, task=task)]).sites == [middle]


@pytest.mark.slow
def test_subspaces_of_products_and_of_all_positions() -> None:
    rows = measured(Subspaces([untrained(Mul(3))], "dec.1", 2, rank=1, **SMALL))
    assert list(rows["variable"]) == ["a_bit", "b_bit", "column_sum", "carry", "product"]
    rows = measured(Subspaces([untrained(Add(3))], "enc.1", "all", rank=1, **SMALL))
    assert rows[["position", "variable"]].to_numpy().tolist() == [["all", "sum"]]
    decoder_only = Hooked(NanoGPT(7, 4, d_model=8, num_heads=2, num_layers=2), task=ADD)
    rows = measured(Subspaces([decoder_only], "dec.1", ["a1", "r1"], "a_bit", rank=1, **SMALL))
    assert rows["position"].tolist() == ["a1", "r1"]


@pytest.mark.slow
def test_one_number_follows_every_dose_with_every_direction_and_carries_follow_none(monkeypatch) -> None:
    task = Add(4)
    number, carries = (Hooked(kind(task), task=task) for kind in (OneNumber, InDirections))
    rows = measured(Dose([number], delta=[1, 2, 8], num_examples=60))
    assert len(rows) == 3 * 3
    assert (rows["followed"] > 0.9).all()
    assert (rows["no_intervention"] == 0).all()
    assert (rows["random"] < 0.5).all()
    rows = measured(Dose([carries], "dec.1", ["slope", "leace"], [1, 2, 8], 60))
    assert (rows["followed"] < 0.2).all()
    monkeypatch.setattr(dose, "NUM_FITTED", 30)  # of 256 examples; some sums, and the largest, are in none of them
    rows = measured(Dose([number], "dec.1", "centroids", [1, 2], 60))
    assert (rows["followed"] == 1).all()


def test_a_step_adds_one_unit_of_the_value() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 20, (2000,), generator=generator)
    direction = torch.tensor([1.0, 2, 0, 0], dtype=torch.float64)
    x = values[:, None] * direction + torch.randn(2000, 4, generator=generator, dtype=torch.float64)
    by_slope, by_reading = (step(whiten(x), values) for step in (dose.slope, dose.leace_step))
    torch.testing.assert_close(by_slope, direction, atol=0.03, rtol=0)
    assert float(by_slope @ by_reading / by_slope.norm() / by_reading.norm()) == pytest.approx(1)
    weights = torch.linalg.lstsq(x - x.mean(dim=0), (values - values.double().mean())[:, None]).solution[:, 0]
    assert float(weights @ by_reading) == pytest.approx(1)
    torch.testing.assert_close(dose.centroids(x, values, 21)[7], x[values == 7].mean(dim=0))


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


@pytest.mark.parametrize(
    ("probe", "task", "options", "message"),
    [
        (Patching, ADD, {"site": "dec.9"}, r"probe.site=dec\.9: this model has enc\.1"),
        (Patching, ADD, {"corruption": "noise"}, r"^probe\.corruption=noise"),
        (LogitLens, ADD, {"num_examples": True}, r"^probe\.num_examples=true"),
        (Amnesic, ADD, {"concept": "carry"}, r"probe\.concept=carry: .*value, completion_bits, .*carries"),
        (Amnesic, ADD, {"method": ["leace", "rlace"]}, r"rlace.*: expected inlp, mean_projection or leace"),
        (Mechanism, RANDOM, {}, r"^probe=mechanism: received task=random_output; expected"),
        (Mechanism, ADD, {"num_examples": 8}, r"^probe\.num_examples=8: expected an integer of at least 64"),
        (Mechanism, ADD, {"causal_model": CausalModel}, r"=.*: expected a causal model with the variable prefix"),
        (InterchangeProbe, ADD, {"variable": "carries"}, r"probe\.variable=carries: expected some of a_bit"),
        (InterchangeProbe, ADD, {"families": {"x": {"keep": ["carries"]}}}, r"families\.x=carries: expected"),
        (InterchangeProbe, ADD, {"families": {"x": {"vary": "sum", "keep": "sum"}}}, r"families=x: none of"),
        (InterchangeProbe, ADD, {"families": {"x": {"varies": "sum"}}}, r"probe\.families\.x\.varies"),
        (OWN, ADD, {"variable": "idle"}, r"^probe\.variable=idle: its interchange changes no answer"),
        (OWN, ADD, {"variable": ["total", "sum"]}, r"^probe\.variable=sum: it predicts the same as another variable"),
        (OWN, ADD, {"variable": "low_carry"}, r"^probe\.variable=low_carry: none of 64 bases has a pair"),
        (Subspaces, ADD, {"position": 0, "variable": "carry"}, r"probe\.variable=carry: its interchange changes no an"),
        (Subspaces, ADD, {"site": "dec.1", "position": 4}, r"probe\.position=4: expected an integer from 0 to 3"),
        (Subspaces, ADD, {"site": "enc.1", "position": 1}, r"probe\.position=1: expected all at enc\.1"),
        (Subspaces, RANDOM, {"position": "all"}, r"probe\.position=all: task=random_output has no value"),
        (Dose, Sub(3), {}, r"^probe\.causal_model=null: expected a causal model of sub with .* the answer as a number"),
        (Dose, ADD, {"causal_model": only_bits}, r"^probe\.causal_model=.*: expected .* the answer as a number"),
        (Mechanism, Add(12), {}, "^task=add: 16,777,216 examples; probe=mechanism needs"),
        (Dose, ADD, {"delta": 15}, r"probe\.delta=15: expected an integer from 1 to 14"),
        (PlaceValue, ADD, {"site": "all"}, r"^probe\.site=enc\.1: expected sites of the decoder"),
        (PlaceValue, Sub(3), {}, "^task=sub: has no columns"),
    ],
)
def test_bad_options_are_refused_before_any_forward(probe, task, options: dict[str, Any], message, monkeypatch) -> None:
    model = untrained(task)
    monkeypatch.setattr(model.network, "encode", lambda prompt: pytest.fail("ran the network"))
    options = {"site": "dec.1"} | options if probe in (Subspaces, Amnesic) else options
    with pytest.raises(UserError, match=message):
        probe([model], **options)
