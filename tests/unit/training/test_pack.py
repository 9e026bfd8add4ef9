"""A replica in a pack equals its seed alone: weights, logits, gradients. What is compiled, and where it runs."""

import math
import shutil
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.losses import CrossEntropy, CrossEntropyAndValue, InterchangeTraining
from arith_erd.models import GRU, LSTM, MLP, NanoGPT, Transformer
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.models.network import initialise, shift_right
from arith_erd.tasks import Add
from arith_erd.training.data import TrainBatches
from arith_erd.training.lit_pack import LitPack, accuracies
from arith_erd.training.pack import Pack, should_compile

TASK = Add(3)
SEEDS = (5, 0, 9)

both = pytest.mark.parametrize("network", [Transformer, NanoGPT])
every = pytest.mark.parametrize("network", [Transformer, NanoGPT, GRU, LSTM, MLP])


def builder(network, dropout: float = 0.5, **options):
    heads = {"num_heads": 2} if network in (Transformer, NanoGPT) else {}
    sizes = {"d_model": 16, "num_layers": 2, "dropout": dropout, **heads, **options}
    return partial(network, TASK.prompt_length, TASK.width, **sizes)


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Another batch for each replica: prompts (R, B, P) and completions (R, B, m)."""
    examples = TASK.examples()
    order = torch.stack([torch.randperm(64, generator=torch.Generator().manual_seed(s))[:20] for s in SEEDS])
    return torch.from_numpy(examples.prompt)[order], torch.from_numpy(examples.completion)[order]


@every
def test_initial_weights_are_those_of_the_seed_alone(network):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    pack = Pack(builder(network), SEEDS)
    assert torch.equal(torch.rand(4), expected), "the global generator is left alone"
    states = [pack.replica_state(index) for index in range(3)]
    for index, seed in enumerate(SEEDS):
        solo = Pack(builder(network), [seed]).replica_state(0)
        plain = initialise(builder(network), seed).state_dict()
        assert list(states[index]) == list(plain)
        for name, value in plain.items():
            assert torch.equal(states[index][name], value), name
            assert torch.equal(solo[name], value), name
    assert not any(torch.equal(a, b) for name, a in states[0].items() if (b := states[1][name]).dim() > 1)


@every
@pytest.mark.parametrize("step", [None, 3])
def test_logits_and_gradients_are_those_of_the_seed_alone(network, step, batch):
    def logits_and_gradients(pack, batch):
        prompt, completion = batch
        logits = pack(prompt, shift_right(completion), step=step)
        losses = F.cross_entropy(logits.flatten(0, 2), completion.flatten(), reduction="none")
        losses.view(len(completion), -1).mean(dim=1).sum().backward()
        return logits.detach(), {name: p.grad for name, p in pack.stacked.named_parameters()}

    pack = Pack(builder(network), SEEDS)
    logits, gradients = logits_and_gradients(pack, batch)
    for index, seed in enumerate(SEEDS):
        plain = pack.replica(index).train(step is not None)
        set_dropout_keys(plain, pack.replica_keys[index], step or 0)
        torch.testing.assert_close(plain(batch[0][index], shift_right(batch[1][index])), logits[index])
        solo = Pack(builder(network), [seed])
        solo_logits, solo_gradients = logits_and_gradients(solo, [x[index : index + 1] for x in batch])
        torch.testing.assert_close(logits[index], solo_logits[0], atol=1e-5, rtol=1e-5)
        for name, gradient in solo_gradients.items():
            torch.testing.assert_close(gradients[name][index], gradient[0], atol=1e-6, rtol=1e-5, msg=name)


def test_gradients_are_clipped_to_each_replicas_own_norm():
    pack = Pack(builder(NanoGPT), SEEDS)
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1e-4, 1.0, 100.0])  # the first stays below the limit
    for parameter in pack.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.grad = noise * scale.view(-1, *[1] * (parameter.dim() - 1))
    gradients = {name: p.grad.clone() for name, p in pack.stacked.named_parameters()}
    pack.clip_gradients(1.0)
    for index in range(3):
        plain = builder(NanoGPT)()
        for name, parameter in plain.named_parameters():
            parameter.grad = gradients[name][index].clone()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        for name, parameter in plain.named_parameters():
            torch.testing.assert_close(pack.stacked.get_parameter(name).grad[index], parameter.grad)


@both
@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
def test_weight_decay_falls_on_what_is_a_matrix_in_the_plain_network(network, seeds):
    pack = Pack(builder(network), seeds)
    optimizer = LitPack(pack, partial(torch.optim.AdamW, weight_decay=0.1)).configure_optimizers()
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    plain = dict(builder(network)().named_parameters())
    assert len(decay) == len(plain)
    for name, stack in pack.stacked.named_parameters():
        assert decay[id(stack)] == (0.1 if plain[name].dim() >= 2 else 0.0), name
    assert set(decay.values()) == {0.0, 0.1}


@pytest.fixture
def graphs(monkeypatch) -> list:
    """The shapes of the integer inputs of each compiled graph; the graphs run uncompiled."""
    seen = []

    def backend(graph, inputs, **kwargs):
        seen.append([tuple(x.shape) for x in inputs if isinstance(x, torch.Tensor) and x.dtype == torch.int32])
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch.compiler.reset()
    return seen


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
@pytest.mark.parametrize(("network", "replicas"), [(Transformer, 1), (NanoGPT, 3)])
def test_compiled_and_eager_packs_have_equal_losses_and_gradients(batch, network, replicas):
    """One replica has its layers compiled, several tiny ones are one graph."""
    few = tuple(x[:replicas] for x in batch)
    build = builder(network, num_layers=1)
    eager, compiled = (Pack(build, SEEDS[:replicas], compile=compile) for compile in (False, True))
    for pack in (eager, compiled):
        pack.losses(*few, step=3).sum().backward()
    for (name, p), q in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    prompt, answer_in = few[0][0], shift_right(few[1][0])
    for _ in range(2):  # without dropout, with it, and without it again
        with torch.no_grad():
            torch.testing.assert_close(*(pack(prompt, answer_in) for pack in (compiled, eager)))
        torch.testing.assert_close(*(pack.losses(*few, step=4) for pack in (compiled, eager)))


def test_equal_layers_are_compiled_once(batch, graphs, monkeypatch):
    """One graph for the encoder's layers and one for the decoder's, however many layers and replicas there are."""
    monkeypatch.setattr("arith_erd.training.pack.LARGE_NETWORK", 0)
    pack = Pack(builder(Transformer, num_layers=2), SEEDS[:2], compile=True)
    for step in (0, 1):
        pack.losses(*(x[:2] for x in batch), step)
    assert len(graphs) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "replicas", "large"),
    [*product(("enc.1", "dec.1"), (1, 3), (0,)), *(("dec.1.attn.pattern", 3, large) for large in (0, math.inf))],
)
def test_compiled_packs_read_the_site_of_their_loss(site, replicas, large, batch, graphs, monkeypatch):
    """They read it at each step, not only while layers are traced; in turn, or as one graph."""
    monkeypatch.setattr("arith_erd.training.pack.LARGE_NETWORK", large)
    results = []
    for compile in (False, True):
        loss = CrossEntropyAndValue(site)
        pack = Pack(builder(Transformer), SEEDS[:replicas], compile=compile, loss=loss)
        pack.prepare_loss(TASK, TASK.examples())
        with torch.no_grad():
            loss.head.fill_(0.1)
        prompt, completion, targets = (x[:replicas] for x in (*batch, torch.ones(3, 20, 1)))
        results.append([pack.losses(prompt, completion, step, targets) for step in (0, 1)])
        results[-1][1].sum().backward()
        results[-1] += [p.grad for p in pack.parameters()]
        with torch.no_grad():
            results[-1] += [pack(prompt, shift_right(completion)), pack(prompt[0], shift_right(completion[0]))]
    assert graphs
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("overrides", "device", "steps", "compiles"),
    [
        (["trainer.compile=true"], CPU, 1, True),
        (["trainer.compile=false"], CUDA, 1, False),
        (["trainer.max_epochs=1", "seed=0-4"], CUDA, 1, True),
        (["trainer.max_epochs=16"], CPU, 96, False),  # 19e12 operations
        (["trainer.max_epochs=17"], CPU, 96, True),
        (["trainer.max_epochs=9", "seed=0-1"], CPU, 96, True),
        (["model.net.d_model=16", "seed=0-99"], CPU, 96, False),  # one graph, which takes minutes
    ],
)
def test_auto_compiles_on_cuda_and_long_runs_on_a_cpu(overrides, device, steps, compiles):
    assert should_compile(compose("train", overrides), device, steps, CrossEntropy()) is compiles


def test_loss_that_hooks_layers_is_compiled_layer_by_layer_or_not_at_all():
    hooks, never = InterchangeTraining({"carry": {"site": "dec.1", "dims": [0, 3]}}), CrossEntropy()
    never.compiles = False
    one_graph = compose("train", ["model.net.d_model=16", "seed=0-9", "trainer.compile=true"])
    assert should_compile(compose("train", []), CPU, 96, hooks)
    assert not should_compile(compose("train", []), CUDA, 96, hooks)
    assert not should_compile(compose("train", []), CPU, 96, never)
    with pytest.raises(UserError, match=r"^trainer\.compile=true: .* with this loss cannot be compiled"):
        should_compile(one_graph, CPU, 96, hooks)


@pytest.mark.parametrize(("network", "seeds"), [(Transformer, (0, 1, 2)), (NanoGPT, (0,))])
def test_epoch_runs_entirely_on_the_device(network, seeds, monkeypatch):
    """The ``meta`` device stands for a GPU: it refuses tensors of other devices, and cannot show a number."""
    module = LitPack(Pack(builder(network), seeds), torch.optim.AdamW, gradient_clip=1.0).to("meta")
    optimizer = module.configure_optimizers()
    examples = TASK.examples()
    table = tuple(torch.from_numpy(tokens).to("meta") for tokens in (examples.prompt, examples.completion))
    monkeypatch.setattr(LitPack, "global_step", 5)
    batches = list(TrainBatches(table, seeds, batch_size=20, step=lambda: 0))
    module.on_train_epoch_start()
    for index, batch in enumerate(batches):
        loss = module.training_step(batch, index)
        optimizer.zero_grad()
        loss.backward()
        module.configure_gradient_clipping(optimizer)
    with torch.no_grad():
        for batch in zip(*(tokens.split(64) for tokens in table), strict=True):
            module.validation_step(batch, 0, 1)
        accuracy = accuracies(module.validation_tokens.compute().movedim(0, 1), table[1])
    assert loss.device.type == accuracy.device.type == "meta"
