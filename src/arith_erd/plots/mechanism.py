"""The figure of ``probe=mechanism``: five questions by bit, and the distance to each algorithm."""

from collections.abc import Collection

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from .course import Course
from .style import BLUE, GREY, INK, canvas, headline, heat_map, tidy

QUESTIONS = {
    "flip_propagate": "Previous bit inverted:\nanswers that change",
    "remainder": "Random prefixes: answers\nthat a remainder predicts",
    "local_remainder_over_graded_carry": "Carry out of range:\nanswers as of a total",
    "carry": "Carry inverted:\nanswers that follow",
    "value": "Sum shifted by 1 .. 64:\nanswers that follow",
}
OVER_TRAINING = {
    ("accuracy", ""): "right",
    ("signature", "carry"): "follow an inverted carry",
    ("signature", "value"): "follow a shifted sum",
}


def draw_mechanism(
    rows: pd.DataFrame,
    verdicts: dict[int, str],
    expected: pd.DataFrame,
    limit: float,
    title: str,
    post_hoc: Collection[str] = (),
) -> Figure:
    """Draw a table of shares for each question; below, a dot for each network's distance to each algorithm.

    ``expected`` has ``algorithm, component, position, value``, and may be empty; ``verdicts`` are by seed; ``limit`` is
    the largest distance that counts as near; algorithms in ``post_hoc`` do not count in the verdict.
    """
    rows = rows.assign(bit=pd.to_numeric(rows["position"], errors="coerce"))
    signature, distances = (rows[rows["test"] == test] for test in ("signature", "distance"))
    names = {seed: f"seed {seed}: {name}" for seed, name in verdicts.items()}
    ideal = expected.assign(line=expected["algorithm"] + " would", bit=expected["position"])
    measured = signature.assign(line=signature["seed"].map(names))
    shares = pd.concat([part for part in (measured, ideal) if len(part)])
    lines, bits = [*names.values(), *ideal["line"].unique()], range(1, int(max(1, signature["bit"].max())) + 1)
    heights = [0.32 * len(lines) + 1.3, *([0.3 * distances["component"].nunique() + 1.2] if len(distances) else [])]
    figure = canvas(13, 0.4 + sum(heights))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    above, *below = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for i, (ax, component) in enumerate(zip(above.subplots(1, len(QUESTIONS)), QUESTIONS, strict=True)):
        of_component = shares[shares["component"] == component].groupby(["line", "bit"])["value"].mean()
        table = of_component.unstack("bit").reindex(index=lines, columns=bits).to_numpy(dtype=float)
        heat_map(ax, table, [] if i else lines, list(map(str, bits)), Normalize(0, 1.3), numbers="z.1f")
        ax.axhline(len(names) - 0.5, color=INK, linewidth=1.2)
        ax.set_xlabel("bit of the answer", fontsize=9)
        headline(ax, QUESTIONS[component])
    for part in below:
        _distances(part.subplots(), distances, limit, post_hoc)
    return figure


def course_of(rows: pd.DataFrame) -> Course:
    """Of the rows of one epoch, what becomes causal: a panel for each seed, means over bits."""
    means = rows[rows["site"] == ""].groupby(["seed", "test", "component"])["value"].mean().reset_index()
    means["line"] = [OVER_TRAINING.get(of) for of in zip(means["test"], means["component"], strict=True)]
    table = means.dropna(subset="line").assign(panel="")  # in the order of OVER_TRAINING, as its keys are sorted
    return Course(table[["seed", "panel", "line", "value"]], "share of the answers, mean over bits", by_seed=True)


def _distances(ax: Axes, rows: pd.DataFrame, limit: float, post_hoc: Collection[str]) -> None:
    tidy(ax)
    beside = rows["component"].isin(post_hoc)
    names = list(rows.groupby("component")["value"].mean().sort_values().index)
    for part, fill in ((beside, "none"), (~beside, "full")):
        at = rows.loc[part, "component"].map(names.index)
        ax.plot(rows.loc[part, "value"], at, "o", color=BLUE, markersize=6, alpha=0.8, fillstyle=fill)
    ax.axvline(limit, color=GREY, linewidth=1, linestyle=":")
    ax.set_yticks(range(len(names)), names, fontsize=8.5)
    ax.set(xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    headline(ax, "Distance to each algorithm", f"at most {limit:g} (dotted): near; hollow: not in the verdict")
