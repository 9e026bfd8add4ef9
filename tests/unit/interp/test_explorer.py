"""The explorer's forward pass in JavaScript equals the one in PyTorch, with the same weights."""

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.explorer.measure import Measured, measure
from arith_erd.interp.explorer.page import SOURCES, explorer_page, write_page
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.loading import load_pretrained, load_references
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.decoding import greedy
from arith_erd.tasks import Add, Mul, Task

PROGRAM = """
const { forward, write, unpack, Transformer, NanoGPT } = require(process.argv[1])
let text = ''
process.stdin.on('data', part => { text += part }).on('end', async () => {
  const { info, prompts, completions } = JSON.parse(text)
  const network = new { Transformer, NanoGPT }[info.kind](info, await unpack(info.weights))
  const at = (site, x) => x
  // a wrong guess takes more passes, never another answer
  const guesses = completions.map((row, i) => (i < 8 ? row.map(() => 3) : row))
  const runs = prompts.map((prompt, i) => write(network, prompt, guesses[i], at))
  const logits = runs.map(({ logits, read }, i) => // a right answer has been read already
    [...(String(read) === String(completions[i]) ? logits : forward(network, prompts[i], completions[i], at)).data])
  console.log(JSON.stringify({ logits, tokens: runs.map(({ tokens }) => tokens) }))
})
"""


def data_of(page: str) -> Any:
    """The JSON inside a page."""
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def in_node(measured: Measured, examples: Any) -> tuple[np.ndarray, np.ndarray]:
    """Teacher-forced logits (N, m, V) and greedy tokens (N, m)."""
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    (info,) = data_of(write_page([measured]))["networks"]
    given = {"info": info, "prompts": examples.prompt.tolist(), "completions": examples.completion.tolist()}
    command = [node, "-e", PROGRAM, str(SOURCES / "network.js")]
    ran = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    return np.array(found["logits"]).reshape(*examples.completion.shape, -1), np.array(found["tokens"])


def agrees(model: Hooked, examples: Any) -> None:
    measured = measure(model, pairs=32, tested=4)
    logits, tokens = in_node(measured, examples)
    exact = Hooked(copy.deepcopy(measured.model.network).double(), task=model.task)
    expected = exact.run(examples)  # in single precision PyTorch itself is off by 3e-3 in the reference erd
    assert np.abs(logits - expected.numpy()).max() <= 1e-3
    assert (logits.argmax(-1) == expected.argmax(-1).numpy()).all()
    decoded = greedy(measured.model.network, torch.as_tensor(examples.prompt), model.task.width)
    assert (tokens == decoded.numpy()).all()


def untrained(kind: type[Any], task: Task, **options: Any) -> Hooked:
    torch.manual_seed(1)
    size = {"d_model": 16, "num_heads": 2, "num_layers": 2, "vocab_size": task.vocab_size}
    return Hooked(kind(task.prompt_length, task.width, **size | options), task=task, name=kind.__name__)


@pytest.mark.parametrize(("name", "count"), [("add-transformer", 512), ("add-nanogpt", 512), ("mul-nanogpt", 64)])
def test_trained_network_answers_as_in_pytorch(name: str, count: int) -> None:
    model = load_pretrained(name)
    agrees(model, model.task.examples(*np.random.default_rng(3).integers(0, 128, (2, count))))


@pytest.mark.parametrize("name", ["erd", "prefix_carry"])
def test_reference_answers_as_in_pytorch(name: str) -> None:
    (model,) = load_references(name, [0], Add(7))
    agrees(model, model.task.examples(*np.random.default_rng(3).integers(0, 128, (2, 64))))


@pytest.mark.slow
@pytest.mark.skipif("ALL_PAIRS" not in os.environ, reason="takes ten minutes a network; set ALL_PAIRS")
@pytest.mark.parametrize("name", ["add-transformer", "add-nanogpt"])
def test_trained_network_answers_every_pair_as_in_pytorch(name: str) -> None:
    model = load_pretrained(name)
    for a in np.split(np.arange(128), 16):
        agrees(model, model.task.examples(np.repeat(a, 128), np.tile(np.arange(128), len(a))))


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize("options", [{}, {"attention": False}, {"feed_forward": False}, {"positional_encoding": False}])
def test_every_task_and_ablation_answers_as_in_pytorch(kind: type[Any], options: dict[str, bool]) -> None:
    model = untrained(kind, Mul(2, base=3, completion_order="plain"), **options)
    agrees(model, model.task.examples())


def test_transformer_without_encoder_answers_as_in_pytorch() -> None:
    model = untrained(Transformer, Add(3), encoder=False)
    agrees(model, model.task.examples())


def test_error_function_is_good_to_1e_7() -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    x = np.linspace(-6, 6, 2001)
    script = f"console.log(JSON.stringify({x.tolist()}.map(require(process.argv[1]).erf)))"
    ran = subprocess.run([node, "-e", script, str(SOURCES / "network.js")], capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(ran.stdout), torch.erf(torch.from_numpy(x)).numpy(), atol=1e-9)


def test_effects_tell_references_apart_and_their_answers_survive_rounding() -> None:
    erd, carry = (measure(load_references(name, [0], Add(7))[0], 64, 16) for name in ("erd", "prefix_carry"))
    assert (erd.bits, carry.bits) == (32, 16)  # the sum of erd needs more digits
    examples = Add(7).examples(*np.random.default_rng(5).integers(0, 128, (2, 64)))
    assert erd.model.accuracy(examples) == carry.model.accuracy(examples) == 1

    def changed(measured: Measured, intervention: str) -> list[float]:
        return [effect.changed for effect in measured.effects if effect.intervention == intervention]

    assert max(changed(erd, "flip")) == 0  # it does not read its prefix
    assert min(changed(carry, "flip")) > 0.2
    assert max(changed(erd, "carry")) == 0  # it holds no carry
    assert max(changed(carry, "carry")) == 1
    assert max(changed(erd, "tokens") + changed(carry, "tokens")) == 0  # neither encoder mixes positions


def test_what_the_page_cannot_run_is_refused_in_one_line() -> None:
    class Other(Transformer):
        pass

    with pytest.raises(UserError, match="is a Other; expected a Transformer or a NanoGPT"):
        explorer_page([untrained(Other, Add(3))])
    with pytest.raises(UserError, match="answers mul, 3 bits; expected the first one's task, add"):
        explorer_page([untrained(NanoGPT, Add(3)), untrained(NanoGPT, Mul(3))], pairs=8)


def test_notebook_shows_the_page_in_a_frame_that_contains_it_whole() -> None:
    shown = untrained(NanoGPT, Add(3)).show()
    html = shown._repr_html_()
    assert html.startswith("<iframe")
    assert "srcdoc=" in html
    assert "<script" not in html  # escaped: a notebook runs nothing outside the frame
    assert Path(SOURCES / "network.js").read_text() in shown.html
