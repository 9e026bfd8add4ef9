"""Do distances between embeddings follow the tokens or the value? (paper, section 4.5 and figure 4)"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist, pdist
from scipy.stats import rankdata

from ..interp.hooked import Hooked
from ..interp.sites import layers
from ..models.network import greedy_tokens, shift_right
from ..models.weights import initialise
from ..plots.curves import EpochCurves
from ..plots.probe_figures import COMPARED, UNTRAINED, draw_correlations
from ..tasks import Examples
from .probe import Probe

Floats = npt.NDArray[np.float64]


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Correlations (S, L) of every row of x (S, D) with every row of y (L, D), NaN where a row is constant."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    constant = (np.ptp(x, axis=-1) == 0)[:, None] | (np.ptp(y, axis=-1) == 0)  # SciPy's result for these is arbitrary
    return np.where(constant, np.nan, 1 - cdist(x, y, "correlation"))


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Rank correlations; ties share their mean rank. Shapes and NaN as in `pearson`."""
    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


METHODS = {"pearson": pearson, "spearman": spearman}


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

    def __init__(self, models: Sequence[Hooked]) -> None:
        self.models = models

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            task = model.task
            examples = task.examples(*[np.arange(task.limit)] * task.num_operands)
            texts = examples.prompt, examples.completion
            tokens = [pdist(x, "hamming") * x.shape[1] for x in texts]  # number of tokens that differ
            values = [pdist(x[:, None], "cityblock") for x in (examples.a, examples.answer)]
            outside = np.stack([tokens[0], values[0], tokens[1], values[1]])  # (4, D), as `COMPARED`
            inside = distances(model, examples)
            for method, correlate in METHODS.items():
                of_sites = correlate(np.stack(list(inside.values())), outside)  # (S, 4)
                themselves = correlate(outside, outside)  # (4, 4)
                yield self.row(model.seed, "input", 0, "in", "value", method, float(themselves[0, 1]))
                for place, of_site in zip(inside, of_sites, strict=True):
                    for to, correlation in zip(COMPARED, of_site, strict=True):
                        yield self.row(model.seed, *place, *to, method, float(correlation))
                yield self.row(model.seed, "output", 0, "out", "value", method, float(themselves[2, 3]))

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        own = rows["stack"].isin(["enc", "dec"]) & (rows["method"] == "pearson") & (rows["level"] == "out")
        shown = rows[own].assign(site=rows["stack"] + "." + rows["layer"].astype(str))
        label = "correlation with distances at the output"
        return EpochCurves.of(shown, "correlation", ["site"], "space", label, "correlation")

    def figure(self, rows: pd.DataFrame) -> Figure:
        names = ", ".join(sorted({model.task.name for model in self.models}))
        return draw_correlations({f"{names}: Pearson correlations": rows[rows["method"] == "pearson"]})


def distances(model: Hooked, examples: Examples) -> dict[tuple[str, int], Floats]:
    """(stack, layer) -> Euclidean distances (D,) between whole-site embeddings of all pairs i < j of examples.

    Includes those of the network before training, if that is known. Layer 0 has the distances between the operands'
    digits, and between digits scaled by their place value.
    """
    prompt, completion = (torch.as_tensor(x, device=model.device) for x in (examples.prompt, examples.completion))
    inputs = prompt, shift_right(greedy_tokens(model.network, prompt, completion))
    networks = {"": model}
    if model.untrained is not None:
        networks[UNTRAINED] = Hooked(initialise(model.untrained, model.seed).to(model.device))
    by_site = {}
    for prefix, network in networks.items():
        _, cache = network.run_with_cache(inputs, layers(network.sites))
        for site, x in cache.items():
            stack, layer = site.split(".")
            by_site[prefix + stack, int(layer)] = pdist(x.flatten(1).double().cpu().numpy())
    task = model.task
    digits = task.operand_digits(examples.operands)  # (N, k * bits)
    scaled = digits * np.tile(float(task.base) ** np.arange(task.bits), task.num_operands)
    return by_site | {(f"operand {task.digit_noun}", 0): pdist(digits), (f"scaled {task.digit_noun}", 0): pdist(scaled)}
