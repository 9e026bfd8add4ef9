"""The explorer's forward pass in JavaScript equals the one in PyTorch, with the same weights."""

import copy
import json
import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arith_erd.catalog.loading import load_handcoded
from arith_erd.errors import UserError
from arith_erd.explorer import SOURCES, export_network, write_page
from arith_erd.interp.hooked import Hooked, Provenance
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.network import greedy_decode
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add, AddScratchpad, Mul
from tests.explorer import unpacked
from tests.unit.probes.small import untrained

PROGRAM = """
require('vm').runInThisContext(require('fs').readFileSync(process.argv[1], 'utf8'))
let text = ''
process.stdin.on('data', part => { text += part }).on('end', async () => {
  const { info, prompts, completions } = JSON.parse(text)
  const network = new { Transformer, NanoGPT }[info.kind](info, await unpack(info))
  const at = (site, x) => x
  // a wrong guess takes more passes, never another answer
  const guesses = completions.map((row, i) => (i < 8 ? row.map(() => 3) : row))
  const runs = prompts.map((prompt, i) => write(network, prompt, guesses[i], at))
  const logits = runs.map(({ logits, read }, i) => // a right answer has been read already
    [...(String(read) === String(completions[i]) ? logits
      : network.decode(network.encode(prompts[i], at), [1, ...completions[i].slice(0, -1)], at)).data])
  console.log(JSON.stringify({ logits, tokens: runs.map(({ tokens }) => tokens) }))
})
"""


def in_node(measured: dict[str, Any], examples: Any) -> tuple[np.ndarray, np.ndarray]:
    """Teacher-forced logits (N, m, V) and greedy tokens (N, m) of the network in a page."""
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    (info,) = json.loads(write_page([measured]).partition('id="data">')[2].partition("</script>")[0])["networks"]
    given = {"info": info, "prompts": examples.prompt.tolist(), "completions": examples.completion.tolist()}
    command = [node, "-e", PROGRAM, str(SOURCES / "network.js")]
    ran = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    return np.array(found["logits"]).reshape(*examples.completion.shape, -1), np.array(found["tokens"])


def agree(model: Hooked, examples: Any) -> dict[str, Any]:
    """Check a network's page against PyTorch, and return the page's data. Only wrong answers have to be decoded."""
    measured = export_network(model, num_examples=32)
    logits, tokens = in_node(measured, examples)
    rounded, _ = unpacked(model, measured)
    exact = Hooked(copy.deepcopy(rounded.network).double(), task=model.task)
    expected = exact.run(examples).numpy()  # in single precision PyTorch itself is off by 3e-3 in handcoded erd
    assert np.abs(logits - expected).max() <= 1e-3
    decoded = expected.argmax(-1)
    assert (logits.argmax(-1) == decoded).all()
    wrong = (decoded != examples.completion).any(1)
    if wrong.any():
        prompt = torch.as_tensor(examples.prompt[wrong])
        decoded[wrong] = greedy_decode(rounded.network, prompt, model.task.answer_length).numpy()
    assert (tokens == decoded).all()
    return measured


@pytest.mark.slow
def test_handcoded_network_answers_as_in_pytorch() -> None:
    model = load_handcoded("erd")
    erd = agree(model, model.task.examples(*np.random.default_rng(3).integers(0, 128, (2, 32))))
    carry = export_network(load_handcoded("prefix_carry"), 64)
    assert (erd["weight_bits"], carry["weight_bits"]) == (32, 16)  # the sum of erd needs more digits
    assert erd["right"] == carry["right"] == 1


OPTIONS = [{}, {"attention": False}, {"feed_forward": False}, {"positional_encoding": False}]
OPTIONS += [{"positions": "rope"}, {"positions": "coupled"}]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("kind", "options"), [*product([Transformer, NanoGPT], OPTIONS), (Transformer, {"encoder": False})], ids=str
)
def test_every_ablation_and_position_encoding_answers_as_in_pytorch(kind: type[Any], options: dict[str, Any]) -> None:
    task = Mul(2, base=3, completion_order="plain")
    agree(untrained(task, kind, 1, **options), task.examples())


def test_answer_with_a_scratchpad_is_in_the_page_and_has_no_directions() -> None:
    task = AddScratchpad(2)
    measured = agree(untrained(task, Transformer), task.examples())
    assert not [name for name in measured["shapes"] if name.startswith(("carry", "value"))]


def test_right_answers_are_counted_on_the_whole_of_a_small_table() -> None:
    model = untrained(Add(2), NanoGPT, seed=3)
    assert export_network(model)["right"] == model.accuracy() == 1 / 16


def test_worst_token_on_held_out_pairs_is_found() -> None:
    """Untrained, it answers no pair; without a split nothing is known to be held out."""
    model = untrained(Add(3), NanoGPT)
    assert export_network(model, 8)["missed"] is None
    model.provenance = Provenance(RandomSplit())
    missed = export_network(model, 8)["missed"]
    assert missed is not None
    assert missed["position"] in model.task.answer_names
    table = model.task.examples()
    assert missed["pair"] in table.operands[model.provenance.split(table)].tolist()


def test_what_the_page_cannot_run_is_refused_in_one_line() -> None:
    class Other(Transformer):
        pass

    with pytest.raises(UserError, match="is a Other; expected our Transformer or NanoGPT"):
        export_network(untrained(Add(3), Other))
    with pytest.raises(UserError, match="answers mul, 3 bits; expected the first one's task, add"):
        write_page([export_network(untrained(task, NanoGPT), 8) for task in (Add(3), Mul(3))])


def test_notebook_shows_the_whole_page_in_a_frame() -> None:
    shown = write_page([export_network(untrained(Add(3), NanoGPT))])
    html = shown._repr_html_()
    assert html.startswith("<iframe")
    assert "srcdoc=" in html
    assert "<script" not in html  # escaped: a notebook runs nothing outside the frame
    assert Path(SOURCES / "network.js").read_text() in shown
