"""Interchange accuracy and alignment search, on a network and a causal model that the package does not know."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import arith_erd as ae
from arith_erd.digits import ZERO, to_digits
from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.counterfactuals import CounterfactualDataset
from arith_erd.interp.das import fit_das
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interchange_accuracy import balanced_accuracy, changed_and_kept, interchange_accuracy
from arith_erd.interp.interventions import Interchange
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.handcoded import write_network
from arith_erd.tasks import Add, Mul, Task
from tests.unit.interp.toys import InDirections

BASE, CHANNELS = 3, 6


class Double(Task):
    """``2a + b`` in base 3, written highest digit first."""

    name, operator = "double", "&"

    def __init__(self) -> None:
        super().__init__(3, completion_order="plain", base=BASE)

    @property
    def width(self) -> int:
        return 4

    def answer(self, a, b):
        return 2 * np.asarray(a) + np.asarray(b)


def own_sums(double, b):
    return (to_digits(double, 4, BASE) + to_digits(b, 4, BASE)) % BASE


def carries(double, b):
    place = BASE ** np.arange(4)
    return (double[:, None] % place + b[:, None] % place) // place


VARIABLES = {
    "total": lambda own_sum, carry: (own_sum + carry) % BASE,
    "double": lambda a: 2 * a,
    "own_sum": own_sums,
    "carry": carries,
}


class Mine(nn.Module):
    """Holds carry and own sum of each digit along directions of one block, and adds them up."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(2))
        generator = torch.Generator().manual_seed(0)
        self.basis = nn.Parameter(torch.linalg.qr(torch.randn(CHANNELS, CHANNELS, generator=generator))[0])
        self.noise = torch.randn(BASE**6, 4, CHANNELS - 2, generator=generator)

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        places = BASE ** torch.arange(3)
        a, b = ((part - ZERO) @ places for part in (prompt[:, :3], prompt[:, 4:]))
        variables = (own_sums((2 * a).numpy(), b.numpy()), carries((2 * a).numpy(), b.numpy()))
        held = torch.stack([torch.as_tensor(v).flip(1) for v in variables], dim=-1).float()  # highest digit first
        x = torch.cat([held, self.noise[27 * a + b]], dim=-1) @ self.basis.T
        own_sum, carry = (self.blocks[1](x) @ self.basis)[..., :2].unbind(-1)
        digit = own_sum + carry  # (N, 4), up to 3, which is 0
        scores = [-((digit - value) ** 2) for value in range(4)]
        scores = [torch.maximum(scores[0], scores[3]), *scores[1:3]]
        return torch.stack([torch.full_like(digit, -99)] * ZERO + scores, dim=-1)[:, : answer_in.shape[1]]


@pytest.fixture(scope="module")
def mine() -> tuple[ae.Hooked, ae.CausalModel]:
    network = Mine()
    model = ae.Hooked(network, sites={"h": network.blocks[1]}, task=Double())
    assert model.accuracy() == 1
    assert model.accuracy(interventions=ae.Replace("h", "all", torch.zeros(6))) < 0.1
    return model, ae.CausalModel(Double(), VARIABLES, output="total")


def test_user_network_decodes_the_teacher_forced_answers(mine) -> None:
    model, _ = mine
    examples = model.task.examples()
    assert (model.predict(*examples.operands.T) == examples.answer).all()
    assert model.predict(1, [0, 2]).tolist() == model.predict(model.task.examples(1, [0, 2])).tolist() == [2, 4]
    erased = ae.Replace("h", "r1", torch.zeros(6))
    right = model.predict(examples, interventions=erased) == examples.answer
    assert 0 < right.mean() == model.accuracy(interventions=erased) < 1
    with pytest.raises(UserError, match=r"received examples and more; expected examples alone, or operands$"):
        model.predict(examples, erased)
    with model.network.register_forward_hook(lambda module, given, logits: logits.repeat(1, 2, 1)):
        for call in (lambda: model.predict(1, 2), model.accuracy):
            with pytest.raises(UserError, match=r"^Mine: returned shape .*; expected logits \(\d+, \d, V\)"):
                call()


def test_direction_planted_in_a_user_network_is_found(mine: tuple[ae.Hooked, ae.CausalModel]) -> None:
    """The second snippet of the public API, as somebody types it."""
    model, adder = mine
    data = ae.CounterfactualDataset.sample(adder, vary="carry", n=400)
    train, test = data.split()
    whole = ae.interchange_accuracy(model, adder, test, sites="all")
    assert whole["position"].tolist() == ["r3", "r2", "r1", "r0", "all"]
    assert (whole["no_intervention"].iloc[:3] == 0.5).all()
    assert whole["accuracy"].iloc[1] < 0.8  # carries over the sum of the digits too
    space = ae.fit_das(model, adder, train, site="h", position="r1", variable="carry", rank=1)
    assert abs(space.directions[:, 0] @ model.network.basis[:, 1]) >= 0.99
    for variable, position, least, most in (("carry", "r1", 1, 1), ("own_sum", 2, 0, 0.7)):
        place = ae.Interchange("h", position, space)
        (row,) = ae.interchange_accuracy(model, adder, test, place, variable=variable).to_dict("records")
        assert least <= min(row["changed"], row["kept"]) <= row["accuracy"] <= most


