"""Interchange-intervention training: labels, interchanges, and what a pack must not change."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from arith_erd.config.causal_models import build_causal_model
from arith_erd.digits import ZERO
from arith_erd.errors import UserError
from arith_erd.interp.algorithms import ALGORITHMS
from arith_erd.losses import InterchangeTraining
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.network import shift_right
from arith_erd.tasks import Add, Mul
from arith_erd.training.pack import Pack

TASK = Add(3)
EXAMPLES = TASK.examples()
MAP = {"carry": {"site": "dec.1", "dims": [0, 3]}, "sum": {"site": "dec.1", "dims": [4, 6]}}


def whole_batch(loss: InterchangeTraining) -> list[torch.Tensor]:
    """Prompts, completions and targets of all examples, for which the loss makes its tables."""
    loss.make_tables(TASK, EXAMPLES)
    return [torch.as_tensor(x) for x in (EXAMPLES.prompt, EXAMPLES.completion, np.arange(64.0)[:, None])]


def made(network, seeds, variables=MAP, compile=False, **options) -> tuple[Pack, list[torch.Tensor]]:
    """A pack of small networks, and prompts, completions and targets of eight examples."""
    loss = InterchangeTraining(variables, **options)
    shape = {"d_model": 8, "num_heads": 2, "num_layers": 2}
    pack = Pack(lambda: network(TASK.prompt_length, TASK.width, **shape), seeds, compile, loss=loss)
    rows = torch.arange(0, 64, 8) + torch.arange(8) // 2
    return pack, [x[rows].expand(len(seeds), *x[rows].shape) for x in whole_batch(loss)]


def runs_of(network: type, variables, **options) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The logits (8, m, V) of each run of a network alone, and its loss."""
    pack, (prompt, completion, targets) = made(network, (0,), variables, **options)
    net, gave = pack.replica(0), []
    net.register_forward_hook(lambda module, given, output: gave.append(output))
    return gave, pack.loss(net, prompt[0], completion[0], targets[0])


@pytest.mark.parametrize("network", [NanoGPT, Transformer])
def test_interchanging_the_whole_last_layer_gives_the_logits_of_the_source(network):
    whole = {"sum": {"site": "dec.2", "dims": [0, 7]}}
    (plain, interchanged, nothing), loss = runs_of(network, whole, weight=0.5, strict=2.0)
    torch.testing.assert_close(interchanged, plain.roll(1, dims=0))
    torch.testing.assert_close(nothing, plain)
    completion = made(network, (0,))[1][1][0]  # the sum's interchange gives the source's answer
    alone = F.cross_entropy(plain.flatten(0, 1), completion.flatten())
    torch.testing.assert_close(loss, (1 + 0.5 + 2.0) * alone)


@pytest.mark.parametrize("network", [NanoGPT, Transformer])
def test_interchanged_prefix_is_that_of_the_example_before_and_the_causal_model_labels_it(network):
    given = {"prefix": {"site": "answer"}, "carry": {"site": "dec.1", "dims": [0, 3]}}
    loss, model = InterchangeTraining(given, causal_model="prefix_carry"), ALGORITHMS["prefix_carry"].causal_model(TASK)
    batch = whole_batch(loss)
    digits = [model.answers(model.values(EXAMPLES, {"prefix": np.roll(EXAMPLES.answer, 1)}))]
    digits += [model.interchange_by_digit(EXAMPLES, EXAMPLES[np.arange(-1, 63)], "carry")]
    tokens = torch.as_tensor(np.stack([EXAMPLES.completion, *(x + ZERO for x in digits)]))
    right = 30.0 * F.one_hot(tokens.long(), TASK.vocab_size)
    net = network(TASK.prompt_length, TASK.width, d_model=8, num_heads=2, num_layers=2, dropout=0.0)
    read, answers = [], [0, 1, 2]
    net.register_forward_hook(lambda module, given, output: (read.append(given[1]), right[answers[len(read) - 1]])[1])
    assert loss(net, *batch) < 1e-6
    own, of_the_one_before, _ = read
    assert torch.equal(own, shift_right(batch[1]))
    assert torch.equal(of_the_one_before, own.roll(1, dims=0))
    read.clear()
    answers[1] = 0
    assert loss(net, *batch) > 0.3


class Backwards(NanoGPT):
    def sites(self):  # not in the order in which they run
        return dict(reversed(super().sites().items()))


class Recurrent(Network):
    def __init__(self, prompt_length, answer_length, vocab_size=5):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 8)
        self.layers = nn.ModuleList(nn.GRU(8, 8, batch_first=True) for _ in range(3))
        self.head = nn.Linear(8, vocab_size)

    def encode(self, prompt):
        return self.layers[0](self.layers[0](self.embed(prompt))[0])[1]

    def decode(self, memory, answer_in):
        return self.head(self.layers[2](self.layers[1](self.embed(answer_in), memory)[0])[0])

    def sites(self):
        return {"enc.1": self.layers[0], "dec.1": self.layers[1], "dec.2": self.layers[2]}


