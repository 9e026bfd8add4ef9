"""The figure of ``probe=mechanism``: five questions by bit, steering and patching by site."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .course import Course
from .style import BLUE, GREEN, GREY, INK, ORANGE, canvas, headline, tidy

QUESTIONS = {
    "flip_propagate": "Previous bit inverted:\nanswers that change",
    "remainder": "Random prefixes: answers\nthat a remainder predicts",
    "local_remainder_over_graded_carry": "Carry out of range:\nanswers as of a total",
    "carry": "Carry inverted:\nanswers that follow",
    "value": "Sum shifted by 1 .. 64:\nanswers that follow",
}
FLIPS = {"a carry\nof two states": 1, "a total\nas a number": 3}
Line = tuple[str, str, str, str]
Of = tuple[str, str]  # test and component
STEERED: dict[Of, Line] = {
    ("steering", "carry"): (ORANGE, "s", "--", "carry inverted"),
    ("steering", "value"): (BLUE, "o", "-", "sum shifted"),
}
PATCHED: dict[Of, Line] = {
    ("position_wise_resampling", ""): (INK, "D", ":", "prompt: other tokens"),
    ("interchange", "carry"): (ORANGE, "s", "--", "answer: carry"),
    ("interchange", "xor"): (GREEN, "^", "-", "answer: a_t xor b_t"),
}
OVER_TRAINING: dict[Of, str] = {
    ("accuracy", ""): "right",
    ("interchange", "xor"): "change with a_t xor b_t (patched)",
    ("interchange", "carry"): "change with the carry (patched)",
    ("signature", "carry"): "follow an inverted carry",
    ("signature", "value"): "follow a shifted sum",
}
SUBSPACES = {
    "a_bit": "a_t",
    "b_bit": "b_t",
    "xor": "a_t xor b_t",
    "carry": "carry into t",
    "sum": "bit t of the sum",
    "sum_mod": "bit t of the sum mod 2^(t+1)",
    "sum all": "sum, whole answer",
}
CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("subspace of rank 1 or 2", {"color": BLUE, "marker": "o", "markersize": 7}),
    "full_patch": ("full patch", {"color": INK, "marker": "D", "markersize": 6, "markerfacecolor": "none"}),
    "random_max": ("best random one", {"color": GREY, "marker": "v"}),
    "flipped_max": ("best with other signs", {"color": ORANGE, "marker": "<"}),
    "untrained": ("untrained network", {"color": INK, "marker": "x"}),
    "decoy": ("control network", {"color": GREEN, "marker": "+", "markersize": 8}),
}


def draw_mechanism(rows: pd.DataFrame, verdicts: dict[int, str], expected: pd.DataFrame, title: str) -> Figure:
    """Draw a table of shares for each question; below, the effect of steering and of patching at each site.

    ``expected`` has ``algorithm, component, position, value``, and may be empty; ``verdicts`` are by seed.
    """
    rows = rows.assign(bit=pd.to_numeric(rows["position"], errors="coerce"))
    signature = rows[rows["test"] == "signature"]
    steered = _of(rows, STEERED)
    searched = rows[rows["test"] == "subspace"]
    algorithms = list(expected["algorithm"].unique()) if len(expected) else []
    flips = rows[(rows["test"] == "flips") & (rows["control"] == "")]
    heights = [0.32 * (len(verdicts) + len(algorithms)) + 1.3, 2.6, 3.3]
    figure = canvas(13, 0.4 + sum(heights))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    above, middle, below = figure.subfigures(3, 1, squeeze=False, height_ratios=heights)[:, 0]
    last = signature["bit"].max()
    bits = range(1, int(last) + 1) if last >= 1 else range(1, 2)
    for ax, (component, question) in zip(above.subplots(1, len(QUESTIONS)), QUESTIONS.items(), strict=True):
        lines = {f"seed {seed}: {name}": _values(signature, component, bits, seed=seed) for seed, name in
                 verdicts.items()}  # fmt: skip
        lines |= {f"{name} would": _values(expected, component, bits, algorithm=name) for name in algorithms}
        _table(ax, lines, list(bits), len(verdicts), names=component == "flip_propagate")
        headline(ax, question)
    # A carry is told from other variables in bits 2 to m - 3, a sum in bits 0 to m - 3.
    steered = steered[(steered["bit"] < bits[-1] - 1) & (steered["bit"] >= 2 * (steered["component"] == "carry"))]
    ax, count = middle.subplots(1, 2, width_ratios=[1.9, 1]) if len(flips) else (middle.subplots(), None)
    _by_site(ax, steered, STEERED)
    headline(ax, "Steering", "1: every answer follows, 0: none does, or at random")
    if count is not None:
        _flips(count, flips)
    held, of_subspaces = below.subplots(1, 2, width_ratios=[1.7, 1]) if len(searched) else (below.subplots(), None)
    _by_site(held, _patched(rows), PATCHED)
    headline(held, "Patching", "one position from another run: answers that change")
    if of_subspaces is not None:
        _subspaces(of_subspaces, searched)
    return figure


def course_of(rows: pd.DataFrame) -> Course:
    """Of the rows of one epoch, what becomes causal: a panel for each seed, means over bits.

    Patches count at the site where most answers change, less those that change when neither carry nor xor differs.
    """
    keys = ["seed", "test", "component"]
    of_network = rows[rows["site"] == ""].groupby(keys)["value"].mean()
    patched = _patched(rows).groupby([*keys, "site"])["value"].mean().groupby(level=keys).max()
    found = pd.concat([of_network, patched])
    lines = [
        (seed, "", line, found[seed, *of])
        for seed in rows["seed"].unique()
        for of, line in OVER_TRAINING.items()
        if (seed, *of) in found.index
    ]
    table = pd.DataFrame(lines, columns=["seed", "panel", "line", "value"])
    return Course(table, "share of the answers, mean over bits", by_seed=True)


def _of(rows: pd.DataFrame, wanted: Iterable[Of]) -> pd.DataFrame:
    return rows[pd.MultiIndex.from_frame(rows[["test", "component"]]).isin([*wanted])]


def _patched(rows: pd.DataFrame) -> pd.DataFrame:
    """Patches at the answer less those where neither carry nor xor differs; those at the prompt as they are."""
    keys = ["seed", "site", "position"]
    noise = _of(rows, [("interchange", "neither")]).set_index(keys)["value"]
    patched = _of(rows, PATCHED)
    shared = noise.reindex(pd.MultiIndex.from_frame(patched[keys])).fillna(0).to_numpy()
    return patched.assign(value=patched["value"] - np.where(patched["test"] == "interchange", shared, 0))


def _values(rows: pd.DataFrame, component: str, bits: range, **key: object) -> list[float]:
    for column, value in key.items():
        rows = rows[rows[column] == value]
    found = rows[rows["component"] == component].set_index("bit" if "bit" in rows else "position")["value"]
    return [float(found.get(t, np.nan)) for t in bits]


def _table(ax: Axes, lines: dict[str, list[float]], bits: list[int], own: int, names: bool) -> None:
    numbers = np.array(list(lines.values()))
    ax.imshow(numbers, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for (y, x), value in np.ndenumerate(numbers):
        text = "" if np.isnan(value) else f"{abs(value) if round(value, 1) == 0 else value:.1f}"
        ax.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if value > 0.75 else INK)
    ax.axhline(own - 0.5, color=INK, linewidth=1.2)
    ax.set_xticks(range(len(bits)), [str(t) for t in bits])
    ax.set_yticks(range(len(lines)), list(lines) if names else [], fontsize=8.5)
    ax.set_xlabel("bit of the answer", fontsize=9)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _by_site(ax: Axes, rows: pd.DataFrame, styles: dict[Of, Line]) -> None:
    tidy(ax)
    sites = list(dict.fromkeys(rows["site"]))
    for of, (color, marker, dashes, label) in styles.items():
        for i, (_, seed) in enumerate(_of(rows, [of]).groupby("seed")):
            means = seed.groupby("site")["value"].mean().reindex(sites)
            ax.plot(range(len(sites)), means, color=color, marker=marker, linestyle=dashes, markersize=4,
                    linewidth=1.4, label=label if i == 0 else None)  # fmt: skip
    ax.set_xticks(range(len(sites)), sites, rotation=90, fontsize=8)
    ax.set_ylim(-0.1, 1.05)
    ax.axhline(0, color=GREY, linewidth=0.8)
    if len(rows):
        ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _flips(ax: Axes, rows: pd.DataFrame) -> None:
    tidy(ax)
    means = rows.groupby("component")["value"].mean().sort_index()
    ax.bar(range(len(means)), means, width=0.6, color=ORANGE)
    for label, flips in FLIPS.items():
        ax.annotate(label, (flips, 1.02), ha="center", fontsize=8, color=INK, annotation_clip=False)
    last = len(means) - 1
    ax.set(xticks=range(len(means)), xticklabels=[*map(str, range(last)), f"{last} or more"], ylim=(0, 1))
    ax.set_xlabel("times the bit flips as 0 to 4 carries\nare added to a column with total 0", fontsize=9)
    headline(ax, "Beyond the natural range", "share of columns", pad=22)


def _subspaces(ax: Axes, rows: pd.DataFrame) -> None:
    tidy(ax)
    all_positions = rows["position"] == "all"
    names = rows["component"] + np.where(all_positions, " all", "")
    means = rows.assign(name=names).groupby(["name", "control"])["value"].mean()
    for control, (label, style) in CONTROLS.items():
        of_control = means.reindex([(name, control) for name in SUBSPACES])
        ax.plot(of_control, range(len(SUBSPACES)), linestyle="", label=label, **style)
    ax.axvline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(SUBSPACES)), list(SUBSPACES.values()), fontsize=8.5)
    ax.set(xlim=(0.2, 1.04), ylim=(len(SUBSPACES) - 0.5, -0.5))
    ax.set_xlabel("answers as the variable predicts\n(0.5: no intervention)", fontsize=8.5)
    where = rows.loc[~all_positions, ["site", "position"]].drop_duplicates()
    places = [f"{site}, t = {t}" for site, t in where.itertuples(index=False)]
    headline(ax, "Subspaces", ", ".join(places) if len(places) <= 2 else f"at {len(places)} places")
    ax.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.4, -0.3), ncols=2)
