"""Reading a site gives what the network computes there; an intervention changes what the network computes after."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from arith_erd.config.compose import compose
from arith_erd.digits import ONE, PAD
from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.counterfactuals import CounterfactualDataset
from arith_erd.interp.erasure import Eraser, flip_signs, leace
from arith_erd.interp.hooked import Hooked, Provenance, positions_in_run
from arith_erd.interp.interchange_accuracy import interchange_accuracy
from arith_erd.interp.interventions import Erase, Interchange, Intervention, Replace, Steer, Subspace
from arith_erd.interp.sites import residual_stream
from arith_erd.models import NanoGPT, Transformer
from arith_erd.probes.patching import Patching
from arith_erd.probes.run_probe import probe
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add, Mul, Task
from tests.unit.probes.small import untrained
from tests.unit.tasks.test_tasks import Square

TASK = Add(3)
ONES = torch.ones(8)
KINDS = {"transformer": Transformer, "no_encoder": partial(Transformer, encoder=False), "nanogpt": NanoGPT}
CLEAN, OTHER = TASK.examples(), TASK.examples(*TASK.examples().operands[::-1].T)
ZEROS = torch.zeros(16)


def hooked(kind: str, task: Task = TASK) -> Hooked:
    return untrained(task, KINDS[kind], num_layers=3)


def equal(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding: patterns and heads are computed in another order while they are watched."""
    return torch.allclose(a, b, rtol=0, atol=1e-5)


def untouched(model: Hooked) -> bool:
    return not any(module._forward_hooks or "forward" in vars(module) for module in model.network.modules())


# Sites of one kind work alike, so one layer in the middle stands for the others.
OTHERS = ("enc.embed", "dec.embed", "dec.3", "enc.3", "dec.ln_final", "logits")
SITES = sorted((site, kind) for kind in KINDS for site in hooked(kind).sites if "2" in site or site in OTHERS)


@pytest.mark.slow_after(30)
@pytest.mark.parametrize(("site", "kind"), SITES)
def test_patched_with_itself_nothing_changes_and_with_another_run_it_equals_a_whole_pass(kind: str, site: str) -> None:
    model = hooked(kind)
    clean, cache = model.run_with_cache(CLEAN, [site])
    resumed = model.resume_from(site, CLEAN)
    assert equal(clean, model.run(CLEAN))
    assert equal(resumed(), clean)
    assert equal(resumed([Replace(site, None, cache[site])]), clean)
    logits, other = model.run_with_cache(OTHER, [site])
    for position in (None, 1):
        patch = [Interchange(site, position).with_source(other)]
        patched = model.run(CLEAN, patch)
        assert equal(resumed(patch), patched)
        if site.endswith(("pattern", ".z", ".result")):  # each head in turn
            heads = [replace(patch[0], head=head) for head in range(2)]
            assert equal(model.run(CLEAN, heads), patched)
            one = model.run_with_cache(CLEAN, site, heads[0])[1][site]  # (N, k, nh, ..)
            assert equal(one[:, :, 1], cache[site][:, :, 1])
            assert position is not None or equal(one[:, :, 0], other[site][:, :, 0])
        if position is None:
            assert not equal(patched, clean)
            assert site != residual_stream(model.sites)[-1] or equal(patched, logits)  # the whole stream is exchanged
    assert untouched(model)


def test_one_run_serves_several_sites_and_other_decoder_inputs() -> None:
    model, calls = hooked("transformer"), []
    sites = ["enc.1", "enc.2.resid_mid", "dec.1", "dec.2.resid_mid_cross"]
    hook = model.network.register_forward_hook(lambda *_: calls.append(1))
    resumed = model.resume_from_each(sites, CLEAN)
    assert len(calls) == 1
    for site in sites:
        steer = Steer(site, None, ONES.repeat(2))
        assert torch.equal(resumed[site](steer), model.run(CLEAN, steer))
    hook.remove()
    prompt = model.inputs(CLEAN)[0]
    other = model.inputs(OTHER)[1][:, :3]
    steer = Steer("dec.1", "r1", ONES.repeat(2))
    assert torch.equal(model.resume_from("enc.3", CLEAN)(steer, other), model.run((prompt, other), steer))


