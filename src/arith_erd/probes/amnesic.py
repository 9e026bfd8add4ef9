"""Does the model need what its embeddings tell? Erase a concept and let it go on (paper, appendix D)."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.progress import track
from torch import Tensor

from ..bits import to_bits
from ..decoding import shift_right
from ..errors import UserError, bad_value, require_integer
from ..interp.activations import Continuation, check_sites, embeddings
from ..interp.erasure import (
    SINGLE,
    Eraser,
    Whitened,
    inlp,
    leace,
    mean_projection,
    project_away,
    project_away_variance,
    random_basis,
    refit,
    variance_removed,
    whiten,
)
from ..report.figures import BLUE, GREY, ORANGE, tidy
from ..subject import Subject
from ..tasks import Task
from .probe import Probe

Key = tuple[str, str]  # concept, method
METHODS: dict[str, Callable[[Whitened, Tensor, int], Eraser]] = {
    "inlp": inlp,
    "mean_projection": lambda x, z, iterations: mean_projection(x, z),
    "leace": lambda x, z, iterations: leace(x, z),
}
SAMPLE = 1024  # pairs on which random erasures are measured
ROUNDING = 1e-6
SHOWN = {  # on the terminal, in its eighty characters
    "site": "site",
    "concept": "concept",
    "method": "method",
    "variance_removed": "variance",
    "probe_error_after": "error",
    "seq_acc_after": "accuracy",
    "control_variance_mean": "control",
}
LINEAR = (
    "a value probe of addition cannot tell the paper's hypotheses apart: the sum is linear in the operands' bits, so a "
    "linear probe finds it without error in the bare bits too (baseline_operand_bits is 0)"
)
PUBLISHED = 0.0013
PAPER = (
    "the paper (appendix D) reports that two INLP iterations on the value at dec.3 of addition leave an accuracy of "
    "0.13%; the authors' own released weights give 100%"
)


class Amnesic(Probe):
    """Erase concepts from the embeddings at a site, and measure how often the whole answer still comes out right.

    Erasers are fitted on the embeddings with correct prefixes; the erased embeddings take their place and the layers
    above run on. One teacher-forced pass gives the accuracy: all tokens right, each after the right prefix.

    The columns, beside names:

    - ``iterations``: of INLP; 1 for the other two, which are done at once. ``rank``: directions erased.
    - ``variance_removed``: E|x - r(x)|^2 / tr Cov(x).
    - ``probe_error_before``, ``_after``: of a linear probe of the concept, fitted afresh each time: for numbers the
      root mean squared error over all columns, in units of the number; for bits the error rate.
      ``baseline_operand_bits``: of the same probe given the operands' bits and no embedding.
    - ``seq_acc_before``, ``_after``: fitted and measured on all pairs, the paper's way. ``seq_acc_after_unseen``:
      fitted on a random half, measured on the other.
    - ``control_rank_mean``, ``_min``: mean and worst accuracy after random orthonormal directions, as many as ``rank``.
      ``control_variance_mean``, ``_min``: as many as remove the same variance, the last of them in part. Both are
      measured on 1,024 pairs.

    **The paper's number.** Two INLP iterations on the value at ``dec.3`` of addition are reported to bring accuracy
    from 100% to 0.13%. On the authors' own released weights it stays at 100%, whether projected about the mean as here
    or about the origin, and a fresh probe's error goes from 0.27 to 0.39: many more directions tell the value than INLP
    removed. LEACE, after which no linear probe tells it, leaves 89.1%. And for addition no such number could tell the
    paper's hypotheses apart, since its value is linear in the operands' bits.

    Args:
        subjects: trained replicas of one task.
        site: where to erase: a name, a list of them, or ``all``.
        concept: of ``Task.concepts``: a name, a list of them, or None for all.
        method: ``inlp``, ``mean_projection``, ``leace``: one, a list of them, or None for all.
        iterations: of INLP.
        controls: random erasures of each kind.
        seed: of the random directions, the halves and the 1,024 pairs.
        tolerance: principal axes that vary less than this, as a fraction of the most varied, hold rounding errors of
            float32 and no data (see `whiten`). At 1e-12 they count as data: at ``dec.3`` of the authors' weights the
            first INLP direction then lies in them by more than 99.99% of its square, and the probe's error stays at
            0.267 after both iterations. The same network run in float64 has no such axes, and gives 0.39.

    Raises:
        UserError: for a site, concept or method that is not there, with those that are.
    """

    columns = (
        "seed",
        "site",
        "concept",
        "method",
        "iterations",
        "rank",
        "variance_removed",
        "probe_error_before",
        "probe_error_after",
        "seq_acc_before",
        "seq_acc_after",
        "seq_acc_after_unseen",
        "control_rank_mean",
        "control_rank_min",
        "control_variance_mean",
        "control_variance_min",
        "baseline_operand_bits",
    )

    def __init__(
        self,
        subjects: Sequence[Subject],
        site: str | Sequence[str] = "dec.3",
        concept: str | Sequence[str] | None = None,
        method: str | Sequence[str] | None = None,
        iterations: int = 2,
        controls: int = 100,
        seed: int = 0,
        tolerance: float = SINGLE,
    ) -> None:
        for key, value, least in (("iterations", iterations, 1), ("controls", controls, 1), ("seed", seed, 0)):
            require_integer(f"probe.{key}", value, least)
        if not isinstance(tolerance, int | float) or isinstance(tolerance, bool) or not 0 <= tolerance < 1:
            raise bad_value("probe.tolerance", tolerance, "a number from 0 to below 1")
        self.subjects = subjects
        self.task = subjects[0].task
        self.sites = list(subjects[0].network.sites()) if site == "all" else _listed(site)
        for subject in subjects:
            check_sites(subject.network, self.sites)
        self.concepts = _choose("concept", concept, self.task.concept_names)
        self.methods = _choose("method", method, METHODS)
        self.iterations = iterations
        self.controls = controls
        self.seed = seed
        self.tolerance = tolerance

    def rows(self) -> Iterator[dict[str, Any]]:
        pairs = self.task.examples()
        targets = {
            name: torch.as_tensor(z)
            for name, z in self.task.concepts(pairs.a, pairs.b).items()
            if name in self.concepts
        }
        baselines = {name: baseline(self.task, z) for name, z in targets.items()}
        for subject, site in product(self.subjects, self.sites):
            for (concept, method), measures in self._erase(Place(subject, site), targets).items():
                values = (subject.seed, site, concept, method, *measures, baselines[concept])
                yield dict(zip(self.columns, values, strict=True))

    def _erase(self, place: "Place", targets: dict[str, Tensor]) -> dict[Key, tuple[float, ...]]:
        """Every concept and method at one site -> the columns from ``iterations`` on, all but the baseline."""
        everything = torch.arange(len(place.x))
        order = torch.as_tensor(np.random.default_rng(self.seed).permutation(len(place.x)))
        seen, unseen = order.chunk(2)
        x, x_seen = (whiten(place.x[pairs], self.tolerance) for pairs in (everything, seen))
        accuracy, accuracy_unseen = (place.accuracy(pairs) for pairs in (everything, unseen))
        before = accuracy(place.x)
        erasers: dict[Key, tuple[Eraser, float]] = {}
        measures: dict[Key, tuple[float, ...]] = {}
        for (concept, z), method in product(targets.items(), self.methods):
            eraser, eraser_seen = (METHODS[method](x_, z_, self.iterations) for x_, z_ in ((x, z), (x_seen, z[seen])))
            erased = eraser(place.x)
            erasers[concept, method] = eraser, variance_removed(place.x, erased)
            measures[concept, method] = (
                probe_error(z, refit(x, z)),
                probe_error(z, refit(x, z, eraser, self.tolerance)),
                before,
                accuracy(erased),
                accuracy_unseen(eraser_seen(place.x[unseen])),
            )
        controls = self._erase_randomly(place, x, order[:SAMPLE], erasers)
        iterations = {method: self.iterations if method == "inlp" else 1 for method in self.methods}
        return {
            key: (iterations[key[1]], eraser.rank, removed, *measures[key], *controls[key])
            for key, (eraser, removed) in erasers.items()
        }

    def _erase_randomly(
        self, place: "Place", x: Whitened, pairs: Tensor, erasers: dict[Key, tuple[Eraser, float]]
    ) -> dict[Key, tuple[float, ...]]:
        """Mean and worst accuracy after random erasures, of the same rank and then of the same variance.

        Each control draws one orthonormal basis, from which every erasure takes as many directions as it needs.
        """
        accuracy, embedding = place.accuracy(pairs), place.x[pairs]
        by_rank: dict[int, list[float]] = {eraser.rank: [] for eraser, _ in erasers.values()}
        by_variance: dict[float, list[float]] = {removed: [] for _, removed in erasers.values()}
        generator = torch.Generator().manual_seed(self.seed)
        hidden = not sys.stdout.isatty()
        for _ in track(range(self.controls), f"{place.site}: random controls", transient=True, disable=hidden):
            basis = random_basis(embedding.shape[1], generator)
            for rank, found in by_rank.items():
                found.append(accuracy(project_away(x, basis[:, :rank])(embedding)))
            for removed, found in by_variance.items():
                found.append(accuracy(project_away_variance(x, basis, removed)(embedding)))
        return {
            key: tuple(
                float(f(found)) for found in (by_rank[eraser.rank], by_variance[removed]) for f in (np.mean, min)
            )
            for key, (eraser, removed) in erasers.items()
        }

    def notes(self) -> list[str]:
        """For addition, what its value probe cannot show, and the paper's number beside the measured one."""
        return [LINEAR, PAPER] if self.task.name == "add" and "value" in self.concepts else []

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """What matters most: variance removed, probe error and accuracy after it, and the control of equal variance."""
        return super().table(rows[["seed", *SHOWN]]).rename(columns=SHOWN)

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Accuracy after each erasure, a panel a site: all pairs, unseen pairs, and both kinds of random control."""
        sites = list(rows["site"].unique())
        across = min(len(sites), 4)
        down = -(-len(sites) // across)
        width = 9.2 if across == 1 else 1.8 + 2.4 * across
        height = 1.2 + (0.5 + 0.2 * len(_lines(rows))) * down
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        panels = figure.subplots(down, across, squeeze=False)
        legend: dict[str, Any] = {}
        for i, (ax, site) in enumerate(zip(panels.flat, sites, strict=False)):
            at_site = rows[rows["site"] == site]
            _draw(ax, at_site)
            ax.tick_params(axis="y", labelleft=i % across == 0)
            if len(sites) == 1:
                _write_margin(ax, at_site)
            if (self.task.name, site, self.iterations) == ("add", "dec.3", 2):
                _draw_published(ax, at_site)
            ax.set_title(site, loc="left", fontsize=10)
            legend |= {label: mark for mark, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        for ax in panels.flat[len(sites) :]:
            ax.set_visible(False)
        figure.legend([*legend.values()], [*legend], loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
        seeds = rows["seed"].nunique()
        over = f"mean and range of {seeds} seeds" if seeds > 1 else "1 seed"
        figure.suptitle(f"{self.task.name}: sequence accuracy after erasing a concept, {over}", fontsize=11)
        return figure


class Place:
    """A site of a network: its embeddings of all pairs, and how well the network goes on from others put there."""

    def __init__(self, subject: Subject, site: str) -> None:
        self.network, self.site = subject.network, site
        self.device = next(self.network.parameters()).device
        pairs = subject.task.examples()
        self.prompt, self.completion = (
            torch.as_tensor(t, device=self.device) for t in (pairs.prompt, pairs.completion)
        )
        self.answer_in = shift_right(self.completion)
        self.x = embeddings(self.network, self.prompt, self.answer_in, [site])[site].cpu()  # (N, d)
        if not self.x.isfinite().all():
            raise UserError(
                f"{subject.name}: embeddings of seed {subject.seed} at probe.site={site} are not all finite"
            )

    def accuracy(self, pairs: Tensor) -> Callable[[Tensor], float]:
        """Some of the pairs (M,) -> a function of embeddings (M, d): the share of answers that come out right."""
        pairs = pairs.to(self.device)
        completion = self.completion[pairs]
        go_on = Continuation(self.network, self.site, self.prompt[pairs], self.answer_in[pairs])

        def measure(embedding: Tensor) -> float:
            right = go_on(embedding.to(self.device)).argmax(dim=-1) == completion  # (M, m)
            return float(right.all(dim=-1).double().mean())

        return measure


def probe_error(z: Tensor, predicted: Tensor) -> float:
    """Root mean squared error for numbers, error rate for bits, of (N, k); a tie between 0 and 1 counts as 0."""
    if ((z == 0) | (z == 1)).all():
        return float((z != (predicted > 0.5 + ROUNDING)).double().mean())
    return float((z - predicted).square().mean().sqrt())


def baseline(task: Task, z: Tensor) -> float:
    """`probe_error` of a linear probe of a concept (N, k) that is given the operands' bits and no embedding."""
    pairs = task.examples()
    operands = np.hstack([to_bits(pairs.a, task.bits), to_bits(pairs.b, task.bits)])  # (N, 2 * bits)
    return probe_error(z, refit(whiten(torch.as_tensor(operands)), z))


