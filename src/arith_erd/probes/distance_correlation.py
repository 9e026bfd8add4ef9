"""Do distances between embeddings follow the tokens or the value? (paper, section 4.5 and figure 4)"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from ..interp.activations import embeddings, layers
from ..interp.distances import Floats, absolute, euclidean, hamming, pearson, spearman
from ..interp.subject import Subject
from ..models.decoding import answers, shift_right
from ..plots.probes import COMPARED, correlation_curves, correlation_table
from ..tasks import Examples
from .probe import Probe

METHODS = {"pearson": pearson, "spearman": spearman}
Key = tuple[str, int, str, str]  # stack, layer, level, space


def outer_distances(examples: Examples) -> dict[tuple[str, str], Floats]:
    """Distances (D,) by level and space; at the input ``(A, A)`` the value is A."""
    found = [hamming(examples.prompt), absolute(examples.a), hamming(examples.completion), absolute(examples.answer)]
    return dict(zip(COMPARED, found, strict=True))


def site_distances(subject: Subject, examples: Examples) -> dict[str, Floats]:
    """Euclidean distances (D,) between embeddings, at every site of the network."""
    network = subject.network
    device = next(network.parameters()).device
    prompt, completion = (torch.as_tensor(x, device=device) for x in (examples.prompt, examples.completion))
    answer_in = shift_right(answers(network, prompt, completion))
    found = embeddings(network, prompt, answer_in, layers(network))
    return {site: euclidean(x.cpu().numpy()) for site, x in found.items()}


class DistanceCorrelation(Probe):
    """Correlate distances between embeddings, at every site, with distances between inputs and between outputs.

    The examples are the pairs ``(A, A)``, 128 at seven bits: 8,128 distances. At three bits the token distance of 3
    and 5 at the input is 4, from ``110+110`` to ``101+101``, and their value distance is 2; at the output of addition
    they are 2 and 4, from ``0110`` (6) to ``0101`` (10). Decoder sites are read with the model's own greedy answer as
    input, right or wrong.

    A row is a correlation, NaN where all distances of a kind are equal. ``stack`` and ``layer`` name the site,
    ``level`` and ``space`` what its distances are compared with. At ``stack`` input and output, layer 0, the token
    distance there is compared with the value distance: the paper's yellow cells.

    Args:
        subjects: trained replicas of one task.
    """

    columns = ("seed", "stack", "layer", "level", "space", "method", "correlation")

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self.subjects = subjects

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            diagonal = np.arange(2**subject.task.bits)
            examples = subject.task.examples(diagonal, diagonal)
            outside = np.stack(list(outer_distances(examples).values()))  # (4, D)
            inside = site_distances(subject, examples)
            for method, correlate in METHODS.items():
                themselves = correlate(outside, outside)  # (4, 4)
                of_sites = correlate(np.stack(list(inside.values())), outside)  # (S, 4)
                table: dict[Key, float] = {("input", 0, "in", "value"): themselves[0, 1]}
                for site, of_site in zip(inside, of_sites, strict=True):
                    stack, layer = site.split(".")
                    table |= {(stack, int(layer), *to): r for to, r in zip(COMPARED, of_site, strict=True)}
                table["output", 0, "out", "value"] = themselves[2, 3]
                for key, correlation in table.items():
                    values = (subject.seed, *key, method, float(correlation))
                    yield dict(zip(self.columns, values, strict=True))

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """A line for each site and method, a column for each comparison."""
        cells = super().table(rows).assign(against=lambda cells: cells["level"] + " " + cells["space"])
        line = ["method", "stack", "layer"]
        wide = cells.pivot(index=line, columns="against", values="correlation")
        in_order = pd.MultiIndex.from_frame(cells[line].drop_duplicates())
        return wide.reindex(in_order).fillna("").reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The paper's figure 4, in Pearson correlations: the table, and the curves over the decoder's layers."""
        rows = rows[rows["method"] == "pearson"]
        lines = len(rows[["stack", "layer"]].drop_duplicates())
        figure = Figure(figsize=(9.6, max(3.9, 1.2 + 0.26 * lines)), dpi=130, layout="constrained")
        table, curves = figure.subplots(1, 2, width_ratios=(4, 5), gridspec_kw={"wspace": 0.06})
        correlation_table(table, rows)
        correlation_curves(curves, rows)
        curves.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        seeds = rows["seed"].nunique()
        names = ", ".join(sorted({subject.task.name for subject in self.subjects}))
        over = f"mean and range of {seeds} seeds" if seeds > 1 else "1 seed"
        figure.suptitle(f"{names}: Pearson correlations between distances, {over}", fontsize=11)
        return figure