def test_positions_of_a_decoder_only_network_have_names_and_those_of_the_answer_numbers() -> None:
    model = hooked("nanogpt")
    _, other = model.run_with_cache(OTHER, ["dec.1"], include_prompt=True)
    assert other["dec.1"].shape == (64, 7 + 4, 16)
    by_name = model.run(CLEAN, [Replace("dec.1", "r2", other["dec.1"][:, 7 + 2])])
    assert torch.equal(by_name, model.run(CLEAN, [Replace("dec.1", 2, other["dec.1"][:, 7 + 2])]))
    all_of_prompt = [Replace("dec.1", name, other["dec.1"][:, i]) for i, name in enumerate(TASK.prompt_names)]
    all_of_answer = [Replace("dec.1", t, other["dec.1"][:, 7 + t]) for t in range(4)]
    assert equal(model.run(CLEAN, [*all_of_prompt, *all_of_answer]), model.run(OTHER))
    for position, accepted in ("r9", "r0, r1, r2, r3"), ("x", "a0, a1"), (-1, "0 or more"), (7, "4 positions"):
        with pytest.raises(UserError, match=f"position={position}: .*{accepted}"):
            model.run(CLEAN, [Replace("dec.1", position, ZEROS)])


@pytest.mark.parametrize("kind", [*KINDS, "transformer of squares", "nanogpt of squares"])
def test_a_position_of_a_truncated_run_is_the_same_position(kind: str) -> None:
    """A prefix of a square's answer may be as long as its prompt: 3 of 6 tokens."""
    task = Square(3) if kind.endswith("squares") else TASK
    model = hooked(kind.partition(" ")[0], task)
    prompt, answer_in = model.inputs(task.examples())
    _, other = model.run_with_cache(task.examples()[::-1], ["dec.2"])
    patch = [Interchange("dec.2", "r1").with_source(other)]
    whole = model.run(task.examples(), patch)
    for t in range(2, task.answer_length):
        assert equal(model.run((prompt, answer_in[:, :t]), patch)[:, 1], whole[:, 1])


def test_logits_are_those_of_the_answer_even_in_a_run_as_long_as_the_prompt() -> None:
    task = Square(3)
    model = hooked("nanogpt", task)
    prompt, answer_in = model.inputs(task.examples())
    steered = model.run((prompt, answer_in[:, :3]), Steer("logits", "r1", torch.ones(5)))
    assert equal((steered - model.run((prompt, answer_in[:, :3]))).sum((0, 2)), torch.tensor([0.0, 40, 0]))
    with pytest.raises(UserError, match="position=a1: expected one of the 3 positions of logits"):
        model.run((prompt, answer_in[:, :3]), Steer("logits", "a1", torch.ones(5)))


def test_hooks_of_the_user_run_once_in_a_resumed_run() -> None:
    model = hooked("nanogpt")
    model.network.blocks[1].register_forward_hook(lambda module, inputs, output: output + 1)
    for site in ("dec.1", "dec.2", "dec.3"):
        assert equal(model.resume_from(site, CLEAN)(), model.run(CLEAN))


def test_two_names_of_a_module_are_one_place_to_resume_from() -> None:
    model, steer = hooked("nanogpt"), Steer("dec.1", "r1", ONES.repeat(2))
    assert model.sites["dec.1"] is model.sites["dec.2.resid_pre"]
    assert equal(model.resume_from("dec.2.resid_pre", CLEAN)(steer), model.run(CLEAN, steer))


def test_a_site_that_may_own_other_positions_in_a_truncated_run_is_refused() -> None:
    prompt, answer_in = hooked("nanogpt").inputs(CLEAN)
    with pytest.raises(UserError, match=r"^site=slots: has 3 positions in a run of 2 of the 4 answer tokens; expected"):
        positions_in_run(hooked("nanogpt"), "slots", torch.zeros(64, 3, 8), (prompt, answer_in[:, :2]))


