"""The figure of ``probe=mechanism``: five questions by bit, for networks and algorithms, and the effect of moves."""

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
    "value": "Sum moved by 1 .. 64:\nanswers that follow",
}
TURNS = {"a carry\nof two states": 1, "a total\nas a number": 3}
Line = tuple[str, str, str, str]
LINES: dict[str, Line] = {"carry": (ORANGE, "s", "--", "carry inverted"), "value": (BLUE, "o", "-", "sum moved")}
HELD: dict[str, Line] = {
    "exchange_mosaic": (INK, "D", ":", "prompt: other tokens"),
    "exchange_carry": (ORANGE, "s", "--", "answer: carry"),
    "exchange_xor": (GREEN, "^", "-", "answer: a_t xor b_t"),
}
OVER_TRAINING = {
    "right": "right",
    "exchange_xor": "change with a_t xor b_t (exchanged)",
    "exchange_carry": "change with the carry (exchanged)",
    "carry": "follow an inverted carry",
    "value": "follow a moved sum",
}
SUBSPACES = {
    "a_bit": "a_t",
    "b_bit": "b_t",
    "xor": "a_t xor b_t",
    "carry": "carry into t",
    "sum": "bit t of the sum",
    "partial_sum": "bit t of the sum mod 2^(t+1)",
    "sum all": "sum, whole answer",
}
CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("subspace of rank 1 or 2", {"color": BLUE, "marker": "o", "markersize": 7}),
    "_whole": ("whole embedding", {"color": INK, "marker": "D", "markersize": 6, "markerfacecolor": "none"}),
    "_random_max": ("best random one", {"color": GREY, "marker": "v"}),
    "_flipped_max": ("best with other signs", {"color": ORANGE, "marker": "<"}),
    "_untrained": ("in an untrained network", {"color": INK, "marker": "x"}),
    "_decoy": ("in one that computes otherwise", {"color": GREEN, "marker": "+", "markersize": 8}),
}


def draw_mechanism(rows: pd.DataFrame, verdicts: dict[int, str], expected: pd.DataFrame, title: str) -> Figure:
    """Draw a table of shares for each question; below, the effect of moves and of exchanges after each stage.

    Args:
        rows: of the probe.
        verdicts: by seed.
        expected: ``algorithm, component, position, value``; may be empty.
        title: of the figure.
    """
    rows = rows.assign(bit=pd.to_numeric(rows["position"], errors="coerce"))
    signature = rows[rows["stage"] == ""]
    moves = rows[rows["component"].isin(LINES) & (rows["stage"] != "")]
    searched = rows[rows["component"].str.startswith("subspace_")]
    algorithms = list(expected["algorithm"].unique()) if len(expected) else []
    turned = rows[rows["component"].str.match(r"turns_\d")]
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
    told = {"carry": range(2, bits[-1]), "value": range(bits[-1] - 1)}
    moves = moves[moves["bit"] < moves["component"].map({name: span.stop for name, span in told.items()})]
    moves = moves[moves["bit"] >= moves["component"].map({name: span.start for name, span in told.items()})]
    ax, count = middle.subplots(1, 2, width_ratios=[1.9, 1]) if len(turned) else (middle.subplots(), None)
    _stages(ax, moves, LINES)
    headline(ax, "Where a move is followed", "1: every answer follows, 0: none does, or at random")
    if count is not None:
        _turns(count, turned)
    held, of_subspaces = below.subplots(1, 2, width_ratios=[1.7, 1]) if len(searched) else (below.subplots(), None)
    _stages(held, _held(rows), HELD)
    headline(held, "What has arrived", "exchanged between runs: answers that change")
    if of_subspaces is not None:
        _subspaces(of_subspaces, searched)
    return figure


def course_of(rows: pd.DataFrame) -> Course:
    """Of the rows of one epoch, what becomes causal: a panel for each seed, means over bits.

    Moves are scored at each bit's chosen stage, as for the verdict; exchanges count at the stage where most answers
    change, less those that change when neither carry nor xor differs.
    """
    keys = ["seed", "component"]
    moved = rows[rows["stage"] == ""].groupby(keys)["value"].mean()
    held = _held(rows).groupby([*keys, "stage"])["value"].mean().groupby(level=keys).max()
    found = pd.concat([moved, held])
    lines = [
        (seed, "", line, found[seed, component])
        for seed in rows["seed"].unique()
        for component, line in OVER_TRAINING.items()
        if (seed, component) in found.index
    ]
    table = pd.DataFrame(lines, columns=["seed", "panel", "line", "value"])
    return Course(table, "share of the answers, mean over bits", by_seed=True)


