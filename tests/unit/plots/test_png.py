"""What a figure looks like as a file of pixels."""

import io

import numpy as np
from matplotlib import colormaps
from PIL import Image

from arith_erd.plots.style import canvas, save_png


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