def test_interventions_compose_in_order_and_batches_and_order_of_examples_do_not_matter() -> None:
    model = hooked("transformer")
    assert equal(model.run(CLEAN[::-1]), model.run(CLEAN).flip(0))
    x, v = torch.randn(2, 64, 16)
    both: list[Intervention] = [Replace("dec.2", 1, x), Steer("dec.2", 1, v)]
    assert equal(model.run(CLEAN, both), model.run(CLEAN, [Replace("dec.2", 1, x + v)]))
    assert equal(model.run(CLEAN, both[::-1]), model.run(CLEAN, [Replace("dec.2", 1, x)]))
    assert equal(model.run(CLEAN, both, batch_size=10), model.run(CLEAN, both))
    assert equal(model.resume_from("dec.2", CLEAN, batch_size=10)(both), model.run(CLEAN, both))
    _, cache = model.run_with_cache(CLEAN, ["dec.2"], both, batch_size=10)
    assert equal(cache["dec.2"][:, 1], x + v)
    for_all, for_each = ([Replace("dec.2", 1, value)] for value in (v[0], v[0].expand(64, 16)))
    assert equal(model.run(CLEAN, for_all), model.run(CLEAN, for_each))
    with pytest.raises(UserError, match="does not fit"):
        model.run(CLEAN, [Replace("dec.2", 1, torch.randn(5))])


def test_an_interchange_within_a_subspace_leaves_the_rest() -> None:
    model = hooked("transformer")
    _, base = model.run_with_cache(CLEAN, ["dec.2"])
    _, other = model.run_with_cache(OTHER, ["dec.2"])
    for position, width in ((1, 16), (None, 4 * 16)):
        directions = torch.linalg.qr(torch.randn(width, 2))[0]
        one = Interchange("dec.2", position, Subspace(directions)).with_source(other)
        _, cache = model.run_with_cache(CLEAN, ["dec.2"], [one])
        pick = (lambda x: x.flatten(1)) if position is None else (lambda x: x[:, 1])
        got, before, source = (pick(c["dec.2"]) for c in (cache, base, other))
        assert equal(got @ directions, source @ directions)
        rest = torch.eye(width) - directions @ directions.T
        assert equal(got @ rest, before @ rest)


def test_gradients_reach_values_and_erasers_but_no_weight() -> None:
    model = hooked("transformer")
    value = torch.zeros(16, requires_grad=True)
    loss = model.resume_from("dec.1", CLEAN)([Steer("dec.1", 2, value)]).square().mean()
    loss.backward(inputs=[value])
    assert value.grad is not None
    assert value.grad.abs().sum() > 0
    assert all(p.grad is None for p in model.network.parameters())
    step = 1e-2
    moved = model.run(CLEAN, [Steer("dec.1", 2, step * value.grad)]).square().mean()
    assert float(moved - loss.detach()) == pytest.approx(step * float(value.grad.square().sum()), rel=0.1)
    direction = nn.functional.normalize(torch.randn(16, 1), dim=0).requires_grad_()
    for eraser in (Eraser(ZEROS, direction, direction), nn.Linear(16, 16)):
        assert model.run(CLEAN, Erase("dec.1", 2, eraser)).requires_grad


def in_order(*order: int) -> Hooked:
    """A network that runs the layers of its decoder in another order than that of their names, or twice."""
    network = hooked("transformer").network
    sites = network.sites()
    network.decoder = nn.ModuleList(network.decoder[i] for i in order)
    return Hooked(network, sites, task=TASK)


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 0, 1, 0)])
def test_a_resumed_run_equals_a_whole_one_whatever_the_order_of_layers(order: Sequence[int]) -> None:
    model = in_order(*order)
    _, other = model.run_with_cache(OTHER, ["dec.2"])
    patch = [Interchange("dec.2", 1).with_source(other)]
    assert not equal(model.run(CLEAN, patch), model.run(CLEAN))
    assert equal(model.resume_from("dec.2", CLEAN)(patch), model.run(CLEAN, patch))