def test_ambiguous_data_are_reported_or_refused(mine: tuple[ae.Hooked, ae.CausalModel]) -> None:
    model, adder = mine
    kept = CounterfactualDataset.sample(adder, vary="carry", keep="own_sum", n=100, digit=2)
    rows = interchange_accuracy(model, adder, kept, sites=["h"])
    assert rows["position"].tolist() == ["r2", "all"]
    assert rows["same_predictions"].iloc[0] == "total"
    same, bit = CounterfactualDataset.sample(adder, keep="carry", n=100), ae.Interchange("h", 1)
    other = CausalModel(Add(5))
    for call, said in (
        (lambda: interchange_accuracy(model, adder, same, bit, variable="carry"), "^variable=carry: its interchange"),
        (lambda: fit_das(model, adder, same, "h", 1), "^variable: not given, .*; expected one of a_digit"),
        (lambda: fit_das(model, adder, kept, "h", 1, rank=7), "^rank=7: expected at most 6"),
        (lambda: interchange_accuracy(model, adder, kept, ae.Interchange("h", 20)), "^position=20: expected one of"),
        (lambda: interchange_accuracy(model, adder, kept), "received neither; expected either an intervention or"),
        (lambda: interchange_accuracy(model, other, kept, bit), r"^causal model: received one for Add\(bits=5\); exp"),
        (lambda: fit_das(model, Add(3), kept, "h", 1), "^causal_model: received Add; expected CausalModel"),
        (lambda: fit_das(model, adder, CounterfactualDataset.sample(other), "h", 1), "^data: received one for Add"),
    ):
        with pytest.raises(UserError, match=said):
            call()


def test_variables_that_are_not_asked_for_need_not_give_an_answer() -> None:
    variables = {"own": lambda a, b: to_digits(a ^ b, 5), "carry": lambda a, b: to_digits((a + b) ^ a ^ b, 5)}
    variables |= {"twin": lambda carry: carry, "more": lambda a, b: to_digits(a & b, 5)}
    answer = {"answer": lambda own, twin, more, a, b: (own ^ twin) + more - to_digits(a & b, 5)}
    adder = CausalModel(Add(4), variables | answer)
    model = Hooked(InDirections(adder.task), task=adder.task)
    data = CounterfactualDataset.sample(adder, vary="carry", n=50)
    rows = interchange_accuracy(model, adder, data, Interchange("dec.1", "all"))
    assert rows["same_predictions"].item() == "twin"
    with pytest.raises(UserError, match=r"^interchange of more: variable answer: is .*; expected a digit"):
        interchange_accuracy(model, adder, data, Interchange("dec.1", "all"), variable="more")


def test_pairs_of_the_user_are_taken_unchanged(mine: tuple[ae.Hooked, ae.CausalModel]) -> None:
    model, adder = mine
    examples = model.task.examples()
    pairs = CounterfactualDataset.of(adder, examples[[3, 9, 20]], examples[[8, 1, 63]])
    assert pairs.base.tolist() == [3, 9, 20]
    assert (pairs.source_examples.answer == examples.answer[[8, 1, 63]]).all()
    assert interchange_accuracy(model, adder, pairs, ae.Interchange("h", "all"), variable="total")["changed"][0] == 1
    for call, said in (
        (lambda: pairs.split(), "^split: .* for your own pairs use part"),
        (lambda: CounterfactualDataset.of(adder, examples[[3]], examples), "received 1 and 729 examples;"),
        (lambda: CounterfactualDataset.of(adder, examples, Mul(3).examples()), "base, source: .*; expected those of"),
        (lambda: CounterfactualDataset(adder, examples, examples), "^base, source: expected row numbers below"),
        (
            lambda: interchange_accuracy(model, adder, pairs.part([]), sites="h", variable="total"),
            "^data: received no pairs; expected one or more$",
        ),
        (lambda: CounterfactualDataset.sample(adder, vary="cary"), "^vary=cary: expected some of"),
        (lambda: CounterfactualDataset.sample(adder, seed=-1), "^seed=-1: expected an integer of at least 0"),
        (lambda: adder.values("carry"), "^operands: received .* expected examples, or integers .N, 2."),
        (lambda: ae.Interchange("h", 1, torch.ones(6, 1)), "^Subspace: the 1 columns of size 6 are not orthonormal"),
    ):
        with pytest.raises(UserError, match=said):
            call()


