"""What a figure shows: curves over epochs, pixels, and intervals that stay within their measure."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import colormaps
from PIL import Image

from arith_erd.plots.curves import EpochCurves
from arith_erd.plots.sheet import SPANS, mean_text
from arith_erd.plots.style import canvas, save_png
from arith_erd.probes.discontinuity import Discontinuity
from arith_erd.tasks import Add


@pytest.mark.parametrize("unit", SPANS)
@given(shares=st.lists(st.floats(0, 1), min_size=3, max_size=6))
def test_intervals_stay_within_their_unit(unit: str, shares: list[float]) -> None:
    """Rule 8 of ``results/verdict-rules.md``."""
    low, high = SPANS[unit]
    text = mean_text(low + (min(high, 100) - low) * np.array(shares), unit)
    scale = 100 if unit == "accuracy" else 1
    ends = [float(x) for x in re.findall(r"-?[\d.]+", text.partition("[")[2])]
    assert all(scale * low <= end <= scale * high for end in ends)


def test_figure_in_few_colours_looks_the_same_each_time(tmp_path) -> None:
    """A line, a band that one can see through, and every shade of a colour map."""
    figure = canvas(4, 3)
    curves, shades = figure.subplots(1, 2)
    x = np.linspace(0, 6, 50)
    curves.plot(x, np.sin(x))
    curves.fill_between(x, np.sin(x) - 0.2, np.sin(x) + 0.2, alpha=0.2)
    shades.imshow(x.reshape(5, 10), cmap=colormaps["Blues"])
    plain = io.BytesIO()
    figure.savefig(plain, format="png")
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        save_png(figure, path)
    assert one.read_bytes() == two.read_bytes()
    ours, theirs = (np.asarray(Image.open(file).convert("RGB"), dtype=int) for file in (one, plain))
    assert ours.shape == theirs.shape == (390, 520, 3)
    assert np.abs(ours - theirs).mean() < 0.5  # of 255
    assert np.abs(ours - theirs).max() < 32
    assert one.stat().st_size < plain.getbuffer().nbytes / 2


def test_course_is_a_line_for_each_name_and_a_panel_for_the_next_column_that_varies() -> None:
    """Further columns are averaged over, a seed at a time; epochs kept ever more sparsely get a logarithmic axis."""
    rows = pd.DataFrame(
        {"seed": seed, "position": position, "site": site, "kind": kind, "r2": position / 10 + seed}
        for seed in (0, 1)
        for position in range(8)
        for site in ("dec.1", "dec.2")
        for kind in ("a", "b")
    )
    course = Discontinuity(Add(3)).epoch_curves(rows)
    assert course.label == "r2"
    assert course.table.set_index(["seed", "panel", "line"])["value"].to_dict() == pytest.approx(
        {(seed, kind, site): 0.35 + seed for seed in (0, 1) for kind in "ab" for site in ("dec.1", "dec.2")}
    )
    whole = pd.concat([course.table.assign(epoch=epoch) for epoch in (0, 1, 2, 10, 100)])
    figure = EpochCurves(whole, "r2").draw("probe")
    assert [ax.get_xscale() for ax in figure.axes] == ["symlog", "symlog"]
    assert [len(ax.lines) for ax in figure.axes] == [2, 2]
