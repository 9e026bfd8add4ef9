"""What a reader needs is in the picture, and nothing covers a line."""

import pandas as pd
import pytest

from arith_erd.plots.epoch_curves import EpochCurves
from arith_erd.probes.discontinuity import Discontinuity
from arith_erd.tasks import Add


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
