"""The figure of ``probe=mechanism``: five questions by bit, steering and patching by site."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from .course import Course
from .style import BLUE, GREEN, GREY, INK, ORANGE, canvas, headline, heat_map, tidy

QUESTIONS = {
    "flip_propagate": "Previous bit inverted:\nanswers that change",
    "remainder": "Random prefixes: answers\nthat a remainder predicts",
    "local_remainder_over_graded_carry": "Carry out of range:\nanswers as of a total",
    "carry": "Carry inverted:\nanswers that follow",
    "value": "Sum shifted by 1 .. 64:\nanswers that follow",
}
FLIPS = {"a carry\nof two states": 1, "a total\nas a number": 3}
Of = tuple[str, str]  # test and component
STEERED: dict[Of, tuple[str, str, str]] = {
    ("steering", "carry"): ("carry inverted", "s--", ORANGE),
    ("steering", "value"): ("sum shifted", "o-", BLUE),
}
PATCHED: dict[Of, tuple[str, str, str]] = {
    ("position_wise_resampling", ""): ("prompt: other tokens", "D:", INK),
    ("interchange", "carry"): ("answer: carry", "s--", ORANGE),
    ("interchange", "xor"): ("answer: a_t xor b_t", "^-", GREEN),
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
    "full_patch": ("full patch", {"color": INK, "marker": "D", "markerfacecolor": "none"}),
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
    signature, searched = rows[rows["test"] == "signature"], rows[rows["test"] == "subspace"]
    flips = rows[(rows["test"] == "flips") & (rows["control"] == "")]
    names = {seed: f"seed {seed}: {name}" for seed, name in verdicts.items()}
    ideal = expected.assign(line=expected["algorithm"] + " would", bit=expected["position"])
    measured = signature.assign(line=signature["seed"].map(names))
    shares = pd.concat([part for part in (measured, ideal) if len(part)])
    lines, bits = [*names.values(), *ideal["line"].unique()], range(1, int(max(1, signature["bit"].max())) + 1)
    heights = [0.32 * len(lines) + 1.3, 2.6, 3.3]
    figure = canvas(13, 0.4 + sum(heights))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    above, middle, below = figure.subfigures(3, 1, squeeze=False, height_ratios=heights)[:, 0]
    for i, (ax, component) in enumerate(zip(above.subplots(1, len(QUESTIONS)), QUESTIONS, strict=True)):
        of_component = shares[shares["component"] == component].groupby(["line", "bit"])["value"].mean()
        table = of_component.unstack("bit").reindex(index=lines, columns=bits).to_numpy(dtype=float)
        heat_map(ax, table, [] if i else lines, list(map(str, bits)), Normalize(0, 1.3), numbers="z.1f")
        ax.axhline(len(names) - 0.5, color=INK, linewidth=1.2)
        ax.set_xlabel("bit of the answer", fontsize=9)
        headline(ax, QUESTIONS[component])
    # A carry is told from other variables in bits 2 to m - 3, a sum in bits 0 to m - 3.
    told = (rows["bit"] < bits[-1] - 1) & (rows["bit"] >= 2 * (rows["component"] == "carry"))
    first, *more = _panels(middle, 1.9, beside=len(flips) > 0)
    _by_site(first, rows[told], STEERED, "Steering", "1: every answer follows, 0: none does, or at random")
    for ax in more:
        _flips(ax, flips)
    first, *more = _panels(below, 1.7, beside=len(searched) > 0)
    _by_site(first, _patched(rows), PATCHED, "Patching", "one position from another run: answers that change")
    for ax in more:
        _subspaces(ax, searched)
    return figure


def course_of(rows: pd.DataFrame) -> Course:
    """Of the rows of one epoch, what becomes causal: a panel for each seed, means over bits.

    Patches count at the site where most answers change, less those that change when neither carry nor xor differs.
    """
    keys = ["seed", "test", "component"]
    of_network = rows[rows["site"] == ""].groupby(keys)["value"].mean()
    patched = _patched(rows).groupby([*keys, "site"])["value"].mean().groupby(level=keys).max()
    found = pd.concat([of_network, patched]).reset_index()
    found["line"] = [OVER_TRAINING.get(of) for of in zip(found["test"], found["component"], strict=True)]
    found["at"] = found["line"].map([*OVER_TRAINING.values()].index, na_action="ignore")
    table = found.dropna(subset="line").sort_values(["seed", "at"]).assign(panel="")
    return Course(table[["seed", "panel", "line", "value"]], "share of the answers, mean over bits", by_seed=True)


def _panels(figure: Any, width: float, beside: bool) -> list[Axes]:
    """A wide panel, and perhaps another beside it."""
    return list(figure.subplots(1, 1 + beside, squeeze=False, width_ratios=[width, 1][: 1 + beside])[0])


def _of(rows: pd.DataFrame, wanted: Iterable[Of]) -> pd.DataFrame:
    return rows[pd.MultiIndex.from_frame(rows[["test", "component"]]).isin([*wanted])]


def _patched(rows: pd.DataFrame) -> pd.DataFrame:
    """Patches at the answer less those where neither carry nor xor differs; those at the prompt as they are."""
    keys = ["seed", "site", "position"]
    noise = _of(rows, [("interchange", "neither")]).set_index(keys)["value"]
    patched = _of(rows, PATCHED)
    shared = noise.reindex(pd.MultiIndex.from_frame(patched[keys])).fillna(0).to_numpy()
    return patched.assign(value=patched["value"] - np.where(patched["test"] == "interchange", shared, 0))


def _by_site(ax: Axes, rows: pd.DataFrame, styles: dict[Of, tuple[str, str, str]], title: str, note: str) -> None:
    tidy(ax)
    headline(ax, title, note)
    rows = _of(rows, styles)
    sites = list(dict.fromkeys(rows["site"]))
    for of, (label, style, color) in styles.items():
        means = _of(rows, [of]).groupby(["site", "seed"])["value"].mean().unstack("seed").reindex(sites)
        lines = ax.plot(range(len(sites)), means, style, color=color, markersize=4, linewidth=1.4)
        for line in lines[:1]:
            line.set_label(label)
    ax.set_xticks(range(len(sites)), sites, rotation=90, fontsize=8)
    ax.set_ylim(-0.1, 1.05)
    ax.axhline(0, color=GREY, linewidth=0.8)
    if len(rows):
        ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _flips(ax: Axes, rows: pd.DataFrame) -> None:
    tidy(ax)
    means = rows.groupby("component")["value"].mean()
    ax.bar([*means.index[:-1], f"{means.index[-1]} or more"], means, width=0.6, color=ORANGE)
    for label, flips in FLIPS.items():
        ax.annotate(label, (flips, 1.02), ha="center", fontsize=8, color=INK, annotation_clip=False)
    ax.set_ylim(0, 1)
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
    where = rows.loc[~all_positions, ["site", "position"]].drop_duplicates().agg(", t = ".join, axis=1)
    headline(ax, "Subspaces", ", ".join(where) if len(where) <= 2 else f"at {len(where)} places")
    ax.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.4, -0.3), ncols=2)
