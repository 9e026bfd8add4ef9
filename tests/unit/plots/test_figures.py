"""What a figure shows: curves over epochs, pixels, and intervals that stay within their measure."""

from itertools import product

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps
from PIL import Image

from arith_erd.plots.curves import EpochCurves, draw_learning_curves
from arith_erd.plots.style import save_png, subplots
from arith_erd.plots.tables import format_mean, print_table
from arith_erd.probes.probe import Probe


def test_intervals_stay_within_their_unit() -> None:
    """Rule 8 of ``paper/results/verdict-rules.md``."""
    assert format_mean(np.array([0.9, 0.99, 1]), "accuracy") == "96.33% [71.68, 100]"
    assert format_mean(np.array([13, 4.73, 0.453]), "value") == "6.06 [0, 50.5]"
    assert format_mean(np.array([-1, -0.9, -0.99]), "correlation") == "-0.963 [-1, -0.717]"


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


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_printed_table_cuts_no_number(columns, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    cells = {f"measure{i}": [f"0.{i}39 [-0.0{i}1, 1.00{i}]", "x"] for i in range(6)}
    print_table(pd.DataFrame({"site": ["dec.3", "enc.3"], **cells}), fold=True)
    printed = capsys.readouterr().out
    assert all(part in printed for column, (cell, _) in cells.items() for part in (column, *cell.split()))


def test_figure_in_few_colours_looks_like_the_one_in_all(tmp_path) -> None:
    """A line, a band that one can see through, and every shade of a colour map."""
    figure, (curves, shades) = subplots(4, 3, 1, 2)
    x = np.linspace(0, 6, 50)
    curves.plot(x, np.sin(x))
    curves.fill_between(x, np.sin(x) - 0.2, np.sin(x) + 0.2, alpha=0.2)
    shades.imshow(x.reshape(5, 10), cmap=colormaps["Blues"])
    few, all_colours = tmp_path / "few", tmp_path / "all"
    save_png(figure, few)
    figure.savefig(all_colours, format="png")
    ours, theirs = (np.asarray(Image.open(file).convert("RGB"), dtype=int) for file in (few, all_colours))
    assert np.abs(ours - theirs).mean() < 0.5  # of 255
    assert np.abs(ours - theirs).max() < 32
    assert few.stat().st_size < all_colours.stat().st_size / 2


def test_a_readers_own_settings_of_matplotlib_change_no_figure(tmp_path) -> None:
    rows = [{"epoch": e, "seed": 0, "train_loss": 1.0, "train_seq_acc": 0.5, "val_seq_acc": 0.5} for e in (1, 2)]
    for name, settings in (("plain", {}), ("own", {"text.usetex": True, "font.size": 30, "axes.facecolor": "black"})):
        with mpl.rc_context(settings):
            save_png(draw_learning_curves(rows, "a $ b $"), tmp_path / name)
            assert mpl.rcParams["text.usetex"] == bool(settings)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "own").read_bytes()


class Own(Probe):
    def rows(self):
        for seed, position, site in product((0, 1), range(8), ("dec.1", "dec.2")):
            yield {"seed": seed, "position": position, "site": site, "r2": position / 10 + seed}


def test_course_of_an_own_probe_follows_its_first_measure_and_epochs_ever_sparser_get_a_logarithmic_axis() -> None:
    """A line for each value of the first column that varies, a mean over the others."""
    course = Own().epoch_curves(pd.DataFrame(Own().rows())[["seed", "site", "position", "r2"]])
    assert course.label == "r2"
    assert course.table.set_index(["seed", "line"])["value"].to_dict() == pytest.approx(
        {(seed, site): 0.35 + seed for seed in (0, 1) for site in ("dec.1", "dec.2")}
    )
    whole = pd.concat([course.table.assign(epoch=epoch) for epoch in (0, 1, 2, 10, 100)])
    (ax,) = EpochCurves(whole, "r2").draw("probe").axes
    assert (ax.get_xscale(), len(ax.lines)) == ("symlog", 2)