def _held(rows: pd.DataFrame) -> pd.DataFrame:
    """Exchanges at the answer less those that change neither carry nor xor; those at the prompt as they are."""
    exchanged = rows[rows["component"].isin([*HELD, "exchange_neither"])]
    keys = ["seed", "stage", "position"]
    noise = exchanged[exchanged["component"] == "exchange_neither"].set_index(keys)["value"]
    shared = noise.reindex(pd.MultiIndex.from_frame(exchanged[keys])).fillna(0).to_numpy()
    at_prompt = (exchanged["component"] == "exchange_mosaic").to_numpy()
    return exchanged.assign(value=exchanged["value"] - np.where(at_prompt, 0, shared))


def _values(rows: pd.DataFrame, component: str, bits: range, **key: object) -> list[float]:
    for column, value in key.items():
        rows = rows[rows[column] == value]
    found = rows[rows["component"] == component].set_index("bit" if "bit" in rows else "position")["value"]
    return [float(found.get(t, np.nan)) for t in bits]


def _table(ax: Axes, lines: dict[str, list[float]], bits: list[int], own: int, names: bool) -> None:
    """Draw numbers in shaded cells, darker for larger ones, and a rule between networks and algorithms."""
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


def _stages(ax: Axes, rows: pd.DataFrame, styles: dict[str, Line]) -> None:
    """Draw a value after each stage: the mean over positions, one line per seed."""
    tidy(ax)
    stages = list(dict.fromkeys(rows["stage"]))
    for component, (color, marker, dashes, label) in styles.items():
        of = rows[rows["component"] == component]
        for i, (_, seed) in enumerate(of.groupby("seed")):
            means = seed.groupby("stage")["value"].mean().reindex(stages)
            ax.plot(range(len(stages)), means, color=color, marker=marker, linestyle=dashes, markersize=4,
                    linewidth=1.4, label=label if i == 0 else None)  # fmt: skip
    ax.set_xticks(range(len(stages)), stages, rotation=90, fontsize=8)
    ax.set_ylim(-0.1, 1.05)
    ax.axhline(0, color=GREY, linewidth=0.8)
    if len(rows):
        ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _turns(ax: Axes, rows: pd.DataFrame) -> None:
    """How often the bit of an empty column turns while carries are added: means over bits and seeds."""
    tidy(ax)
    means = rows.groupby("component")["value"].mean().sort_index()
    ax.bar(range(len(means)), means, width=0.6, color=ORANGE)
    for label, turns in TURNS.items():
        ax.annotate(label, (turns, 1.02), ha="center", fontsize=8, color=INK, annotation_clip=False)
    last = len(means) - 1
    ax.set(xticks=range(len(means)), xticklabels=[*map(str, range(last)), f"{last} or more"], ylim=(0, 1))
    ax.set_xlabel("turns of the answer while up to four\ncarries are added to an empty column", fontsize=9)
    headline(ax, "Does it count?", "share of the columns", pad=22)


def _subspaces(ax: Axes, rows: pd.DataFrame) -> None:
    """The accuracy of each variable's subspace among its controls: means over seeds."""
    tidy(ax)
    all_positions = rows["position"] == "all"
    names = rows["component"].str.removeprefix("subspace_")
    means = rows.assign(name=names + np.where(all_positions, " all", "")).groupby("name")["value"].mean()
    for suffix, (label, style) in CONTROLS.items():
        keys = [f"{v.removesuffix(' all')}{suffix}{' all' if v.endswith(' all') else ''}" for v in SUBSPACES]
        ax.plot(means.reindex(keys), range(len(keys)), linestyle="", label=label, **style)
    ax.axvline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(SUBSPACES)), list(SUBSPACES.values()), fontsize=8.5)
    ax.set(xlim=(0.2, 1.04), ylim=(len(SUBSPACES) - 0.5, -0.5))
    ax.set_xlabel("answers as the variable predicts\n(0.5: nothing exchanged)", fontsize=8.5)
    where = rows.loc[~all_positions, ["stage", "position"]].drop_duplicates()
    places = [f"{stage}, t = {t}" for stage, t in where.itertuples(index=False)]
    headline(ax, "Subspaces", ", ".join(places) if len(places) <= 2 else f"at {len(places)} places")
    ax.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.4, -0.3), ncols=2)
