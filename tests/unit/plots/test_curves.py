"""Curves over epochs: their axes, and the measure that they follow."""

from itertools import product

import pandas as pd
import pytest

from arith_erd.plots.curves import EpochCurves, draw_learning_curves
from arith_erd.probes.probe import Probe


@pytest.mark.parametrize(("losses", "shown"), [((0.8, 0.004), {"0.1", "0.01"}), ((1.4, 1.1), {"1.1", "1.2", "1.3"})])
def test_labels_of_a_logarithmic_axis_are_plain_numbers(losses, shown) -> None:
    """Text is not parsed as mathematics, so its source would be shown."""
    blank = {"seed": 0, "train_seq_acc": 0.0, "val_seq_acc": 0.0}
    figure = draw_learning_curves(
        [blank | {"epoch": t, "train_loss": x} for t, x in enumerate(losses, 1)], "add, random"
    )
    figure.canvas.draw()
    axis = figure.axes[1].yaxis
    labels = {tick.get_text() for minor in (False, True) for tick in axis.get_ticklabels(minor=minor)}
    assert shown <= labels
    assert not any("$" in label for label in labels)


class Own(Probe):
    def rows(self):
        for seed, position, site in product((0, 1), range(8), ("dec.1", "dec.2")):
            yield {"seed": seed, "position": position, "site": site, "r2": position / 10 + seed}


def test_curves_of_an_own_probe_follow_its_first_measure_and_sparser_epochs_get_a_logarithmic_axis() -> None:
    """A line for each value of the first column that varies, a mean over the others."""
    course = Own().epoch_curves(pd.DataFrame(Own().rows())[["seed", "site", "position", "r2"]])
    assert course.label == "r2"
    assert course.table.set_index(["seed", "line"])["value"].to_dict() == pytest.approx(
        {(seed, site): 0.35 + seed for seed in (0, 1) for site in ("dec.1", "dec.2")}
    )
    whole = pd.concat([course.table.assign(epoch=epoch) for epoch in (0, 1, 2, 10, 100)])
    (ax,) = EpochCurves(whole, "r2").draw("probe").axes
    assert (ax.get_xscale(), len(ax.lines)) == ("symlog", 2)
