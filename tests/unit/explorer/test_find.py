"""The page *Find the algorithm*: only behaviour tells its six networks apart."""

import base64
import json
from functools import partial

import numpy as np
import pytest
import torch

from arith_erd.explorer import export_network
from arith_erd.explorer.find import KINDS, PROGRAMS, TASK, find_page
from arith_erd.interp.hooked import Hooked
from arith_erd.models.handcoded.compiler import compile_program


def by_hand(name: str) -> Hooked:
    rng = np.random.default_rng(0)
    return Hooked(compile_program(PROGRAMS[name](rng), rng, TASK.bits).network, task=TASK)


def test_page_has_six_networks_of_one_size_without_names(monkeypatch):
    monkeypatch.setattr("arith_erd.explorer.find.export_network", partial(export_network, num_examples=8))
    page = find_page(3, notes={"erd": "A note."})
    networks = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["networks"]
    answers = [json.loads(base64.b64decode(network["answer"])) for network in networks]
    assert {answer["name"] for answer in answers} == set(KINDS)
    plain = [{key: x for key, x in network.items() if key not in ("numbers", "answer")} for network in networks]
    assert all(network == plain[0] for network in plain)
    assert not any(name in page for name in KINDS if "_" in name)
    assert len(page) < 5e6
    by_name = {answer["name"]: (answer["says"], answer["note"]) for answer in answers}
    assert by_name["erd"] == ("Forms the whole sum as one number and reads the bits off it.", "A note.")
    assert by_name["table"][0].startswith("Looks the answer up")
    assert by_name["untrained"] == ("Has its initial weights.", "")


@pytest.mark.parametrize("name", [name for name in KINDS if name != "untrained"])
def test_networks_of_four_bits_answer_every_pair(name):
    assert by_hand(name).accuracy() == 1


def test_table_has_a_hidden_unit_for_each_pair_and_no_other_answers():
    """Without its unit a pair has no answer, and the answers to all others stay: nothing is shared between pairs."""
    model, examples = by_hand("table"), TASK.examples()
    _, cache = model.run_with_cache(examples, "dec.*.mlp.post")
    (site,) = (site for site, x in cache.items() if ((x > 0.1).sum(-1) == 1).all() and x.amax(-1).min() > 0)
    units = cache[site].argmax(-1)  # (256, m)
    assert (units == units[:, :1]).all()
    assert len(units[:, 0].unique()) == len(examples) == 256
    unit = units[37, 0]
    layer = model.network.decoder[int(site.split(".")[1]) - 1].feed_forward.sublayer
    with torch.no_grad():
        layer.contract.weight[:, unit] = 0
    wrong = (model.run(examples).argmax(-1).numpy() != examples.completion).any(1)
    assert np.flatnonzero(wrong).tolist() == [37]
