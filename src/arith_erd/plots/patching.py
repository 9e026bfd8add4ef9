"""Heat maps of activation patching: what each position of each site recovers."""

import pandas as pd
from matplotlib.figure import Figure

from .panels import HeatMaps
from .style import own_style

PICTURE = HeatMaps(
    *("recovered", "position", "site", "stack"),
    title="share of the metric that one position recovers",
    number_format="z.2f",
    color_range=(-0.5, 0.5),  # a patch can also move the metric the wrong way
    cmap="RdBu",
    cell=(0.45, 0.33),
    panels_per_row="stack",
)


@own_style()
def draw_patching(rows: pd.DataFrame) -> Figure:
    """Draw ``recovered`` by ``site`` and ``position``, with a panel for each group of sites with the same positions."""
    positions = rows.groupby("site", sort=False)["position"].transform(lambda names: ", ".join(map(str, names)))
    titles = {names: f"{names.split(', ')[0]} .. {names.split(', ')[-1]}" for names in positions.unique()}
    figure = PICTURE.draw(rows.assign(stack=positions.map(titles)))
    figure.suptitle(PICTURE.title)
    return figure
