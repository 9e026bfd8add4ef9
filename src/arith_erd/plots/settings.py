"""Accuracy against a setting of runs, a line for each value of the others."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from .style import canvas, headline, legend_below, plain_text, tidy

MARKERS = "osD^v"


def draw_by_setting(means: pd.DataFrame) -> Figure:
    """Draw a table of means over seeds: settings, ``seeds``, ``accuracy``, ``low``, ``high``.

    The first setting is on the axis: numbers at their place, names side by side.
    """
    key, *others = means.columns[: means.columns.get_loc("seeds")]
    means = means.dropna(subset=[key])
    figure = canvas(6.4, 4)
    ax = figure.subplots()
    tidy(ax, percent="y")
    if numeric := pd.api.types.is_numeric_dtype(means[key]):
        places = means[key]
    else:
        codes, names = pd.factorize(means[key].map(str))
        places = pd.Series(codes, means.index)
        ax.set_xticks(range(len(names)), names)
        ax.margins(x=0.25)
    for number, (values, part) in enumerate(means.groupby(others, dropna=False) if others else [((), means)]):
        told = [f"{o.removesuffix('.name')} {value}" for o, value in zip(others, values, strict=True)]
        label = ", ".join(told) if len(told) > 1 else "".join(map(str, values))
        error = [(part["accuracy"] - part["low"]).fillna(0), (part["high"] - part["accuracy"]).fillna(0)]
        at = places[part.index] + 0.06 * number * (0.1 * (places.max() - places.min()) if numeric else 1)
        look: Any = {
            "marker": MARKERS[number % 5],
            "linestyle": "-" if numeric else "",
            "capsize": 2,
            "elinewidth": 0.8,
        }
        ax.errorbar(at, part["accuracy"], error, label=label, **look)
    with plain_text():
        ax.set(xlabel=key, ylabel="validation sequence accuracy")
        by = f" by {others[0]}" if len(others) == 1 else ""
        headline(ax, f"Final accuracy{by}", "mean over seeds, 95% interval")
        if others:
            legend_below(figure, columns=min(3, len(ax.containers)))
    return figure