class Shared:
    """A cache that blocks hand on, which PyTorch cannot look into."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []


class Recurring(nn.Module):
    """Three blocks that do more than return an output: with ``cache`` each adds to a cache and hands it on.

    With ``attribute`` the first block's output is read again after the last. With ``in_place`` outputs are not used.
    """

    class Block(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind, self.linear, self.output = kind, nn.Linear(8, 8), ZEROS

        def forward(self, x: Tensor, seen: Shared) -> tuple[Tensor, Shared]:
            y = self.output = x + self.linear(sum(seen.tensors, x)).tanh()
            seen.tensors += [x] if self.kind == "cache" else []
            return (x.copy_(y) if self.kind == "in_place" else y), seen

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.embed, self.blocks = kind, nn.Embedding(5, 8), nn.ModuleList(map(self.Block, [kind] * 3))

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        x, seen = self.embed(answer_in), Shared()
        for block in self.blocks:
            y, seen = block(x, seen)
            x = x if self.kind == "in_place" else y
        x = x + self.blocks[0].output if self.kind == "attribute" else x
        return x @ self.embed.weight.T


@pytest.mark.parametrize("kind", ["cache", "attribute", "in_place"])
def test_a_resumed_run_equals_a_whole_one_though_layers_do_more_than_return(kind: str) -> None:
    torch.manual_seed(0)
    network = Recurring(kind)
    model = Hooked(network, {f"dec.{i}": block for i, block in enumerate(network.blocks, 1)}, task=TASK)
    resumed, step = model.resume_from("dec.1", CLEAN), [Steer("dec.2", 1, torch.ones(8))]
    model.run(OTHER)
    for _ in range(2):
        assert equal(resumed(step), model.run(CLEAN, step))
    nn.init.constant_(network.embed.weight, torch.nan)  # no logit is finite, nor is this an error
    assert model.resume_from("dec.1", CLEAN)().isnan().all()


class Plain(nn.Module):
    """A network of another library: one argument, and a block that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 6)
        self.block = nn.GRU(6, 6, batch_first=True)
        self.head = nn.Linear(6, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.block(self.embed(tokens))[0])


def test_any_module_can_be_hooked() -> None:
    network = Plain()
    model = Hooked(network, sites={"h1": network.block})
    base, source = torch.randint(8, (2, 5, 4))
    _, cache = model.run_with_cache([source], ["h1"])
    assert cache["h1"].shape == (5, 4, 6)
    with pytest.warns(UserWarning, match=r"^site=h1: its output has 2 tensors; only the first is replaced$"):
        assert equal(model.run([base], [Interchange("h1", None).with_source(cache)]), network(source))
    patched = model.run([base], [Replace("h1", 2, cache["h1"])])
    assert equal(patched[:, 2], network(source)[:, 2])
    assert equal(patched[:, :2], network(base)[:, :2])
    sites = {"first": network.embed, "then": network.block, "last": network.head}  # none is a layer by its name
    model, step = Hooked(network, sites=sites), [Steer("then", 1, torch.ones(6))]
    assert equal(model.resume_from("first", [base])(step), model.run([base], step))
    with pytest.raises(UserError, match=r"has no sites\(\)"):
        Hooked(network)
    with pytest.raises(UserError, match="has no task"):
        model.predict([1], [2])
    assert model.answer_length is None


