"""Do distances between embeddings follow the tokens or the value? (paper, section 4.5 and figure 4)"""

import random
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist, pdist
from scipy.stats import rankdata

from arith_erd.digits import Array
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.sites import layers, require_sites
from arith_erd.models.network import initialise, shift_right
from arith_erd.plots import style
from arith_erd.plots.curves import EpochCurves
from arith_erd.plots.panels import HeatMaps, Lines
from arith_erd.probes.probe import NetworkProbe
from arith_erd.tasks import Examples, Task

Floats = npt.NDArray[np.float64]


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Correlations (S, L) of every row of x (S, D) with every row of y (L, D), NaN where a row is constant."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    constant = (np.ptp(x, axis=-1) == 0)[:, None] | (np.ptp(y, axis=-1) == 0)  # SciPy's result for these is arbitrary
    return np.where(constant, np.nan, 1 - cdist(x, y, "correlation"))


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Rank correlations; ties share their mean rank. Shapes and NaN as in `pearson`."""
    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


MAX_OPERANDS = 1024
METHODS = {"pearson": pearson, "spearman": spearman}
LEVELS_AND_SPACES = (("in", "token"), ("in", "value"), ("out", "token"), ("out", "value"))
LEVEL_NAMES = {"in": "input", "out": "output"}
STACK_ORDER = {"input": 0, "enc": 1, "dec": 2, "output": 3}
UNTRAINED = "untrained "
LINE_NAMES = {"token": "output token distances", "value": "output value distances"}
REFERENCE_LINES = {
    f"{source}, {space}": LINE_NAMES[space]
    for source in ("untrained network", "the authors' weights")
    for space in LINE_NAMES
}
TABLE = HeatMaps("correlation", "to", "site", cell=(0.9, 0.24))
CURVES = Lines("correlation", "layer", "line", reference_lines=REFERENCE_LINES)


class DistanceCorrelation(NetworkProbe):
    """Correlate distances between embeddings, at every layer, with distances between inputs and between outputs.

    The examples are the pairs ``(A, A)``, 128 at seven bits: 8,128 distances; of three operands, ``(A, A, A)``. If
    there are more than 1,024, we draw as many. At three bits the token distance of 3 and 5 at the input is 4, from
    ``110+110`` to ``101+101``, and their value distance is 2; at the output of addition they are 2 and 4, from ``0110``
    (6) to ``0101`` (10). Decoder sites are read with the model's own greedy answer as input, right or wrong.

    A row is a correlation, NaN where all distances of a kind are equal. ``stack`` and ``layer`` name the site;
    ``level`` and ``space`` name the distances to which it is compared. Rows with ``stack`` input and output, layer 0,
    compare token distances with value distances: the paper's yellow cells.
    """

    units: ClassVar[dict[str, str]] = {"correlation": "correlation"}
    across = ("level", "space")

    def __post_init__(self) -> None:
        require_sites(self.models[0].sites, ["dec.1"], "probe=distance_correlation: site")

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        task = model.task
        examples = task.examples(*[operands_compared(task)] * task.num_operands)
        both = examples.prompt, examples.completion
        tokens = [pdist(x, "hamming") * x.shape[1] for x in both]  # number of tokens that differ
        values = [pdist(x[:, None], "cityblock") for x in (examples.a, examples.answer)]
        reference_distances = np.stack([tokens[0], values[0], tokens[1], values[1]])  # (4, D), as `LEVELS_AND_SPACES`
        site_distances = distances(model, examples)
        cells = [(*site, *space) for site, space in product(site_distances, LEVELS_AND_SPACES)]
        cells = [("input", 0, "in", "value"), *cells, ("output", 0, "out", "value")]
        for method, correlate in METHODS.items():
            by_site = correlate(np.stack(list(site_distances.values())), reference_distances)  # (S, 4)
            between_spaces = correlate(reference_distances, reference_distances)  # (4, 4)
            correlations = [between_spaces[0, 1], *by_site.flat, between_spaces[2, 3]]
            for cell, correlation in zip(cells, correlations, strict=True):
                site = dict(zip(("stack", "layer", "level", "space"), cell, strict=True))
                yield site | {"method": method, "correlation": float(correlation)}

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        decoder = rows["stack"].isin(["enc", "dec"]) & (rows["method"] == "pearson") & (rows["level"] == "out")
        shown = rows[decoder].assign(site=rows["stack"] + "." + rows["layer"].astype(str))
        label = "correlation with distances at the output"
        return EpochCurves.from_rows(shown, "correlation", ["site"], "space", label, "correlation")

    def figure(self, rows: pd.DataFrame) -> Figure:
        return draw_correlations({f"{self.task.name}: Pearson correlations": rows[rows["method"] == "pearson"]})


def operands_compared(task: Task) -> Array:
    """All values (A,) of an operand, or a sample of them, since the number of distances grows with its square."""
    values = random.Random(0).sample(range(task.limit), min(task.limit, MAX_OPERANDS))
    return np.sort(np.array(values, dtype=np.int64))


def draw_correlations(tasks: Mapping[str, pd.DataFrame], authors: Mapping[str, pd.DataFrame] | None = None) -> Figure:
    """Figure 4 of the paper, of the rows of one method by title: for each the table, and curves over the layers.

    ``authors`` holds rows of the authors' weights, for thin curves.
    """
    tables = {title: label_sites(rows) for title, rows in tasks.items()}
    heights = [max(1.6 + 0.24 * table["site"].nunique(), 3.2) for table in tables.values()]
    ratios = {"width_ratios": (4, 5), "height_ratios": heights}
    figure, axes = style.subplots(9.6, sum(heights), len(tasks), 2, squeeze=False, **ratios)
    for (table, curves), (title, rows) in zip(axes, tasks.items(), strict=True):
        TABLE.draw_panel(table, tables[title])
        table.xaxis.tick_top()
        style.set_panel_title(table, title, style.format_num_seeds(rows), pad=30)
        CURVES.draw_panel(curves, label_lines(rows, (authors or {}).get(title)))
        curves.set(xlabel="decoder layer", ylabel="correlation with\nembedding distances")
    style.legend_below(figure, columns=2)
    return figure


def label_sites(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `TABLE`: without those of the untrained network, from the input to the output."""
    rows = rows[~rows["stack"].str.startswith(UNTRAINED)]
    rows = rows.sort_values(["stack", "layer"], key=lambda x: x.map(STACK_ORDER).fillna(4) if x.name == "stack" else x)
    layer = rows["layer"].map("{:g}".format).where(rows["layer"] > 0, "token")
    layer = layer.where(rows["stack"].isin(STACK_ORDER), "")
    to = rows["level"].map(LEVEL_NAMES) + "\n" + rows["space"]
    order = [f"{LEVEL_NAMES[level]}\n{space}" for level, space in LEVELS_AND_SPACES]
    return rows.assign(site=(rows["stack"] + " " + layer).str.strip(), to=pd.Categorical(to, order))


