"""Ten small tasks for coding agents: what the agent is told, the networks that it gets, and a verifier that measures.

A verifier makes the networks anew and runs them with ``answer.json``, so changed inputs help nobody. Three networks run
nothing: two are untrained, one was trained on random answers. There the right answer is null.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy

import arith_erd as ae
from arith_erd.bundled import RESULTS
from arith_erd.digits import ZERO
from arith_erd.errors import UserError, first_line
from arith_erd.interp.algorithms import ALGORITHMS, PREFIX
from arith_erd.interp.hooked import Hooked, Provenance
from arith_erd.models.network import initialise, shift_right

Verdict = tuple[bool, str]
"""Whether the answer is right, and what was measured."""
INTRODUCTION = """\
`import arith_erd as ae` works here, and `ae.load_pretrained("network")` loads the folder `network`. Its files say which
shape the network has and how accurate it is, not how its weights were made. Write your answer to `answer.json` in this
folder, in the form shown. If nothing fits the question, give null as the value.

"""


@dataclass(frozen=True)
class Task:
    """``inputs`` makes the network or run of each folder. ``verify`` takes the answer and these networks and runs."""

    text: str
    verify: Callable[..., Verdict]
    inputs: Mapping[str, Callable[[], Hooked | Path]]

    def judge(self, folder: Path) -> Verdict:
        """Verify ``answer.json`` in a folder; an answer that cannot be read or run is wrong."""
        inputs = [make() for make in self.inputs.values()]
        try:
            answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
            with chdir(folder):  # an answer may name a folder
                return self.verify(answer, *inputs)
        except (UserError, OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
            return False, f"answer.json: {first_line(error)}"


def blind(network: ae.Network, job: Any) -> Hooked:
    """A network that can be saved, and whose name does not tell where it comes from."""
    return Hooked(network, task=job.task, name="network", provenance=Provenance(job.split, job.network, job=job))


def written_by_hand() -> Hooked:
    return blind(ae.load_handcoded("prefix_carry", 7).network, ae.compose("train"))


def untrained(*overrides: str) -> Hooked:
    job = ae.compose("train", overrides)
    return blind(initialise(job.network, 7), job)


@cache
def trained_on_random_answers() -> Hooked:
    model = untrained("task.bits=3", "model=mlp", "model.net.dropout=0")
    prompt, _ = model.inputs(model.task.examples())
    target = torch.as_tensor(ae.RandomOutput(bits=3).examples().completion)
    optimizer = torch.optim.Adam(model.network.parameters(), lr=0.003)
    for _ in range(200):
        loss = cross_entropy(model.network(prompt, shift_right(target)).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def layers(model: Hooked) -> list[str]:
    return [site for site in model.sites if re.fullmatch(r"dec\.\d+", site)]


def patched_by_layer(model: Hooked) -> pd.Series:
    """The share of corrupted runs whose r4 becomes that of the clean run."""
    a, b = np.nonzero(np.add.outer(range(16), range(16)) < 16)
    clean, corrupted = model.task.examples(a, b), model.task.examples(a + 16, b)
    cache = model.run_with_cache(clean, layers(model))[1]
    tokens = {site: model.run(corrupted, ae.Replace(site, "r4", x)).argmax(-1).numpy() for site, x in cache.items()}
    return pd.Series({site: (x == clean.completion)[:, 4].mean() for site, x in tokens.items()})


def ablated_accuracies(model: Hooked) -> list[float]:
    """Accuracy after a mean ablation of each head of layer 1."""
    examples, site = model.task.sample(64, seed=1), "dec.1.attn.z"
    mean = model.run_with_cache(examples, site)[1][site].mean(0, keepdim=True)
    return [model.accuracy(examples, ae.Replace(site, None, mean, head=head)) for head in range(mean.shape[2])]


def followed_algorithms(model: Hooked) -> pd.Series:
    """How often the next bit after another sum's prefix is that of each algorithm, where algorithms differ."""
    data = ae.CounterfactualDataset.sample(ae.CausalModel(model.task), n=128, seed=1)
    tokens = model.run((model.inputs(data.base_examples)[0], model.inputs(data.source_examples)[1])).argmax(-1).numpy()
    causal_models = {name: algorithm.causal_model(model.task) for name, algorithm in ALGORITHMS.items()}
    predicted = {name: replace(data, causal_model=one).expected(PREFIX) for name, one in causal_models.items()}
    differ = np.ptp([*predicted.values()], axis=0) > 0
    return pd.Series({name: (tokens == model.task.to_tokens(x))[differ].mean() for name, x in predicted.items()})