@pytest.mark.parametrize(("variable", "hypothesis"), [("sum", None), ("carry", "prefix_carry")])
def test_layers_that_run_twice_or_return_tuples_are_trained_and_reported(variable, hypothesis, monkeypatch):
    prefix = {"prefix": {"site": "answer"}} if hypothesis == "prefix_carry" else {}
    loss = InterchangeTraining(prefix | {variable: {"site": "dec.2", "dims": [0, 7]}}, causal_model=hypothesis)
    model, net = build_causal_model(TASK, hypothesis, ""), Recurrent(7, 4)
    prompt, completion, _ = batch = whole_batch(loss)
    rows = np.random.default_rng(0).permutation(np.arange(1, 64, 3))
    predict = model.interchange_by_digit if variable == "carry" else model.interchange
    expected = TASK.to_tokens(predict(EXAMPLES[rows], EXAMPLES[others := np.roll(rows, 1)], variable))
    answered = net(prompt[others], shift_right(completion[others])).argmax(-1).numpy()
    found = loss.report(lambda: net, np.arange(1, 64, 3))[variable]
    assert found == pytest.approx((answered == expected).mean(0).tolist())
    stored = loss(net, *batch)
    monkeypatch.setattr("arith_erd.losses.interchange_training.replay_outputs", lambda outputs: nullcontext())
    torch.testing.assert_close(stored, loss(net, *batch))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("network", [NanoGPT, Transformer, Backwards])
def test_layers_below_an_interchange_run_once_with_the_same_losses_and_gradients(network, monkeypatch):
    monkeypatch.setattr("arith_erd.training.pack.LARGE_NETWORK", 0)  # layer by layer
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch.compiler.reset()
    variables = {"prefix": {"site": "answer"}, "carry": {"site": "dec.1", "dims": [0, 3]}}
    results = []
    for compile, skip, runs in ((False, False, 4), (False, True, 2), (True, True, None)):
        pack, given = made(network, (3, 5), variables, compile=compile, strict=0.5, causal_model="prefix_carry")
        ran = []
        if runs is not None:
            below = pack._skeleton[0].sites()["dec.1.mlp_out"]
            below.register_forward_hook(lambda *_, ran=ran: ran.append(1))
        with monkeypatch.context() as patch:
            if not skip:
                patch.setattr("arith_erd.losses.interchange_training.replay_outputs", lambda outputs: nullcontext())
            losses = pack.losses(*given[:2], 7, given[2])
        losses.sum().backward()
        assert runs in (None, len(ran))  # one without interchange, one with other prefixes
        results.append([losses, *(p.grad for p in pack.parameters())])
    for other in results[1:]:
        for expected, found in zip(results[0], other, strict=True):
            torch.testing.assert_close(found, expected)


def test_a_column_is_interchanged_at_one_position():
    (plain, interchanged), _ = runs_of(NanoGPT, {"carry": {"site": "dec.2", "dims": [0, 7]}})
    examples = torch.arange(8)
    source = plain.roll(1, dims=0)
    torch.testing.assert_close(interchanged[examples, examples % 4], source[examples, examples % 4])
    moved = (interchanged != plain).any(-1)
    moved[examples, examples % 4] = False
    assert not moved.any()


def test_variable_with_more_values_than_fit_in_memory_is_refused_before_their_answers_are_computed():
    task = Mul(7)
    with pytest.raises(UserError, match=r"=product: expected a variable with fewer values; .* 3.4 GiB"):
        InterchangeTraining({"product": {"site": "dec.1", "dims": [0, 3]}}).make_tables(task, task.examples())


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "at least one variable"),
        ({"tide": {"site": "dec.1", "dims": [0, 3]}}, "tide"),
        ({"carry": {"site": "enc.1", "dims": [0, 3]}}, "one of dec.1, dec.2"),
        ({"carry": {"site": "dec.9", "dims": [0, 3]}}, "one of dec.1, dec.2"),
        ({"carry": {"site": "dec.1", "dims": [0, 8]}}, "0 to 7 at dec.1"),
        ({"carry": {"site": "dec.1", "dims": [3, 1]}}, "dims: .0, 15"),
        ({"carry": {"site": "dec.1", "dims": [0.5]}}, "dims: .0, 15"),
        (
            {"carry": {"site": "dec.1", "dims": [0, 3]}, "xor": {"site": "dec.1", "dims": [3, 5]}},
            r"^model\.loss\.variables\.xor\.dims=\[3, 5\]: expected coordinates from 0 to 7 at dec.1 that no other",
        ),
        ({"carry": {"site": "answer"}}, "the number of the right answer"),
        ({"train": {"site": "dec.1", "dims": [0, 3]}}, "=train: expected another name than train and val"),
        (
            {"carry": {"site": "dec.1", "dims": [0, 7]}},
            r"^model\.loss\.strict=1.0: expected coordinates of dec.1 that no",
        ),
        (
            {"sum": {"site": "dec.1", "dims": [0, 1]}, "sum_mod": {"site": "dec.1", "dims": [2, 3]}},
            r"^model\.loss\.variables=sum_mod: it predicts the same as another variable",
        ),
    ],
)
def test_variables_that_a_network_cannot_be_trained_on_are_refused(variables, message):
    def first_step():
        pack, given = made(Transformer, (0,), variables, strict=1.0)
        pack.prepare_loss(TASK, EXAMPLES)
        pack.dry_run(*given, loss=True)

    with pytest.raises(UserError, match=message):
        first_step()