def label_lines(rows: pd.DataFrame, authors: pd.DataFrame | None) -> pd.DataFrame:
    """The rows of `CURVES`: decoder layers, and scaled digits, whose correlation is drawn at every layer."""
    rows = rows[rows["level"] == "out"]
    decoder, untrained = (rows[rows["stack"] == f"{prefix}dec"] for prefix in ("", UNTRAINED))
    lines = [decoder.assign(line=decoder["space"].map(LINE_NAMES))]
    others = {"untrained network": untrained}
    if authors is not None:
        others["the authors' weights"] = authors[(authors["level"] == "out") & (authors["stack"] == "dec")]
    lines += [part.assign(line=f"{source}, " + part["space"]) for source, part in others.items()]
    scaled = rows[rows["stack"].str.startswith("scaled ") & (rows["space"] == "value")]
    scaled = scaled.assign(line="operand " + scaled["stack"].str.removeprefix("scaled ") + " times their place value")
    return pd.concat([*lines, scaled.drop(columns="layer").merge(decoder[["layer"]].drop_duplicates(), how="cross")])


def distances(model: Hooked, examples: Examples) -> dict[tuple[str, int], Floats]:
    """(stack, layer) -> Euclidean distances (D,) between whole-site embeddings of all pairs i < j of examples.

    Includes those of the network before training, if that is known. Layer 0 has the distances between the operands'
    digits, and between digits scaled by their place value.
    """
    inputs = model.inputs(examples)[0], shift_right(model.greedy_tokens(examples))
    networks = {"": model}
    if model.provenance.make_network is not None:
        networks[UNTRAINED] = Hooked(initialise(model.provenance.make_network, model.seed).to(model.device))
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