class Own(nn.Module):
    """An encoder-decoder under names of its own, whose block counts its calls and has a ``forward`` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 6)
        self.encoder, self.decoder, self.head, self.spare = (nn.Linear(6, size) for size in (6, 6, 5, 6))
        self.calls = 0
        self.encoder.forward = self.counted

    def counted(self, x: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.linear(x, self.encoder.weight, self.encoder.bias)

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        memory = self.encoder(self.embed(prompt)).mean(dim=1, keepdim=True)
        return self.head(self.decoder(self.embed(answer_in) + memory))


def test_own_network_has_named_positions_and_resumes_whatever_its_layers_are_called() -> None:
    network = Own()
    model = Hooked(network, {"encoder.0": network.encoder, "decoder.0": network.decoder}, task=TASK)
    _, other = model.run_with_cache(OTHER, "encoder.0")
    patched = model.run(CLEAN, Replace("encoder.0", "b1", other["encoder.0"]))
    assert equal(patched, model.run(CLEAN, [Replace("encoder.0", 5, other["encoder.0"][:, 5].numpy())]))
    assert not equal(patched, model.run(CLEAN))
    for site, position, held in ("encoder.0", "r1", "a0, a1"), ("decoder.0", "r9", "r0, r1, r2, r3"):
        with pytest.raises(UserError, match=rf"position={position}: expected one of .*{held}.* at {site}"):
            model.run(CLEAN, Replace(site, position, torch.zeros(6)))
    rows = pd.DataFrame(Patching([model], site="encoder.0", num_examples=8).rows())
    assert rows["position"].unique().tolist() == TASK.prompt_names
    resumed, network.calls = model.resume_from("decoder.0", CLEAN), 0
    step = Steer("decoder.0", None, torch.ones(6))
    assert equal(resumed(step), model.run(CLEAN, [step]))
    assert network.calls == 1  # of the whole run
    assert vars(network.encoder)["forward"] == network.counted
    with pytest.raises(UserError, match="an eraser of 6 dimensions does not fit activations of size 24"):
        model.run(CLEAN, Erase("decoder.0", None, leace(torch.randn(9, 6), torch.arange(9) % 2)))


def test_a_site_that_does_not_run_or_runs_twice_is_refused() -> None:
    network = Own()
    for model, site, said in (
        (Hooked(network, {"spare": network.spare}, task=TASK), "spare", "did not run"),
        (in_order(0, 1, 0, 2), "dec.1", "ran twice"),
    ):
        with pytest.raises(UserError, match=rf"^site={site}: {said} in this forward pass"):
            model.run(CLEAN, Replace(site, 0, torch.zeros(6 if site == "spare" else 16)))


def test_a_cache_with_the_prompt_has_the_same_positions_and_a_value_of_some_examples_is_refused() -> None:
    model = hooked("nanogpt")
    _, own = model.run_with_cache(OTHER, "dec.1")
    _, whole = model.run_with_cache(OTHER, "dec.1", include_prompt=True)
    for name in ("r1", "a1"):
        at = 7 + 1 if name == "r1" else 1
        expected = model.run(CLEAN, Replace("dec.1", name, whole["dec.1"][:, at]))
        assert equal(model.run(CLEAN, Replace("dec.1", name, whole["dec.1"])), expected)
    for name, other in (("r1", 1), (None, "all")):
        by_own = model.run(CLEAN, Replace("dec.1", name, own["dec.1"]))
        assert equal(by_own, model.run(CLEAN, Replace("dec.1", other, whole["dec.1"])))
    for position, value, problem in (
        ("a1", own["dec.1"], r"the answer's 4 positions: lacks the one to change; .*include_prompt=True"),
        (1, torch.zeros(10, 16), r"shape \(10, 16\) does not fit activations \(64, 16\)"),
    ):
        with pytest.raises(UserError, match=f"^Replace at dec.1: a value of {problem}"):
            model.run(CLEAN, Replace("dec.1", position, value), batch_size=10)


@pytest.mark.parametrize("position", [None, 1])
def test_a_cache_whose_positions_are_not_those_of_the_site_is_refused(position: int | None) -> None:
    for kind, site, received, accepted in (
        *(("nanogpt", "dec.1", 7, "4 or 11"), ("nanogpt", "dec.3", 5, "4")),
        *(("transformer", "dec.2", 7, "4"), ("transformer", "enc.2", 4, "7")),
    ):
        with pytest.raises(
            UserError, match=f"^Replace at {site}: a value of {received} positions: expected {accepted} at"
        ):
            hooked(kind).run(CLEAN, Replace(site, position, torch.zeros(64, received, 16)))


def test_sites_outside_the_network_or_without_axes_of_examples_and_positions_are_refused() -> None:
    network = Plain()
    with pytest.raises(UserError, match=r"^sites=block: expected \{name: submodule\}"):
        Hooked(network, sites="block")
    with pytest.raises(UserError, match=r"^sites: h: expected a submodule of Plain"):
        Hooked(network, sites={"h": Plain().block})
    scripted = nn.Sequential(torch.jit.trace(nn.Linear(6, 6), torch.zeros(5, 4, 6)))
    with pytest.raises(UserError, match=r"^sites: h: a module of torch\.jit takes no hooks"):
        Hooked(scripted, sites={"h": scripted[0]})
    tokens = torch.randint(8, (5, 4))
    network.block.register_forward_hook(lambda module, given, output: (output[0].transpose(0, 1), output[1]))
    network.head.register_forward_hook(lambda module, given, output: output[0])
    model = Hooked(network, sites={"block": network.block, "head": network.head})
    for site, shape in (("block", r"\(4, 5, 6\)"), ("head", r"\(5, 8\)")):
        with pytest.raises(UserError, match=rf"^site={site}: its output has the shape {shape}; expected 5 examples"):
            model.run_with_cache([tokens], [site])


def test_unknown_sites_are_refused_with_a_list_of_all_sites() -> None:
    model = hooked("transformer")
    for call in (
        *(lambda: model.run_with_cache(CLEAN, ["dec.9"]), lambda: model.resume_from("dec.9", CLEAN)),
        lambda: model.resume_from("dec.2", CLEAN)(Replace("dec.9", 0, ZEROS)),
    ):
        with pytest.raises(UserError, match=r"site=dec\.9: this model has enc\.1, .*dec\.3; in layers .*attn\.pattern"):
            call()
    theirs = {"blocks.2.hook_resid_post": "dec.3", "blocks.0.hook_mlp_out": "dec.1.mlp_out", "hook_embed": "dec.embed"}
    theirs |= {"transformer.h.1": "dec.2", "encoder.0.mlp.hook_post": "enc.1.mlp.post", "unembed": "logits"}
    for name, ours in theirs.items():
        with pytest.raises(UserError, match=rf"^site={re.escape(name)}: .*; did you mean {re.escape(ours)}\?$"):
            model.run(CLEAN, Replace(name, 0, ZEROS))
    for spent in ("dec.1", "dec.1.attn_out", "dec.embed"):
        with pytest.raises(UserError, match=rf"{re.escape(spent)}: runs before dec\.2"):
            model.resume_from("dec.2", CLEAN)([Replace(spent, 0, ZEROS)])


def test_tokens_of_any_integer_type_are_read() -> None:
    model = hooked("nanogpt")
    assert equal(model.run([x.to(torch.uint8) for x in model.inputs(CLEAN)]), model.run(CLEAN))


def test_bad_input_is_refused_in_one_line() -> None:
    model, both, few = (hooked("transformer") for _ in range(3))
    both.network.register_forward_hook(lambda module, given, output: (output, None))
    few.network.head = nn.Linear(16, 3)
    x = model.run_with_cache(CLEAN, "dec.2")[1]["dec.2"]
    two = Subspace(torch.eye(16)[:, :2])
    for call, message in (
        (lambda: model.accuracy(Add(3, prompt_order="plain").examples()), r"of another task; expected those of Add"),
        (lambda: model.run([x[:n] for n, x in enumerate(model.inputs(CLEAN), 1)]), r"inputs of \[1, 2\] examples"),
        (lambda: model.run(CLEAN, ["dec.1"]), r"^interventions: received 'dec.1'; expected an intervention, such as"),
        (lambda: model.run(CLEAN, Replace("dec.1", 0, None)), r"^Replace at dec\.1: value: received NoneType"),
        (lambda: model.run(CLEAN, Erase("dec.2", None, lambda x: x[:, 1:])), r"^Erase at dec\.2: .* \(64, 63\)"),
        (lambda: Interchange("dec.2", 0).with_source({"dec.1": x}), r"^Interchange at dec\.2: .* has dec\.1"),
        (lambda: model.accuracy(TASK.examples([], [])), r"received no examples; expected one or more"),
        (lambda: model.run([3, 5]), r"^test: received list; expected task\.examples"),
        (lambda: model.run(CLEAN, Steer("dec.2", 0, x, head=0)), r"head=0: expected None at a site without heads"),
        (lambda: model.run(CLEAN, Steer("dec.2.attn.z", 0, ZEROS[0], head=2)), r"head=2: expected one of 2 heads$"),
        (lambda: model.run(CLEAN, Interchange("dec.2", None, two, x)), r"^Interchange at dec\.2: Subspace.* does"),
        (lambda: both.run(CLEAN), r"^test: returned a tuple; expected logits"),
        (lambda: Erase("dec.1", None, "value"), "^eraser=value: expected a function of activations"),
        (lambda: leace({"dec.2": x}, CLEAN.answer), "^embeddings: received dict; expected a tensor"),
        (lambda: leace(torch.zeros(5), CLEAN.answer), r"^embeddings: received shape \(5,\); expected \(N, d\)"),
        (lambda: leace(x, CLEAN.answer[1:]), r"^concept: received shape \(63,\); expected \(64, k\)"),
        (lambda: leace(x / 0, CLEAN.answer), r"^embeddings: contains NaN"),
        (lambda: leace(x, CLEAN.answer)("x"), "^activations: received str; expected a tensor"),
        (lambda: flip_signs(x[:, 0], leace(x, CLEAN.answer)), "^flip_signs: received an eraser of 64 .* for .* 16"),
        (lambda: Subspace(x), r"^Subspace: received shape .*; expected columns \(d, r\)"),
        (lambda: model.run_with_cache(CLEAN, 3), "^site=3: this model has"),
        (lambda: model.run(model.inputs(CLEAN)[:1]), r"received \(64, \d+\); expected tokens \(N, \d\) and "),
        (lambda: model.run([y - 9 for y in model.inputs(CLEAN)]), "expected tokens from 0 to 4, as integers"),
        (lambda: model.run([y[:, :4] for y in model.inputs(CLEAN)]), r"received \(64, 4\), \(64, 4\); expected tokens"),
        (lambda: Hooked(model.network, {1: model.network.head}), "^sites={1: .*: expected {name: submodule}"),
        (lambda: Hooked(model.network, positions=["dec.1"]), "^positions: received list; expected Mapping"),
        (lambda: Steer("dec.1", np.array([1, 2]), x), r"^position=\[1 2\]: expected a number, a name such as r0"),
        (lambda: few.run(CLEAN), "^test: returned logits of 3 tokens; expected those of 5"),
    ):
        with pytest.raises(UserError, match=message):
            call()


class InPlace(nn.Module):
    """Adds the rectified output of a layer to that of another in place; reads later tokens if asked."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.embed, self.first, self.out = nn.Embedding(5, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 5)
        self.second, self.act, self.causal = nn.Linear(8, 8), nn.ReLU(inplace=True), causal

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        x, _ = self.first(self.embed(torch.cat([prompt, answer_in], dim=1)))
        x += self.act(self.second(x))
        x = x if self.causal else x + x.mean(1, keepdim=True)
        return self.out(x[:, -answer_in.shape[1] :])


