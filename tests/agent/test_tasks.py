"""Each task for agents accepts its reference solution, and refuses a plausible wrong one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arith_erd as ae
from arith_erd.interp.hooked import Hooked
from tests.agent import tasks
from tests.agent.__main__ import main

Answer = dict[str, Any]


def train(epochs: int) -> Answer:
    overrides = {"data.batch_size": 32, "trainer.stop_at": 1, "trainer.accelerator": "cpu"}
    (model,) = ae.fit(ae.Add(bits=5), ae.NanoGPT, epochs=epochs, overrides=overrides)
    ae.save_pretrained(model, "trained")
    return {"network": "trained"}


def mean_difference(model: Hooked) -> torch.Tensor:
    """Mean activation of answers with r2 = 1, minus that of answers with r2 = 0."""
    examples = model.task.sample(512)
    x, is_one = model.run_with_cache(examples, "dec.3")[1]["dec.3"][:, 2], torch.tensor(examples.answer >> 2 & 1).bool()
    return x[is_one].mean(0) - x[~is_one].mean(0)


def random_vector(like: torch.Tensor) -> list[float]:
    vector = torch.randn(like.shape, generator=torch.Generator().manual_seed(0))
    return (vector * like.norm() / vector.norm()).tolist()


def loudest_head(model: Hooked) -> int:
    z = model.run_with_cache(model.task.sample(256), "dec.1.attn.z")[1]["dec.1.attn.z"]
    return int(z.norm(dim=-1).mean((0, 1)).argmax())


def carry_direction(model: Hooked) -> Answer:
    """The mean difference in the first layer between runs with r2 = 1 and r2 = 0 that differ in the carry."""
    pairs, site = tasks.carry_pairs(model.task, seed=0), tasks.layers(model)[0]
    runs = (pairs.base_examples, pairs.source_examples)
    base, source = (model.run_with_cache(run, site)[1][site][:, 2] for run in runs)
    sign = torch.tensor(runs[1].answer // 4 % 2 - runs[0].answer // 4 % 2)
    return {"site": site, "direction": ((source - base) * sign[:, None]).mean(0).tolist()}


def most_decodable(model: Hooked) -> str:
    examples = model.task.sample(256)
    values, cache = model.task.concepts(examples)["value"], model.run_with_cache(examples, tasks.layers(model))[1]
    scores = {site: ae.linear_probe(x, values).r2 for site, x in cache.items()}
    assert max(scores.values()) > 0.9  # so it is plausible
    return max(scores, key=scores.__getitem__)


def first_layer(model: Hooked) -> str:
    return next(site for site, share in tasks.patched_by_layer(model).items() if share >= 0.9)


def nearest_algorithm(model: Hooked, *without: str) -> Answer:
    return {"algorithm": tasks.followed_algorithms(model).drop([*without]).idxmax()}


SOLUTIONS = {  # the reference, and a plausible wrong answer
    "train": (lambda: train(100), lambda: train(1)),
    "patch": (lambda x: {"site": first_layer(x)}, lambda x: {"site": tasks.layers(x)[-1]}),
    "steer": (
        lambda x: {"vector": mean_difference(x).tolist()},
        lambda x: {"vector": random_vector(mean_difference(x))},
    ),
    # Seed 2 has the fewest right of those held out, but it did not learn those of training either.
    "seed": (lambda _: {"seed": 1}, lambda _: {"seed": 2}),
    "ablate": (lambda x: {"head": int(np.argmin(tasks.ablated_accuracies(x)))}, lambda x: {"head": loudest_head(x)}),
    "algorithm": (lambda _: {"algorithm": "prefix_carry"}, lambda x: nearest_algorithm(x, "prefix_carry")),
    "algorithm-2": (lambda _: {"algorithm": None}, nearest_algorithm),
    "carry": (carry_direction, lambda x: {"site": "dec.1", "direction": random_vector(mean_difference(x))}),
    "carry-2": (lambda _: {"site": None, "direction": None}, carry_direction),
    "erase": (lambda _: {"site": None}, lambda x: {"site": most_decodable(x)}),
}
LONG = ("train", "patch", "steer", "ablate", "carry")  # measurements of networks of seven bits


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in tasks.TASKS])
def test_verifier_accepts_the_reference_and_refuses_a_plausible_answer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = tasks.TASKS[name]
    inputs = [make() for make in task.inputs.values()]
    solutions = [*SOLUTIONS[name]]
    if name in ("algorithm", "carry"):  # null, the right answer to the same question about another network
        solutions.append(lambda _: {"algorithm": None, "site": None, "direction": None})
    for solve, expected in zip(solutions, (True, False, False), strict=False):
        answer = solve(*inputs)
        Path("answer.json").write_text(json.dumps(answer))
        right, measured = task.judge(tmp_path)
        assert right == expected, (answer, measured)
        assert "answer.json" not in measured  # it was measured


@pytest.mark.slow
def test_erasure_costs_accuracy_in_a_network_that_computes_with_the_sum() -> None:
    model = ae.load_handcoded("erd", 7)
    assert tasks.verify_erase({"site": "dec.6"}, model)[0]
    assert not tasks.verify_erase({"site": None}, model)[0]


def test_command_sets_a_task_up_and_judges_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new"
    assert main(["carry-2", str(folder)]) == 0
    assert "direction" in (folder / "task.md").read_text()
    pairs = ae.Add(bits=3).examples()
    memorised = ae.load_pretrained(folder / "network").predict(pairs) == ae.RandomOutput(bits=3).examples().answer
    assert memorised.all()
    answers = {'{"direction": null}': 0, '{"site": "dec.9", "direction": [1]}': 1, "{}": 1, "[": 1}
    for answer, status in answers.items():
        (folder / "answer.json").write_text(answer)
        assert main(["carry-2", str(folder), "--verify"]) == status
    with pytest.raises(SystemExit):
        main(["carry-2", str(folder)])
    printed = capsys.readouterr()
    assert "right: the best interchange" in printed.out
    assert "wrong: answer.json: site=dec.9" in printed.out
    assert "expected a new or empty folder" in printed.err
