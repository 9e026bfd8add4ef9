"""Accuracy against a setting of runs, a line for each value of the others."""

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
        label = ", ".join(f"{o.removesuffix('.name')} {value}" for o, value in zip(others, values, strict=True))
        error = [(part["accuracy"] - part["low"]).fillna(0), (part["high"] - part["accuracy"]).fillna(0)]
        at = places[part.index] + (0 if numeric else 0.06 * number)
        line = "-" if numeric else ""
        ax.errorbar(at, part["accuracy"], error, label=label, marker=MARKERS[number % 5], linestyle=line, capsize=3)
    with plain_text():
        ax.set(xlabel=key, ylabel="validation sequence accuracy")
        headline(ax, "Final accuracy", "mean over seeds, 95% interval")
        if others:
            legend_below(figure, columns=min(3, len(ax.containers)))
    return figure