def test_a_network_that_changes_outputs_in_place_is_read_and_resumed_as_it_runs() -> None:
    network = InPlace()
    model = Hooked(network, {"first": network.first, "second": network.second}, task=TASK)
    logits, cache = model.run_with_cache(CLEAN)
    resumed = model.resume_from("first", CLEAN)
    for again in (model.run(CLEAN, [Replace(site, None, cache[site])]) for site in cache):
        assert equal(again, logits)
    assert all(equal(resumed(), logits) for _ in range(3))
    later = InPlace(causal=False)
    blind = Hooked(later, {"first": later.first}, task=TASK)
    pairs = CounterfactualDataset.sample(CausalModel(TASK), vary="carry", keep="xor", n=8)
    for call in (
        *(partial(blind.greedy_tokens, CLEAN), partial(blind.accuracy, CLEAN)),
        partial(blind.predict, CLEAN, interventions=[Steer("first", 0, ZEROS)]),
        partial(interchange_accuracy, blind, pairs.causal_model, pairs, sites="all"),
        partial(probe, "patching", blind),
    ):
        with pytest.raises(UserError, match=r"^InPlace: its logits depend on later tokens of the answer; expected"):
            call()
    noisy = Hooked(network, {}, task=TASK)
    network.second.register_forward_hook(lambda module, inputs, x: x + torch.randn_like(x))
    noisy.require_causal()  # though it is random


