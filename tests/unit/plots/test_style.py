"""The pixels of a figure in a file."""

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from PIL import Image

from arith_erd.plots.curves import draw_learning_curves
from arith_erd.plots.style import save_png, subplots


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
