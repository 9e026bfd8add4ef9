"""Does a network compute the next bit of the answer from the bits before it?"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ..bits import ZERO, Array
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..mechanism import prefixes
from ..mechanism.prefixes import Reading, Sample
from ..plots.style import BLUE, GREY, INK, ORANGE, canvas, headline, question, tidy
from .probe import Natural, Positive, Probe

STYLES: list[dict[str, Any]] = [
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": ORANGE, "marker": "s", "linestyle": "--"},
    {"color": GREY, "marker": "^", "linestyle": ":"},
    {"color": INK, "marker": "x", "linestyle": "-."},
    {"color": "#0f766e", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
]
LABELS = {
    "flip": "last token inverted",
    "mean_ablation": "last token: mean of 0 and 1",
    "start": "last token <start>",
    "far": "an earlier token inverted",
    "random": "all tokens random",
}
HYPOTHESES = {
    "prompt_only": "the prompt alone decides",
    "local_carry": "a carry read off the last token",
    "remainder": "value less prefix, rounded",
    "graded_carry": "remainder of the lower bits, as a carry",
    "local_remainder": "remainder of bits up to t, rounded",
}
BINS = {"0": "0", "<1/4": "to 1/4", "<1/2": "to 1/2", "1/2": "= 1/2", "<3/4": "to 3/4", "<1": "to 1"}
"""Of the distance between right and given prefix, with labels of the axis."""
STRATA = {
    "all": ("All pairs", ""),
    "propagate": ("Last token decides carry", "bits t-1 differ"),
    "settled": ("Carry settled without it", "bits t-1 equal"),
}


class Prefix(Probe):
    """Change the answer tokens before position t, and count how often the likeliest token at t changes.

    The probe runs the interventions of `mechanism.prefixes` on all pairs, teacher forced. A row is one intervention at
    one position, over a stratum of the pairs; ``changed`` is the share of its ``n`` answers that change.

    With d = (right prefix - given prefix) / 2^t, one inverted r_(t-1) gives \\|d\\| = 1/2, where a machine that rounds
    the remainder ties. So ``random`` has rows by bins of \\|d\\| too (column ``d``; empty: all together), and ``ties``
    is the share of such prefixes. ``prompt_only`` and the other hypotheses (`mechanism.prefixes`) are the shares of all
    ``n`` answers that each of them expects, where a tie counts as one half. The columns ``_where_differ`` are the same
    shares of the ``n_differ`` answers for which the hypotheses expect different bits; no tie is among them.

    Raises:
        UserError: if the answer is written in plain order, or a network has no site ``dec.embed``.
    """

    columns = ("seed", "position", "intervention", "stratum", "d", "n", "changed", "ties", *HYPOTHESES, "n_differ",
               *(f"{name}_where_differ" for name in HYPOTHESES))  # fmt: skip

    def __init__(self, subjects: Sequence[Hooked], draws: Positive = 2, seed: Natural = 0) -> None:
        prefixes.check_subjects(subjects, "prefix")
        task = subjects[0].task
        self.subjects, self.draws, self.seed = subjects, draws, seed
        self.sample = Sample.of(CausalModel(task), task.examples().operands)

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            clean, readings = prefixes.read_prefixes(subject, self.sample.examples, self.draws, self.seed)
            grouped: dict[tuple[int, str], list[Reading]] = defaultdict(list)
            for reading in readings:
                grouped[reading.position, reading.intervention].append(reading)
            for t, intervention in sorted(grouped, key=lambda key: (key[0], prefixes.INTERVENTIONS.index(key[1]))):
                for values in self._rows(t, grouped[t, intervention], clean[:, t]):
                    row = {"seed": subject.seed, "position": t, "intervention": intervention} | values
                    yield {name: row.get(name) for name in self.columns}

    def _rows(self, t: int, readings: list[Reading], clean: Array) -> Iterator[dict[str, Any]]:
        """The columns from ``stratum`` on: all readings of one intervention together, random ones also by |d|."""
        changed = np.concatenate([reading.tokens != clean for reading in readings])
        cells = {name: np.tile(inside, len(readings)) for name, inside in prefixes.strata(self.sample, t).items()}
        if readings[0].intervention != "random":
            for name, inside in cells.items():
                yield {"stratum": name, "n": int(inside.sum()), "changed": _share(changed[inside])}
            return
        given = [reading.prefix for reading in readings if reading.prefix is not None]
        d = np.abs(np.concatenate([prefixes.distance(self.sample, prefix) for prefix in given]))
        at = np.select([d == 0, d < 0.25, d < 0.5, d == 0.5, d < 0.75], range(5), 5)  # index into `BINS`
        of_each = [prefixes.hypotheses(self.sample, prefix) for prefix in given]
        expected = {name: np.concatenate([one[name] for one in of_each]) for name in of_each[0]}
        answered = np.concatenate([reading.tokens for reading in readings]) - ZERO
        right = {name: prefixes.agreement(answered, bits) for name, bits in expected.items()}
        several, clear = np.stack(list(expected.values())), prefixes.no_ties(expected)  # (hypotheses, N), (N,)
        differ = (several != several[0]).any(axis=0) & clear
        for stratum, inside in cells.items():
            for label, members in [(None, inside), *((name, inside & (at == i)) for i, name in enumerate(BINS))]:
                if members.any():
                    row = {"stratum": stratum, "d": label, "n": int(members.sum()), "changed": _share(changed[members])}
                    row |= {"ties": _share(~clear[members]), "n_differ": int((members & differ).sum())}
                    row |= {name: _share(which[members]) for name, which in right.items()}
                    row |= {f"{name}_where_differ": _share(which[members & differ]) for name, which in right.items()}
                    yield row

    def notes(self) -> list[str]:
        return [
            "if the answer does not depend on the prefix, that excludes prefix_carry and remainder; it does not "
            "distinguish a value from carries computed from the prompt (probe=interchange does)"
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        whole = rows[rows["d"].isna()]
        means = whole.groupby(["intervention", "stratum", "position"], sort=False)["changed"].mean()
        wide = means.unstack("position").reset_index()
        shown = wide.sort_values(
            "intervention", key=lambda names: names.map(prefixes.INTERVENTIONS.index), kind="stable"
        )
        return shown.map(lambda x: "" if x != x else f"{x:.3f}" if isinstance(x, float) else x)

    def figure(self, rows: pd.DataFrame) -> Figure:
        return draw_prefixes(rows, self.sample.model.task.name)


def _share(what: Array) -> float | None:
    return float(what.mean()) if len(what) else None


def draw_prefixes(rows: pd.DataFrame, task: str) -> Figure:
    """Changed answers by position, one panel per stratum; by error of the prefix; and the hypotheses' agreement."""
    strata = [name for name in STRATA if name in set(rows["stratum"])]
    strata = strata[1:] or strata  # the other two are all pairs together
    figure = canvas(10, 8.4) if len(strata) == 2 else canvas(14, 4.6)
    *panels, by_distance, agreement = figure.subplots(len(strata), 4 - len(strata)).flat
    whole, parts = rows[rows["d"].isna()], rows[rows["d"].notna()]
    at: dict[str, Any] = {"xlabel": "position t of the answer", "xticks": sorted(whole["position"].unique())}
    for ax, stratum in zip(panels, strata, strict=True):
        here = whole[whole["stratum"] == stratum]
        for (name, label), style in zip(LABELS.items(), STYLES, strict=True):
            _line(ax, here[here["intervention"] == name].groupby("position")["changed"], label, style)
        _finish(ax, *STRATA[stratum], ylabel="answers at t that change", **at)
    parts = parts.assign(times=parts["changed"] * parts["n"], at=parts["d"].map(list(BINS).index))
    for stratum, style in zip(strata, STYLES, strict=False):
        cells = parts[parts["stratum"] == stratum].groupby(["seed", "at"])[["times", "n"]].sum()
        label = ", ".join(filter(None, (stratum, STRATA[stratum][1])))
        _line(by_distance, (cells["times"] / cells["n"]).groupby("at"), label, style)
    grey = {"color": GREY, "linewidth": 6, "alpha": 0.3, "solid_capstyle": "round", "zorder": 0}
    by_distance.plot([0, 1, 2], [0, 0, 0], label="a rounded remainder; at 1/2 it ties", **grey)
    by_distance.plot([4, 5], [1, 1], **grey)
    by_distance.set_xticks(range(len(BINS)), BINS.values())
    distance = "|right prefix - given prefix| / 2^t"
    _finish(
        by_distance, "All tokens random", "by how wrong they are", xlabel=distance, ylabel="answers at t that change"
    )
    random = whole[(whole["intervention"] == "random") & (whole["stratum"] == "all")]
    for (name, label), style in zip(HYPOTHESES.items(), STYLES, strict=True):
        _line(agreement, random.groupby("position")[f"{name}_where_differ"], label, style)
    _finish(agreement, "All tokens random", "where hypotheses differ, without ties", ylabel="answers as expected", **at)
    question(figure, task, "is bit t of the answer computed from the answer's bits before it?", rows)
    return figure


def _line(ax: Axes, groups: Any, label: str, style: dict[str, Any]) -> None:
    mean = groups.mean()
    if mean.notna().any():
        ax.fill_between(mean.index, groups.min(), groups.max(), color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(mean.index, mean, label=label, markersize=4.5, linewidth=1.5, **style)


def _finish(ax: Axes, title: str, note: str, **axis: Any) -> None:
    tidy(ax)
    headline(ax, title, note)
    ax.set(ylim=(-0.04, 1.04), **axis)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, handlelength=3.2)
