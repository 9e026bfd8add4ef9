"""Every figure of the paper, redrawn from our runs: which there are, what they show, and what makes their data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from . import paper_ablation, paper_curves, paper_probes
from .claims import Result, Results
from .collect import Collection


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures, redrawn from our runs.

    Attributes:
        make: the commands of ``paper.yaml`` that make its data.
        draw: None where no run has any.
    """

    name: str
    title: str
    caption: str
    make: tuple[str, ...]
    draw: Callable[[Collection, Results], Figure | None]


FIGURES = (
    PaperFigure(
        "fig1",
        "Figure 1: learning addition and multiplication",
        "Sequence accuracy of the Transformer: median and range over seeds. The diamond is the paper's, on validation.",
        ("fig1",),
        paper_curves.learning,
    ),
    PaperFigure(
        "fig2",
        "Figure 2: random answers",
        "Random answers can only be memorised. The paper prints 87.8% of the training sequences after 1000 epochs; the "
        "authors' notebook corrects the axis to 4000.",
        ("fig2", "fig2_4000"),
        paper_curves.random_output,
    ),
    PaperFigure(
        "fig3",
        "Figure 3: interpolation and extrapolation",
        "Validation sequence accuracy of the Transformer where a ball in token space (VS_t) or a square in value space "
        "(VS_v) is never trained on.",
        ("fig3",),
        paper_curves.splits,
    ),
    PaperFigure(
        "fig4",
        "Figure 4: distances between embeddings",
        "Pearson correlations of distances between embeddings with distances between tokens and between values: mean "
        "over seeds, and in the curves their range; thin crosses are the authors' own weights.",
        ("fig4_add", "fig4_mul"),
        paper_probes.distance_correlation,
    ),
    PaperFigure(
        "table3",
        "Table 3: components taken away",
        "Epochs until 95% of the validation sequences are right, at most 1000.",
        ("table3",),
        paper_ablation.ablation_table,
    ),
    PaperFigure(
        "appendixA",
        "Appendix A: how far the answer jumps",
        "Percent of all perturbations of the operands, by row; a dot is less than 0.05. Framed, the one cell that the "
        "paper's text prints: 27.9%.",
        ("appendixA",),
        paper_probes.discontinuity,
    ),
    PaperFigure(
        "figC6",
        "Figure C.6: the order of the bits",
        "Validation sequence accuracy with the least significant bit first (reverse) and last (plain). The paper says "
        "without a figure that the prompt's order does not matter.",
        ("figC6",),
        paper_curves.bit_order,
    ),
    PaperFigure(
        "appendixD",
        "Appendix D: amnesic probing",
        "Sequence accuracy after a concept is erased from the embeddings of decoder layer 3: median and range. The "
        "paper's 0.13% does not come out of the authors' own weights.",
        ("appendixD",),
        paper_probes.amnesic,
    ),
    PaperFigure(
        "figE7",
        "Figure E.7: nanoGPT",
        "Sequence accuracy of nanoGPT, with the Transformer of figure 1 beside it.",
        ("figE7",),
        paper_curves.nanogpt,
    ),
    PaperFigure(
        "figE8",
        "Figure E.8: nanoGPT, interpolation and extrapolation",
        "Validation sequence accuracy of nanoGPT where VS_t or VS_v is never trained on.",
        ("figE8",),
        paper_curves.nanogpt_splits,
    ),
)


def paper_figures(found: Collection, results: Sequence[Result]) -> Iterator[tuple[PaperFigure, Figure | None]]:
    """Every figure of the paper, in its order; None where there is nothing to draw yet."""
    by_id = {result.claim.id: result for result in results}
    for figure in FIGURES:
        yield figure, figure.draw(found, by_id)
