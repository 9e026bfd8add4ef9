"""The card of a network whose algorithm is known names it, and says where it cannot know."""

import json

import pandas as pd
import pytest
import torch
from arith_erd.interp.subject import Subject, load_references

from arith_erd.errors import UserError
from arith_erd.interp.card import NO_VERDICT
from arith_erd.interp.causal import CausalTask
from arith_erd.interp.evidence import Evidence
from arith_erd.interp.exchange import exchanges
from arith_erd.interp.signature import LOCAL
from arith_erd.models import NanoGPT
from arith_erd.plots.cards import Card
from arith_erd.plots.mechanism import OVER_TRAINING
from arith_erd.plots.sheet import tabulate
from arith_erd.probes.mechanism import UNCALIBRATED, Mechanism
from arith_erd.tasks import Add, Mul, RandomOutput, Task


def measured(probe: Mechanism) -> pd.DataFrame:
    return pd.DataFrame(probe.rows(), columns=list(probe.columns))


def untrained(task: Task, num_layers: int = 1) -> Subject:
    torch.manual_seed(0)
    network = NanoGPT(task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=num_layers).eval()
    return Subject("untrained", 0, task, network, None)


def test_card_of_a_reference_names_its_algorithm(monkeypatch) -> None:
    def only_exchanges(network, task, *options):
        return Evidence(list(exchanges(network, CausalTask(task), sample=28)), pd.DataFrame(), [])

    monkeypatch.setattr("arith_erd.probes.mechanism.gather", only_exchanges)
    probe = Mechanism(load_references("prefix_carry", [7], Add()), pairs=64, moved=128, steps=0)
    rows = measured(probe)
    whole = json.loads(probe.files()["card.json"])
    assert (whole["verdict"], whole["calibrated"]) == ("prefix_carry", True)
    (card,) = whole["seeds"]
    assert card["accuracy"] == 1
    assert all("value" not in bit["transmits"] for bit in card["bits"])
    assert {"carry"} <= {name for bit in card["bits"] for name in bit["transmits"]}
    assert all(bit["follows_prefix"] > 0 and bit["needs_prefix"] > 0 for bit in card["bits"][1:])
    assert probe.table(rows)["verdict"].tolist() == ["prefix_carry"]
    assert UNCALIBRATED not in probe.notes()
    assert probe.figure(rows).axes
    assert card["moved_in_prompt"] == 0
    assert all(bit["appears"]["carry"] for bit in card["bits"])
    page = tabulate(rows, probe.sheet("mechanism", rows))
    assert page["component"].iloc[0] == "verdict: prefix_carry"


def test_card_shows_subspaces_beside_their_controls() -> None:
    probe = Mechanism([untrained(Add(3))], pairs=64, moved=64, steps=1)
    rows = measured(probe)
    (card,) = json.loads(probe.files()["card.json"])["seeds"]
    assert card["verdict"] == "none"
    followed = set(OVER_TRAINING.values()) - {"follow an inverted carry"}  # three bits have none where it is told apart
    assert set(probe.course(rows).table["line"]) == followed
    found = [(one["variable"], one["position"], one["passes"]) for one in card["subspaces"]]
    variables = ("a_bit", "b_bit", "xor", "carry", "sum", "partial_sum")
    assert found == [*((variable, "2", False) for variable in variables), ("sum", "all", False)]
    controls = {"subspace_carry_random_max", "subspace_carry_untrained"}
    assert controls <= set(rows["component"])
    assert probe.figure(rows).axes


def test_card_made_before_there_were_other_algorithms_is_still_shown() -> None:
    probe = Mechanism([untrained(Add(3))], pairs=64, moved=64, steps=0)
    rows = measured(probe)
    whole = json.loads(probe.files()["card.json"])
    del whole["seeds"][0]["others"]
    whole["expected"] = {name: of for name, of in whole["expected"].items() if name not in LOCAL}
    before = rows[~rows["component"].str.match("turns_|pushed_|distance_|local_remainder|graded_carry")]
    card = Card.read(json.dumps(whole), before)
    assert card.verdicts == {0: "none"}
    assert card.draw().axes


def test_card_of_a_multiplier_gives_no_verdict_and_says_why() -> None:
    probe = Mechanism([untrained(Mul(3), num_layers=2)], pairs=64, moved=64)
    rows = measured(probe)
    whole = json.loads(probe.files()["card.json"])
    assert (whole["verdict"], whole["calibrated"]) == ("undecided", False)
    assert whole["seeds"][0]["reasons"] == [NO_VERDICT]
    assert UNCALIBRATED in probe.notes()
    assert probe.figure(rows).axes


def test_another_task_and_too_few_pairs_are_refused() -> None:
    with pytest.raises(UserError, match=r"^probe=mechanism: received task=random_output; expected"):
        Mechanism([Subject("x", 0, RandomOutput(3), NanoGPT(7, 4), None)])
    with pytest.raises(UserError, match=r"^probe\.pairs=8: expected an integer of at least 64"):
        Mechanism(load_references("erd", [0], Add()), pairs=8)