def test_balanced_accuracy_of_a_right_network_without_an_intervention_is_one_half() -> None:
    right, expected = torch.tensor([[3], [4], [3], [3]]), torch.tensor([[4], [4], [3], [3]])
    assert balanced_accuracy(right, expected, right) == 0.5
    assert balanced_accuracy(expected, expected, right) == 1
    assert balanced_accuracy(expected, expected, torch.tensor([[4], [3], [4], [4]]) - 1) == 1  # all should change
    assert math.isnan(balanced_accuracy(right, right, right))  # nothing should change, so nothing can be told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variable", "position", "steps", "passes"),
    [
        ("erd", "sum", None, 2, True),
        ("erd", "carry", 4, 2, False),
        ("prefix_carry", "carry", 4, 40, True),
        ("prefix_carry_decoy", "sum", None, 2, False),
    ],
)
def test_one_direction_carries_only_what_the_algorithm_computes_with(name, variable, position, steps, passes) -> None:
    model, adder = Hooked(write_network(name, 0).network, task=Add()), CausalModel(Add())
    train, test = CounterfactualDataset.sample(adder, n=512, digit=position).split((0.75, 0.25))
    space = fit_das(model, adder, train, "dec.3", position, variable, steps=steps)
    found = interchange_accuracy(model, adder, test, Interchange("dec.3", position, space), variable=variable)
    assert (found["accuracy"].item() > 0.98) == passes


def test_a_search_where_no_answer_should_change_is_refused() -> None:
    adder = CausalModel(Add(4))
    model = Hooked(InDirections(adder.task), task=adder.task)
    train = CounterfactualDataset.sample(adder, vary="carry", keep=["xor"], n=32)
    with pytest.raises(UserError, match=r"^position=0: expected one where the interchange of carry changes an answer"):
        fit_das(model, adder, train, "dec.1", 0)
    half = Hooked(NanoGPT(9, 5, d_model=8, num_heads=2, num_layers=1).bfloat16(), task=adder.task)
    assert fit_das(half, adder, train, "dec.1", 2, steps=2).rank == 1  # found in float32


def test_an_interchange_of_attention_patterns_reads_all_keys_of_nanogpt() -> None:
    model, adder = Hooked(NanoGPT(7, 4, d_model=16, num_heads=2, num_layers=2), task=Add(3)), CausalModel(Add(3))
    data = CounterfactualDataset.sample(adder, "carry", n=10, digit=2)
    found = interchange_accuracy(model, adder, data, sites="dec.1.attn.pattern")
    assert found["position"].tolist() == [*model.task.prompt_names, "r2", "all"]


def test_a_position_of_the_prompt_in_a_decoder_only_network_is_tested_by_the_whole_answer() -> None:
    """An interchange at a1 of the embedding is the network's run with that token of the source's prompt."""
    model, adder = Hooked(NanoGPT(7, 4, d_model=16, num_heads=2, num_layers=2), task=Add(3)), CausalModel(Add(3))
    data = CounterfactualDataset.sample(adder, n=100)
    (prompt, answer_in), (other, _) = model.inputs(data.base_examples), model.inputs(data.source_examples)
    prompt[:, 1] = other[:, 1]
    tokens, expected = model.run((prompt, answer_in)).argmax(-1), torch.as_tensor(data.expected("a_bit"))
    changed, kept = changed_and_kept(tokens - ZERO, expected, torch.as_tensor(data.base_examples.completion - ZERO))
    found = interchange_accuracy(model, adder, data, sites="dec.embed", variable="a_bit").set_index("position")
    assert found.loc["a1", ["changed", "kept"]].tolist() == [changed, kept]
    train, test = data.split()
    space = fit_das(model, adder, train, "dec.1", "b0", "b_bit", rank=2, steps=2)
    assert space.directions.shape == (16, 2)
    rows = interchange_accuracy(model, adder, test, Interchange("dec.1", "b0", space), variable="b_bit")
    assert rows[["site", "position", "n"]].to_numpy().tolist() == [["dec.1", "b0", len(test)]]
    with pytest.raises(UserError, match=r"^position=a1: expected one of the 4 positions of dec\.2, which"):
        interchange_accuracy(model, adder, data, Interchange("dec.2", "a1"), variable="a_bit")
    with pytest.raises(UserError, match=r"^interchange_accuracy: received a list; expected an Interchange, or sites="):
        interchange_accuracy(model, adder, data, ["dec.2"], variable="carry")


def test_activations_that_are_not_finite_are_refused() -> None:
    task = Add(3)
    network = Transformer(task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=1)
    network.decoder[0].feed_forward.norm.bias.data[0] = torch.nan
    model = CausalModel(task)
    data = CounterfactualDataset.sample(model, "carry", n=10)
    with pytest.raises(UserError, match=r"^site=dec\.1: .* expected finite numbers"):
        interchange_accuracy(Hooked(network, task=task), model, data, sites=["dec.1"])
