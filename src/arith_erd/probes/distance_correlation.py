"""Do distances between embeddings follow the tokens or the value? (paper, section 4.5 and figure 4)"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..interp.distances import Floats, absolute, euclidean, hamming, pearson, spearman
from ..interp.hooked import Hooked
from ..interp.sites import layers
from ..models.decoding import answers, shift_right
from ..models.weights import initialise
from ..plots.correlations import COMPARED, UNTRAINED, draw_correlations
from ..plots.course import Course
from ..tasks import Examples, Task
from .probe import Probe

METHODS = {"pearson": pearson, "spearman": spearman}
Key = tuple[str, int, str, str]  # stack, layer, level, space


def outer_distances(examples: Examples) -> dict[tuple[str, str], Floats]:
    """Distances (D,) by level and space; at the input ``(A, A)`` the value is A."""
    found = [hamming(examples.prompt), absolute(examples.a), hamming(examples.completion), absolute(examples.answer)]
    return dict(zip(COMPARED, found, strict=True))


def site_distances(model: Hooked, inputs: Sequence[Tensor]) -> dict[str, Floats]:
    """Euclidean distances (D,) between embeddings, all positions of a site together, at the output of every layer."""
    _, cache = model.run_with_cache(inputs, layers(model.sites))
    return {site: euclidean(x.flatten(1).cpu().numpy()) for site, x in cache.items()}


def own_answers(model: Hooked, examples: Examples) -> tuple[Tensor, Tensor]:
    """The prompts (N, P), and the network's own greedy answers as the decoder's input (N, m)."""
    prompt, completion = (torch.as_tensor(x, device=model.device) for x in (examples.prompt, examples.completion))
    return prompt, shift_right(answers(model.network, prompt, completion))


def digit_distances(task: Task, examples: Examples) -> dict[str, Floats]:
    """Euclidean distances (D,) between all operands' digits, and between the digits scaled by their place value."""
    digits = task.operand_digits(examples.operands)  # (N, k * bits)
    scaled = digits * np.tile(float(task.base) ** np.arange(task.bits), task.operands)
    return {f"operand {task.digits}": euclidean(digits), f"scaled {task.digits}": euclidean(scaled)}


def fresh(model: Hooked) -> Hooked | None:
    return None if model.untrained is None else Hooked(initialise(model.untrained, model.seed).to(model.device))


class DistanceCorrelation(Probe):
    """Correlate distances between embeddings, at every site, with distances between inputs and between outputs.

    The examples are the pairs ``(A, A)``, 128 at seven bits: 8,128 distances; of three operands, ``(A, A, A)``. At
    three bits the token distance of 3 and 5 at the input is 4, from ``110+110`` to ``101+101``, and their value
    distance is 2; at the output of addition they are 2 and 4, from ``0110`` (6) to ``0101`` (10). Decoder sites are
    read with the model's own greedy answer as input, right or wrong.

    A row is a correlation, NaN where all distances of a kind are equal. ``stack`` and ``layer`` name the site;
    ``level`` and ``space`` name the distances to which it is compared. Rows with ``stack`` input and output, layer 0,
    compare token distances with value distances: the paper's yellow cells.
    """

    columns = ("seed", "stack", "layer", "level", "space", "method", "correlation")
    units: ClassVar[dict[str, str]] = {"correlation": "correlation"}
    across = ("level", "space")

    def __init__(self, subjects: Sequence[Hooked]) -> None:
        self.subjects = subjects

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            task = subject.task
            examples = task.examples(*[np.arange(task.limit)] * task.operands)
            outside = np.stack(list(outer_distances(examples).values()))  # (4, D)
            inside = self._inside(subject, examples)
            for method, correlate in METHODS.items():
                themselves = correlate(outside, outside)  # (4, 4)
                of_sites = correlate(np.stack(list(inside.values())), outside)  # (S, 4)
                table: dict[Key, float] = {("input", 0, "in", "value"): themselves[0, 1]}
                for (stack, layer), of_site in zip(inside, of_sites, strict=True):
                    table |= {(stack, layer, *to): r for to, r in zip(COMPARED, of_site, strict=True)}
                table["output", 0, "out", "value"] = themselves[2, 3]
                for key, correlation in table.items():
                    yield self.row(subject.seed, *key, method, float(correlation))

    def _inside(self, model: Hooked, examples: Examples) -> dict[tuple[str, int], Floats]:
        inputs, untrained = own_answers(model, examples), fresh(model)
        found = {("", site): x for site, x in site_distances(model, inputs).items()}
        if untrained is not None:
            found |= {(UNTRAINED, site): x for site, x in site_distances(untrained, inputs).items()}
        placed = {(prefix + site.split(".")[0], int(site.split(".")[1])): x for (prefix, site), x in found.items()}
        return placed | {(name, 0): x for name, x in digit_distances(model.task, examples).items()}

    def course(self, rows: pd.DataFrame) -> Course:
        own = rows["stack"].isin(["enc", "dec"]) & (rows["method"] == "pearson") & (rows["level"] == "out")
        shown = rows[own].assign(site=rows["stack"] + "." + rows["layer"].astype(str))
        sheet = self.sheet("", shown)
        return Course.of(shown, sheet, "correlation", "site", "space", "correlation with distances at the output")

    def figure(self, rows: pd.DataFrame) -> Figure:
        names = ", ".join(sorted({subject.task.name for subject in self.subjects}))
        return draw_correlations({f"{names}: Pearson correlations": rows[rows["method"] == "pearson"]})