def _listed(chosen: str | Sequence[str]) -> list[str]:
    return [chosen] if isinstance(chosen, str) else list(dict.fromkeys(chosen))


def _choose(key: str, chosen: str | Sequence[str] | None, known: Collection[str]) -> list[str]:
    """What was chosen; None means all there are."""
    names = list(known) if chosen is None else _listed(chosen)
    for name in names:
        if name not in known:
            raise bad_value(f"probe.{key}", name, f"null for all, or some of {', '.join(known)}")
    return names


def _lines(rows: pd.DataFrame) -> list[tuple[str, str | None]]:
    """The lines of a panel, from the top: each concept alone, as a heading, and then with each of its methods."""
    lines: list[tuple[str, str | None]] = []
    for concept, group in rows.groupby("concept", sort=False):
        lines += [(str(concept), None), *((str(concept), str(method)) for method in group["method"].unique())]
    return lines


def _draw(ax: Axes, rows: pd.DataFrame) -> None:
    """A dot and a ring for each erasure, a bar from worst to mean for its controls; whiskers range over the seeds."""
    lines = _lines(rows)
    at = np.array([i for i, (_, method) in enumerate(lines) if method])
    groups = rows.groupby(["concept", "method"], sort=False)
    mean, low, high = groups.mean(numeric_only=True), groups.min(numeric_only=True), groups.max(numeric_only=True)
    ax.hlines(at, 0, 1, color=GREY, alpha=0.25, linewidth=0.6)
    for control, offset, colour, label in (
        ("control_rank", -0.28, GREY, "random directions, same rank: mean to worst (above)"),
        ("control_variance", 0.28, ORANGE, "random directions, same variance: mean to worst (below)"),
    ):
        worst, middle = low[f"{control}_min"], mean[f"{control}_mean"]
        ax.barh(at + offset, middle - worst, left=worst, height=0.3, color=colour, alpha=0.35, linewidth=0)
        ax.plot(middle, at + offset, "|", color=colour, markersize=6, markeredgewidth=2, label=label)
    for column, face, size, label in (
        ("seq_acc_after_unseen", "white", 8.0, "fitted on half of the pairs, measured on the others"),
        ("seq_acc_after", BLUE, 4.5, "fitted and measured on all pairs"),
    ):
        if rows["seed"].nunique() > 1:
            ax.hlines(at, low[column], high[column], color=BLUE, linewidth=1.2)
        ax.plot(mean[column], at, "o", color=BLUE, markerfacecolor=face, markersize=size, label=label)
    ax.set_yticks(range(len(lines)), [method or concept for concept, method in lines], fontsize=8.5)
    for tick, (_, method) in zip(ax.get_yticklabels(), lines, strict=True):
        tick.set_fontweight("normal" if method else "bold")
    ax.set(xlim=(-0.03, 1.03), ylim=(len(lines) - 0.4, -0.6))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    tidy(ax)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_published(ax: Axes, rows: pd.DataFrame) -> None:
    """The paper's one number, in its line."""
    lines = _lines(rows)
    if ("value", "inlp") in lines:
        label = "published: 0.13% (appendix D); the authors' own weights give 100%"
        ax.plot(PUBLISHED, lines.index(("value", "inlp")), "x", color="black", markeredgewidth=1.6, label=label)


def _write_margin(ax: Axes, rows: pd.DataFrame) -> None:
    """Right of each line: what was erased, and what a fresh probe makes of the rest."""
    means = rows.groupby(["concept", "method"]).mean(numeric_only=True)
    texts = []
    for line in _lines(rows):
        mean = means.loc[line] if line[1] else None
        texts.append("" if mean is None else f"{mean['rank']:>3.0f}{mean['variance_removed']:>9.1%}{_change(mean):>17}")
    texts[0] = f"{'rank':>4}{'variance':>10}{'probe error':>14}"
    margin = ax.secondary_yaxis("right")
    margin.set_yticks(range(len(texts)), texts, fontsize=8, family="monospace")
    margin.tick_params(length=0)
    margin.spines[:].set_visible(False)


def _change(mean: pd.Series) -> str:
    """``0.267 -> 0.393``"""
    return f"{mean['probe_error_before']:.3g} \N{RIGHTWARDS ARROW} {mean['probe_error_after']:.3g}"