def carry_pairs(task: ae.Task, seed: int) -> ae.CounterfactualDataset:
    """Only the carry into bit 2 decides about r2."""
    return ae.CounterfactualDataset.sample(ae.CausalModel(task), vary="carry", keep="xor", n=32, digit=2, seed=seed)


def verify_train(answer: Any) -> Verdict:
    model = ae.load_pretrained(answer["network"])
    share = model.accuracy() if model.task.same_as(ae.Add(bits=5)) else 0.0
    return share >= 0.99, f"{share:.1%} of the answers to 5-bit addition are right"


def verify_patch(answer: Any, model: Hooked) -> Verdict:
    shares = patched_by_layer(model)
    return answer["site"] == shares.ge(0.9).idxmax(), f"r4 of the clean run: {shares.round(2).to_dict()}"


def verify_steer(answer: Any, model: Hooked) -> Verdict:
    examples = model.task.sample(256, seed=1)
    steer = ae.Steer("dec.3", "r2", torch.tensor(answer["vector"], dtype=torch.float))
    tokens, right = model.run(examples, steer).argmax(-1).numpy(), examples.completion
    is_set, kept = (tokens[:, 2] == ZERO + 1).mean(), np.delete(tokens == right, 2, axis=1).all(axis=1).mean()
    return min(is_set, kept) >= 0.95, f"r2 is 1 in {is_set:.0%}; all other bits are right in {kept:.0%}"


def verify_seed(answer: Any, run: Path) -> Verdict:
    table = pd.read_csv(run / "metrics.csv").sort_values("epoch").groupby("seed").last()
    failed = table.index[(table["train_seq_acc"] >= 0.99) & (table["val_seq_acc"] < 0.95)]
    return answer["seed"] in failed, f"right in training only: {[*failed]}"


def verify_ablate(answer: Any, model: Hooked) -> Verdict:
    after = ablated_accuracies(model)
    return after[answer["head"]] == min(after), f"accuracy without each head: {np.round(after, 2).tolist()}"


def verify_algorithm(answer: Any, model: Hooked) -> Verdict:
    shares = followed_algorithms(model)
    fitting = [*shares.index[shares >= 0.95]] or [None]
    return answer["algorithm"] in fitting, f"share of bits that follow: {shares.round(2).to_dict()}"


def verify_carry(answer: Any, model: Hooked) -> Verdict:
    """The direction is tested; for null, whole activations are, at every layer and position."""
    pairs, adder = carry_pairs(model.task, seed=1), ae.CausalModel(model.task)
    if answer["direction"] is None:
        best = ae.interchange_accuracy(model, adder, pairs, sites="all", variable="carry")["accuracy"].max()
        return best < 0.9, f"the best interchange of a whole activation: {best:.2f}"
    column = torch.tensor(answer["direction"], dtype=torch.float)[:, None]
    direction = ae.Interchange(answer["site"], "r2", ae.Subspace(column / column.norm()))
    share = ae.interchange_accuracy(model, adder, pairs, direction)["accuracy"].item()
    return share >= 0.95, f"interchange accuracy {share:.2f}"


def verify_erase(answer: Any, model: Hooked) -> Verdict:
    """Accuracy lost to the erasure of the sum, beyond what the control loses."""
    examples, costs = model.task.sample(256, seed=1), {}
    for site, x in model.run_with_cache(examples, layers(model))[1].items():
        eraser = ae.leace(x, model.task.concepts(examples)["value"])
        changes = (ae.flip_signs(x, eraser), eraser)
        control, erased = (model.accuracy(examples, ae.Erase(site, None, change)) for change in changes)
        costs[site] = round(control - erased, 2)
    using = [site for site, cost in costs.items() if cost >= 0.1] or [None]
    return answer["site"] in using, f"accuracy lost to the erasure: {costs}"


