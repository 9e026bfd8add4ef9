"""Heat maps with named rows and columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from .style import GREY


def heat_map(
    ax: Axes,
    values: npt.NDArray[np.floating],
    rows: Sequence[str],
    columns: Sequence[str],
    norm: Normalize | None = None,
    cmap: str = "Blues",
    numbers: str | None = None,
) -> None:
    """Draw values (rows, columns) as cells; NaN stays empty; ``numbers`` is a format for texts in them, ``.2f``."""
    norm = norm or Normalize(0, 1)
    ax.imshow(np.ma.masked_invalid(values), aspect="auto", cmap=cmap, norm=norm, interpolation="nearest")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0, labelsize=8, colors=GREY)
    ax.spines[:].set_visible(False)
    if numbers is None:
        return
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            color = "white" if norm(value) > 0.6 else "black"
            text = ax.text(j, i, f"{value:{numbers}}", ha="center", va="center", fontsize=7, color=color)
            text.set_in_layout(False)  # saves the layout engine from measuring it