def test_every_run_is_in_evaluation_mode() -> None:
    model = hooked("nanogpt")
    model.require_causal()
    for run in (model.run, partial(model.resume_from, "dec.1"), model.predict, model.greedy_tokens):
        model.network.train()  # whose dropout refuses to run
        run(CLEAN)
        assert not model.network.training


class ByHeart(nn.Module):
    """Knows the answers to some examples, and writes a 1 on their padding, as networks learn to."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.examples, self.vocab_size, self.site = task.sample(200), task.vocab_size, nn.Identity()

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        row = (prompt[:, None] == torch.as_tensor(self.examples.prompt)).all(-1).int().argmax(1)
        tokens = torch.as_tensor(self.examples.completion)[row][:, : answer_in.shape[1]]
        return self.site(nn.functional.one_hot(tokens.where(tokens != PAD, ONE), self.vocab_size).float())


@pytest.mark.parametrize("interventions", [(), [Steer("site", None, torch.zeros(1))]])
def test_predictions_of_short_operands_leave_padding_out_as_accuracy_does(interventions) -> None:
    task = Add(bits=4, min_bits=1)
    network = ByHeart(task)
    model, examples = Hooked(network, {"site": network.site}, task=task), network.examples
    assert (examples.completion == PAD).any()
    assert model.accuracy(examples, interventions) == 1
    assert (model.predict(examples, interventions=interventions) == examples.answer).all()
    assert (model.greedy_tokens(examples).numpy() == examples.completion).all()


@pytest.mark.parametrize("rows", [4, 7])  # as many examples as positions, and not
def test_a_value_of_two_dimensions_at_several_positions_is_refused(rows: int) -> None:
    model, value = hooked("transformer"), torch.randn(rows, 16)
    with pytest.raises(UserError, match=rf"^Steer at dec.2: .* several positions: expected \(1, {rows}, 16\)"):
        model.run(CLEAN[:rows], Steer("dec.2", None, value))
    each = model.run(CLEAN[:rows], Steer("dec.2", None, value[:, None]))  # the examples' axis is written out
    for i in range(rows):
        assert equal(each[i : i + 1], model.run(CLEAN[i : i + 1], Steer("dec.2", None, value[i])))


def test_held_out_examples_are_those_of_the_split() -> None:
    split = RandomSplit(fraction=0.25, seed=3)
    model = Hooked(hooked("nanogpt").network, task=TASK, provenance=Provenance(split))
    held_out = model.held_out()
    assert (held_out.operands == CLEAN.operands[split(CLEAN)]).all()
    assert len(held_out) == 16
    with pytest.raises(UserError, match=r"^test: its split is unknown"):
        hooked("nanogpt").held_out()
    drawn = Provenance(job=compose("train", ["task.bits=12", "data.examples=64"]))
    with pytest.raises(UserError, match=r"^NanoGPT: examples of its run are drawn"):
        Hooked(hooked("nanogpt").network, task=TASK, provenance=drawn).held_out()


class Pair(NamedTuple):
    hidden: Tensor
    extra: None


@pytest.mark.parametrize("kind", [Pair, lambda *parts: list(parts)])
def test_an_edited_output_is_of_the_kind_that_the_site_returns(kind) -> None:
    class Block(nn.Linear):
        def forward(self, x: Tensor) -> object:
            return kind(super().forward(x), None)

    class Reads(Plain):
        def forward(self, tokens: Tensor) -> Tensor:
            self.returned = self.block(self.embed(tokens))
            return self.head(self.returned[0])

    network = Reads()
    network.block = Block(6, 6)
    Hooked(network, {"block": network.block}).run([torch.zeros(1, 4, dtype=int)], Steer("block", 0, torch.ones(6)))
    assert type(network.returned) is type(kind(None, None))


def test_positions_of_a_site_may_be_declared() -> None:
    """Prompt and answer are equally long, so names other than enc. and dec. do not tell them apart."""
    task = Mul(bits=3, interleaved=True)
    network = Transformer(task.prompt_length, task.answer_length, d_model=8, num_heads=2, num_layers=1)
    model = Hooked(network, task=task)
    own = {"memory": model.sites["enc.1"], "mid": model.sites["dec.1"]}
    told = Hooked(network, own, task=task, positions={"memory": "prompt", "mid": "answer"})
    examples = task.examples()
    for site, same, name, other in ("memory", "enc.1", "a1", "r1"), ("mid", "dec.1", "r1", "a1"):
        assert torch.equal(told.run(examples, Steer(site, name, ONES)), model.run(examples, Steer(same, name, ONES)))
        with pytest.raises(UserError, match=f"position={other}: "):
            told.run(examples, Steer(site, other, ONES))
    with pytest.raises(UserError, match=r"^positions=middle: this model has memory, mid; did you mean mid\?$"):
        Hooked(network, own, task=task, positions={"middle": "answer"})
    with pytest.raises(UserError, match=r"^positions\['mid'\]=decoder: expected prompt or answer$"):
        Hooked(network, own, task=task, positions={"mid": "decoder"})


def test_interventions_change_a_compiled_network() -> None:
    model, step = hooked("nanogpt"), Steer("dec.2", 1, ZEROS + 1)
    before, after = model.run(CLEAN), model.run(CLEAN, step)
    model.network.compile(backend="eager")
    assert equal(model.run(CLEAN), before)
    assert equal(model.run(CLEAN, step), after)
    assert equal(Hooked(torch.compile(model.network), task=TASK).run(CLEAN, step), after)
