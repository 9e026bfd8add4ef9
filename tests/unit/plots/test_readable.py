"""What a reader needs is in the picture, and nothing covers a line."""

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from arith_erd.plots.course import Course
from arith_erd.plots.curves import learning_curves
from arith_erd.plots.erasures import draw_erasures
from arith_erd.plots.sheet import Sheet
from arith_erd.plots.style import canvas, question
from arith_erd.probes.dataset import Dataset
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add


def test_legend_of_the_curves_covers_no_run_however_weak() -> None:
    rows = [
        {"epoch": epoch, "seed": 0, "train_seq_acc": 0.02, "val_seq_acc": 0.01, "train_loss": 1.0} for epoch in (1, 2)
    ]
    figure = learning_curves(rows, "weak")
    FigureCanvasAgg(figure).draw()
    (legend,) = [ax.get_legend() for ax in figure.axes if ax.get_legend()]
    assert not legend.get_window_extent().overlaps(figure.axes[0].get_window_extent())


def test_erasures_are_drawn_beside_the_accuracy_before() -> None:
    columns = ("variance_removed", "probe_error_before", "probe_error_after", "seq_acc_after", "seq_acc_after_unseen")
    controls = (f"control_{kind}_{what}" for kind in ("rank", "variance") for what in ("mean", "min"))
    row = {"seed": 0, "site": "dec.1", "concept": "value", "method": "leace", "rank": 1, "seq_acc_before": 0.75}
    figure = draw_erasures(pd.DataFrame([row | dict.fromkeys((*columns, *controls), 0.5)]), "add", published=False)
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "before erasure"]
    assert list(line.get_xdata()) == [0.75, 0.75]


def test_title_that_is_too_wide_continues_below_and_keeps_the_number_of_seeds_together() -> None:
    figure = canvas(5, 2)
    question(figure, "add", "does a title of this many words fit above a small figure?", pd.DataFrame({"seed": [0, 1]}))
    FigureCanvasAgg(figure).draw()
    title = figure.texts[0]
    assert title.get_window_extent().width < figure.bbox.width
    assert title.get_window_extent().y0 > 0.5 * figure.bbox.height
    assert title.get_text().endswith("(2\N{NO-BREAK SPACE}seeds)")


def test_title_of_a_dataset_names_task_bits_and_split() -> None:
    probe = Dataset(Add(3), RandomSplit(0.5))
    title = probe.figure(pd.DataFrame(probe.rows())).axes[0].get_title()
    assert title == "add, 3 bits, RandomSplit(fraction=0.5, seed=0)\n32 of 64 examples held out (dark)"


def test_course_is_a_line_for_each_name_and_a_panel_for_the_next_column_that_varies() -> None:
    """Further columns are averaged over, a seed at a time; epochs kept ever more sparsely get a logarithmic axis."""
    rows = pd.DataFrame(
        {"seed": seed, "position": position, "site": site, "kind": kind, "r2": position / 10 + seed}
        for seed in (0, 1)
        for position in range(8)
        for site in ("dec.1", "dec.2")
        for kind in ("a", "b")
    )
    course = Course.of(rows, Sheet.of("", rows, {}))
    assert course.label == "r2"
    assert course.table.set_index(["seed", "panel", "line"])["value"].to_dict() == pytest.approx(
        {(seed, kind, site): 0.35 + seed for seed in (0, 1) for kind in "ab" for site in ("dec.1", "dec.2")}
    )
    whole = pd.concat([course.table.assign(epoch=epoch) for epoch in (0, 1, 2, 10, 100)])
    figure = Course(whole, "r2").draw("probe")
    assert [ax.get_xscale() for ax in figure.axes] == ["symlog", "symlog"]
    assert [len(ax.lines) for ax in figure.axes] == [2, 2]