TRAIN = """Train a network of any kind to add two numbers of 5 bits (`ae.Add(bits=5)`): at least 99% of all 1,024
answers must be right. Save it here with `ae.save_pretrained`, and name its folder: {"network": "my-network"}"""
PATCH = """`network` adds numbers of 7 bits. Clean runs are all sums a + b < 16, and corrupted ones (a + 16) + b. Patch
the clean run's output of one decoder layer, at position r4, into the corrupted run. Which is the first layer after
which r4 is the clean run's in at least 90% of these sums? {"site": "dec.6"}"""
STEER = """`network` adds numbers of 7 bits. Find a vector that, added to the output of `dec.3` at position r2, makes r2
a 1 in at least 95% of random sums. All other answer bits must stay right in 95%. Use teacher forcing.
{"vector": [64 numbers]}"""
SEED = """`run` is the folder of a run with ten seeds, without its weights. One seed memorised: at the last epoch at
least 99% of the training sequences are right, but fewer than 95% of those held out. Which? {"seed": 0}"""
ABLATE = """`network` adds numbers of 7 bits. Ablate one head of `dec.1.attn.z`, with its mean over sums at each answer
position. Which head costs the largest share of right answers under teacher forcing? Heads count from 0. {"head": 0}"""
ALGORITHM = f"""`network` has the shape of one that adds numbers of 7 bits. Does it run one of these algorithms:
{", ".join(ALGORITHMS)} (`arith_erd.interp.algorithms` says what they compute)? It does if at least 95% of its next
bits follow the algorithm after prefixes of other sums, where algorithms differ. {{"algorithm": "erd"}}"""
CARRY = """`network` has the shape of one that adds. Test the hypothesis that one direction of a decoder layer's output
at position r2 carries the carry into bit 2: an interchange of it alone (`ae.interchange_accuracy`), on pairs with equal
a ^ b at bit 2 and other carries into it, has an accuracy of at least 95%. {"site": "dec.1", "direction": [numbers]}
The direction is null if even whole activations of a layer, at any one position or at all, reach less than 90%."""
ERASE = """`network` has the shape of one that adds numbers of 4 bits. In which decoder layer do its answers depend on
the value of the sum? They do if LEACE of it (`ae.leace`), at all positions, costs at least 10 points more accuracy than
its control (`ae.flip_signs`). Name one such layer: {"site": "dec.1"}"""
RUN = RESULTS / "mini" / "runs" / "add-vs_v-nanogpt-none-bits5-d32-heads4-layers3-batch32-ep100-seed0-9-0ca2ef29"
SMALL = ("task.bits=4", "model=nanogpt", "model.net.d_model=16", "model.net.num_layers=3")
TRANSFORMER, NANOGPT = (partial(ae.load_pretrained, name) for name in ("add-transformer", "add-nanogpt"))
TASKS = {
    "train": Task(TRAIN, verify_train, {}),
    "patch": Task(PATCH, verify_patch, {"network": TRANSFORMER}),
    "steer": Task(STEER, verify_steer, {"network": NANOGPT}),
    "seed": Task(SEED, verify_seed, {"run": lambda: RUN}),
    "ablate": Task(ABLATE, verify_ablate, {"network": NANOGPT}),
    "algorithm": Task(ALGORITHM, verify_algorithm, {"network": written_by_hand}),
    "algorithm-2": Task(ALGORITHM, verify_algorithm, {"network": untrained}),
    "carry": Task(CARRY, verify_carry, {"network": NANOGPT}),
    "carry-2": Task(CARRY, verify_carry, {"network": trained_on_random_answers}),
    "erase": Task(ERASE, verify_erase, {"network": partial(untrained, *SMALL)}),
}
