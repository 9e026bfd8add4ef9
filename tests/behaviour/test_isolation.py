"""Settings of the calling program change no result, and the library leaves them as they were."""

import contextlib
import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import hydra
import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

import arith_erd as ae
from tests.tiny import TINY

MODEL = ae.load_pretrained("add-nanogpt")
EXAMPLES = MODEL.task.sample(60, 0)
PAIRS = ae.CounterfactualDataset.sample(ae.CausalModel(MODEL.task), vary="carry", keep=["xor"], n=60, digit=3)
OVERRIDES = [override for override in TINY if not override.startswith(("task", "trainer.max"))]


@contextlib.contextmanager
def settings_of_a_notebook():
    """All that a first cell may set, in one mode of autograd."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    before = np.seterr(all="raise")
    try:
        with contextlib.ExitStack() as stack:
            contexts = [torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings(action="error")]
            for context in (*contexts, torch.device("meta"), hydra.initialize(version_base="1.2", config_path=None)):
                stack.enter_context(context)
            yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        np.seterr(**before)


def state() -> list[Any]:
    generators = [random.getstate(), np.random.get_state()[1].tolist(), torch.default_generator.get_state().tolist()]
    settings = [torch.get_default_dtype(), torch.get_float32_matmul_precision(), np.geterr(), [*warnings.filters]]
    modes = [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")]
    return [*generators, *settings, *modes, torch.get_default_device(), warnings.formatwarning, hydra.version.getbase()]


def results() -> dict[str, Any]:
    vectors = MODEL.run_with_cache(EXAMPLES, "dec.2")[1]["dec.2"][:, 3]
    eraser = ae.leace(vectors[:, :16], EXAMPLES.a % 2)
    answer = ae.probe("logit_lens", MODEL, num_examples=16)
    assert answer.figure().axes
    trained = ae.fit(ae.Add(bits=3), epochs=1, seeds=[1], overrides=OVERRIDES)[0]
    tensors = {
        "fit": next(trained.network.parameters()),
        "fit_das": ae.fit_das(MODEL, PAIRS.causal_model, PAIRS, "dec.2", "r3", steps=2).directions,
        "flip_signs": ae.flip_signs(vectors[:, :16], eraser).left,
        "run": MODEL.run(EXAMPLES, ae.Steer("dec.2", 3, eraser(vectors[:, :16]).repeat(1, 4))),
    }
    assert not any(tensor.is_inference() for tensor in tensors.values())
    right = MODEL.accuracy(EXAMPLES), *MODEL.predict(EXAMPLES).tolist()
    plain = {name: tensor.detach().tolist() for name, tensor in tensors.items()}
    return {**plain, "probe": answer.rows.to_csv(), "right": right, "compose": ae.compose().run.name}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return results()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_settings_of_the_program_change_no_result_and_stay(expected, mode):
    with settings_of_a_notebook(), mode():
        user = GlobalHydra.instance().hydra
        before = state()
        found = results()
        assert state() == before
        assert GlobalHydra.instance().hydra is user
    assert found == expected


@pytest.mark.slow
def test_threads_give_the_results_of_one(trained_pack, tmp_path):
    """Initial weights come from a global generator, interventions are hooks on one network, Hydra has one object."""

    def ask(number: int) -> Any:
        if number % 3 == 0:
            return ae.compose().run.name
        if number % 3 == 1:
            return next(ae.load_run(trained_pack.path, 5, epoch=0).network.parameters()).tolist()
        return MODEL.run(EXAMPLES[:8], ae.Steer("dec.2", 3, torch.full((64,), float(number)))).tolist()

    with ThreadPoolExecutor(6) as threads:
        assert [*threads.map(ask, range(24))] == [ask(number) for number in range(24)]
        fit = partial(ae.fit, ae.Add(bits=3), epochs=1, overrides=OVERRIDES)
        runs = [future.result()[0] for future in [threads.submit(fit, out=tmp_path / out) for out in "aab"]]
    weights = [next(model.network.parameters()).tolist() for model in runs]
    assert weights[0] == weights[1] == weights[2]


class Own(torch.nn.Module):
    """A network in double precision that makes a tensor of its own by the default."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 5).double()

    def forward(self, prompt, answer_in):
        return self.embed(answer_in) @ torch.eye(5)


def test_an_own_network_makes_tensors_like_its_parameters_and_is_differentiable():
    network = Own()
    model = ae.Hooked(network, {"h": network.embed}, task=ae.Add(bits=3))
    torch.set_default_dtype(torch.float64)
    try:
        examples = model.task.examples()
        value = torch.zeros(5, requires_grad=True)
        model.run(examples, ae.Steer("h", 1, value)).sum().backward()
        assert value.grad is not None
        assert model.accuracy() >= 0
        with torch.no_grad():
            assert not model.run(examples, ae.Steer("h", 1, value)).requires_grad
    finally:
        torch.set_default_dtype(torch.float32)
