"""Steer the activations by delta units of the value. Does the answer become the value + delta?"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checks import require_integer
from ..config.causal_models import CausalModelSpec, build_causal_model
from ..digits import Array
from ..errors import bad_value
from ..interp.erasure import MIN_RELATIVE_DEVIATION, Whitened, leace, whiten
from ..interp.hooked import Hooked, finite_cache
from ..interp.interventions import Steer
from ..models.network import sequence_accuracy, shift_right
from ..plots.panels import Lines
from .probe import IN_FILE, Count, Natural, NetworkProbe, OneOrMore, as_list, select_sites

Method = Literal["slope", "leace", "centroids"]
NUM_FITTED = 4096  # examples that directions are fitted on
NUM_CONTROLS = 5  # random directions
DELTAS = (1, 2, 4, 8, 16, 32, 64)
METHOD_TITLES = {
    "slope": "Least-squares slope",
    "leace": "LEACE direction",
    "centroids": "Class centroids: from one value's mean to another's",
}
CONTROL_LABELS = {"no_intervention": "no intervention", "random": "random steps of the same length"}


class Dose(NetworkProbe):
    """Steer all positions of a site along the value (the answer as a number), and read the whole answer.

    In ``3 + 5`` at three bits, steering by 1 should give the answer ``1001``, 9. A network that stores one number
    follows every delta. A network that stores carries cannot follow, because a linear step triggers no carry.

    Directions are fitted on at most 4,096 examples: ``slope`` is ``Cov(x, S) / Var(S)``; ``leace`` is the same
    direction, with a step that changes a linear reading by delta; ``centroids`` is the step between the mean
    activations of both values. The prefix consists of the tokens of value + delta: greedy decoding gives that number
    if and only if each of its tokens is the most likely one after the tokens before it.

    A row has the share of ``n`` answers that become value + delta: ``followed`` after the step, ``no_intervention``
    without it, and ``random`` after steps of the same length in five random directions.
    """

    picture = Lines(
        *("followed", "delta", "site", "method"),
        title="does the answer follow when the value is steered?",
        xlabel="delta, units of the value",
        ylabel="answers that become value + delta",
        percent=True,
        reference_lines=dict.fromkeys(CONTROL_LABELS.values(), ""),
        size=(4.6, 4.2),
    )

    site: OneOrMore[str] = IN_FILE
    method: OneOrMore[Method] = IN_FILE
    delta: OneOrMore[int] | None = IN_FILE
    num_examples: Count = IN_FILE
    seed: Natural = IN_FILE
    causal_model: CausalModelSpec = IN_FILE

    def __post_init__(self) -> None:
        self.hypothesis = build_causal_model(self.task, self.causal_model, "probe.causal_model")
        if not self.hypothesis.answer_variable:
            accepted = f"a causal model of {self.task.name} with a variable that is the answer as a number"
            raise bad_value("probe.causal_model", self.causal_model, accepted)
        self.sites, self.methods = select_sites(self.models, self.site), as_list(self.method)
        largest = int(self.hypothesis.examples.answer.max())
        self.deltas = as_list([n for n in DELTAS if n <= largest] if self.delta is None else self.delta)
        for number in self.deltas:
            require_integer("probe.delta", number, 1, largest)

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        task, examples = self.task, self.hypothesis.examples
        fitted = np.random.default_rng(self.seed).choice(task.size, size=min(NUM_FITTED, task.size), replace=False)
        # Only values of fitted examples have a centroid. In a small task the largest value may have none.
        known_values = np.unique(examples.answer[fitted] if "centroids" in self.methods else examples.answer)
        example_of_value = np.full(examples.answer.max() + 1, -1)
        example_of_value[examples.answer] = np.arange(task.size)  # any example with that answer
        prompts, completions = model.inputs(examples)[0], model.target_tokens(examples)
        for site, cached in finite_cache(model, examples[fitted], self.sites).items():
            x, values = cached.flatten(1), torch.as_tensor(examples.answer[fitted], device=cached.device)
            whitened, means = whiten(x, MIN_RELATIVE_DEVIATION), centroids(x, values, len(example_of_value))
            units = {"slope": slope(whitened, values), "leace": leace_step(whitened, values)}
            for delta in self.deltas:
                base = self._draw_bases(delta, known_values)
                if not len(base):
                    continue
                size, sums = len(base), examples.answer[base]
                target = completions[example_of_value[sums + delta]]
                forward = model.resume_from(site, (prompts[base], shift_right(target)))
                no_intervention = sequence_accuracy(forward(), target)
                for method in self.methods:
                    linear = method != "centroids"
                    step = delta * units[method].expand(size, -1) if linear else means[sums + delta] - means[sums]
                    steps = [step, *(_random_step(step, self.seed + i) for i in range(NUM_CONTROLS))]
                    interventions = [Steer(site, None, step.view(-1, *cached.shape[1:])) for step in steps]
                    followed, *controls = (sequence_accuracy(forward([x]), target) for x in interventions)
                    row = {"site": site, "method": method, "delta": delta, "n": size, "followed": followed}
                    yield row | {"no_intervention": no_intervention, "random": float(np.mean(controls))}

    def _draw_bases(self, delta: int, known_values: Array) -> Array:
        """Row numbers of at most ``num_examples`` examples whose value is known before and after the step."""
        answers = self.hypothesis.examples.answer
        candidates = np.flatnonzero(np.isin(answers, known_values) & np.isin(answers + delta, known_values))
        size = min(self.num_examples, len(candidates))
        return np.random.default_rng(self.seed + delta).choice(candidates, size=size, replace=False)

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        controls = [rows.assign(site=name, followed=rows[column]) for column, name in CONTROL_LABELS.items()]
        with_controls = pd.concat([rows, *controls])
        return with_controls.assign(method=with_controls["method"].map(METHOD_TITLES))


def slope(x: Whitened, values: Tensor) -> Tensor:
    """The change (d,) of the activation per unit of the value, by least squares: ``Cov(x, s) / Var(s)``."""
    deviation = values.double() - values.double().mean()
    return x.axes @ (x.scale * (x.white.T @ deviation)) / deviation.square().sum()


def leace_step(x: Whitened, values: Tensor) -> Tensor:
    """A step (d,) along the direction that LEACE erases, after which a linear probe reads one unit more.

    It has the direction of `slope`, and is 1 / R^2 times as long, with the R^2 of a linear probe of the value; zeros
    if R^2 is 0.
    """
    eraser = leace(x, values[:, None])
    if not eraser.rank:  # the activations say nothing about the value
        return torch.zeros(len(eraser.left)).to(eraser.left)
    reading = x.white @ (x.scale * (x.axes.T @ eraser.right[:, 0]))  # (N,)
    deviation = values.double() - values.double().mean()
    value_per_reading = (reading * deviation).mean() / reading.square().mean()
    return eraser.left[:, 0] / (value_per_reading * (eraser.left[:, 0] @ eraser.right[:, 0]))


def centroids(x: Tensor, values: Tensor, count: int) -> Tensor:
    """The mean activation (S, d) of each value below ``count``, NaN without an example."""
    sums = torch.zeros(count, x.shape[1], dtype=torch.float64, device=x.device)
    return sums.index_add_(0, values, x.double()) / torch.bincount(values, minlength=count)[:, None]


def _random_step(step: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(step.shape[1], generator=generator, dtype=torch.float64).to(step)
    return step.norm(dim=1, keepdim=True) * random / random.norm()
