"""Does the model need a concept that its embeddings hold? Erase it and measure accuracy (paper, appendix D)."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression
from torch import Tensor

from ..errors import UserError, bad_value
from ..interp import erasure
from ..interp.erasure import Eraser, Whitened, refit, whiten
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import chosen_sites
from ..models import Transformer
from ..plots.course import Course
from ..plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    bounded,
    canvas,
    grid,
    headline,
    legend_below,
    seeds_text,
    tidy,
)
from ..tasks import Task
from .probe import Natural, Positive, Probe, listed

Key = tuple[str, str]  # concept, method
Method = Literal["inlp", "mean_projection", "leace"]
METHODS: dict[str, Callable[[Whitened, Tensor, int], Eraser]] = {
    "inlp": erasure.inlp,
    "mean_projection": lambda x, z, iterations: erasure.mean_projection(x, z),
    "leace": lambda x, z, iterations: erasure.leace(x, z),
}
SAMPLE = 1024  # pairs on which random erasures are measured
ROUNDING = 1e-6
SHOWN = {name: name for name in ("site", "concept", "method")}  # on the terminal, in its eighty characters
SHOWN |= {"variance_removed": "variance", "probe_error_after": "error", "seq_acc_after": "accuracy"}
SHOWN |= {"control_variance_mean": "random", "control_signs_mean": "flipped"}
ACCURACIES = (
    *("seq_acc_before", "seq_acc_after", "seq_acc_after_unseen"),
    *(f"control_{kind}_{what}" for kind in ("rank", "variance", "signs") for what in ("mean", "min")),
)
LINEAR = (
    "a value probe of addition cannot distinguish the paper's hypotheses: the sum is linear in the operands' bits, so "
    "a linear probe reads it without error from the bare bits too (baseline_operand_bits is 0)"
)
PAPER = (
    "the paper (appendix D) reports that two INLP iterations on the value at dec.3 of addition leave an accuracy of "
    "0.13%; the authors' own released weights give 100% (docs/found/amnesic.md)"
)
PUBLISHED = 0.0013
DRAWN_NUMBERS = (
    *("seed", "iterations", "seq_acc_after", "seq_acc_after_unseen"),
    *("control_rank_mean", "control_rank_min", "control_variance_mean", "control_variance_min"),
)
DRAWN: Mapping[str, type] = dict.fromkeys(("site", "concept", "method"), str) | dict.fromkeys(DRAWN_NUMBERS, float)
CONTROLS = (  # columns, place below the line of an erasure, colour, label
    ("control_rank", -0.3, GREY, "random directions, same rank (bar above)"),
    ("control_variance", 0.19, ORANGE, "random directions, same variance (first bar below)"),
    ("control_signs", 0.37, GREEN, "same erasure of a random concept, signs flipped (second bar below)"),
)


def draw_erasures(rows: pd.DataFrame, title: str, published: bool) -> Figure:
    """Draw accuracy after each erasure, one panel per site: all pairs, unseen pairs and the random controls.

    Rows of older versions lack the control with flipped signs. ``published``: whether the paper's number applies.
    """
    rows, sites_left_out = bounded(rows, ("site",))
    rows, lines_left_out = bounded(rows, ("concept", "method"))
    sites = list(rows["site"].unique())
    across = min(len(sites), 4)
    width = max(9.2, 1.8 + 2.4 * across)
    height = 1.2 + (0.5 + 0.24 * len(_lines(rows))) * -(-len(sites) // across)
    figure = canvas(width, height)
    for i, (ax, site) in enumerate(zip(grid(figure, len(sites), across), sites, strict=True)):
        at_site = rows[rows["site"] == site]
        _draw(ax, at_site)
        ax.tick_params(axis="y", labelleft=i % across == 0)
        if published and site == "dec.3" and ("value", "inlp") in (lines := _lines(at_site)):
            label = "published: 0.13%"
            ax.plot(PUBLISHED, lines.index(("value", "inlp")), "x", color="black", markeredgewidth=1.6, label=label)
        headline(ax, site)
    legend_below(figure, columns=2)
    over = "mean and range of " * (rows["seed"].nunique() > 1) + seeds_text(rows)
    figure.suptitle(f"{title}, {over}{sites_left_out or lines_left_out}", fontsize=11)
    return figure


def _lines(rows: pd.DataFrame) -> list[tuple[str, str | None]]:
    """The lines of a panel from the top: each concept as a heading, then one line for each of its methods."""
    lines: list[tuple[str, str | None]] = []
    for concept, group in rows.groupby("concept", sort=False):
        lines += [(str(concept), None), *((str(concept), str(method)) for method in group["method"].unique())]
    return lines


def _draw(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw a dot and a ring for each erasure, whiskers over its seeds, a bar from worst to mean for each control."""
    lines = _lines(rows)
    at = np.array([i for i, (_, method) in enumerate(lines) if method])
    groups = rows.groupby(["concept", "method"], sort=False)
    mean, low, high = groups.mean(numeric_only=True), groups.min(numeric_only=True), groups.max(numeric_only=True)
    ax.hlines(at, 0, 1, color=GREY, alpha=0.25, linewidth=0.6)
    if "seq_acc_before" in rows:
        ax.axvline(rows["seq_acc_before"].mean(), color=INK, linestyle=":", linewidth=1.2, label="before erasure")
    for control, offset, colour, label in CONTROLS:
        if f"{control}_mean" in mean:
            worst, middle = low[f"{control}_min"], mean[f"{control}_mean"]
            ax.barh(at + offset, middle - worst, left=worst, height=0.16, color=colour, alpha=0.35, linewidth=0)
            ax.plot(middle, at + offset, "|", color=colour, markersize=5, markeredgewidth=2, label=label)
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
    tidy(ax, "x")
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


class Amnesic(Probe):
    """Erase concepts from the embeddings at a site, and measure how often the whole answer is still right.

    Erasers are fitted on the embeddings with correct prefixes. The erased embeddings replace them, and the layers above
    run. One teacher-forced pass gives the accuracy: all tokens right, each after the right prefix. The columns:

    - ``iterations``: of INLP; 1 for the other two methods. ``rank``: number of directions erased.
    - ``variance_removed``: E|x - r(x)|^2 / tr Cov(x).
    - ``probe_error_before``, ``_after``: of a linear probe of the concept, fitted afresh each time: for numbers the
      root mean squared error over all columns, in units of the number; for bits the error rate.
      ``baseline_operand_bits``: of the same probe on the operands' digits instead of the embedding.
    - ``seq_acc_before``, ``_after``: fitted and measured on all pairs, the paper's way. ``seq_acc_after_unseen``:
      fitted on a random half, measured on the other.
    - Controls, mean and worst accuracy on 1,024 pairs, after removing random orthonormal directions or concepts:
      ``control_rank_*`` as many as ``rank``; ``control_variance_*`` as many as remove the same variance, the last of
      them in part; ``control_signs_*`` the same erasure of a random concept (`flip_signs`).

    Args:
        concept, method: a name, a list of them, or None for all.

    Raises:
        UserError: for an unknown site, concept or method; the message lists the known ones.
    """

    columns = (
        *("seed", "site", "concept", "method", "iterations", "rank", "variance_removed"),
        *("probe_error_before", "probe_error_after", *ACCURACIES, "baseline_operand_bits"),
    )
    units: ClassVar[dict[str, str]] = {"rank": "number", **dict.fromkeys(ACCURACIES, "accuracy")}

    def __init__(
        self,
        subjects: Sequence[Hooked],
        site: str | Sequence[str] = "dec.3",
        concept: str | Sequence[str] | None = None,
        method: Method | Sequence[Method] | None = None,
        iterations: Positive = 2,
        controls: Positive = 100,
        seed: Natural = 0,
    ) -> None:
        self.subjects, self.task = subjects, subjects[0].task
        self.sites = chosen_sites(subjects, site)
        known = self.task.concept_names
        self.concepts, self.methods = listed(concept or known), listed(method or METHODS)
        for name in self.concepts:
            if name not in known:
                raise bad_value("probe.concept", name, f"null for all, or some of {', '.join(known)}")
        self.iterations, self.controls, self.seed = iterations, controls, seed

    def rows(self) -> Iterator[dict[str, Any]]:
        concepts = self.task.concepts(self.task.examples())
        targets = {name: torch.as_tensor(z) for name, z in concepts.items() if name in self.concepts}
        baselines = {name: baseline(self.task, z) for name, z in targets.items()}
        for subject, name in product(self.subjects, self.sites):
            for concept, method, *measures in self._at(Site(subject, name), targets):
                yield self.row(subject.seed, name, concept, method, *measures, baselines[concept])

    def _at(self, site: "Site", targets: dict[str, Tensor]) -> Iterator[tuple[Any, ...]]:
        """Erase every concept by every method at one site: the columns from ``concept`` on, without the baseline."""
        order = torch.as_tensor(np.random.default_rng(self.seed).permutation(len(site.x)))
        seen, unseen = order.chunk(2)
        x, x_seen = whiten(site.x), whiten(site.x[seen])
        accuracy, accuracy_unseen = site.accuracy(torch.arange(len(site.x))), site.accuracy(unseen)
        before = accuracy(site.x)
        erasers = {(c, m): METHODS[m](x, targets[c], self.iterations) for c, m in product(targets, self.methods)}
        removed = {key: erasure.variance_removed(site.x, eraser(site.x)) for key, eraser in erasers.items()}
        controls = self._controls(site, x, order[:SAMPLE], erasers, removed)
        for (concept, method), eraser in erasers.items():
            z, key = targets[concept], (concept, method)
            eraser_seen = METHODS[method](x_seen, z[seen], self.iterations)
            errors = probe_error(z, refit(x, z)), probe_error(z, refit(x, z, eraser))
            after = accuracy(eraser(site.x)), accuracy_unseen(eraser_seen(site.x[unseen]))
            iterations = self.iterations if method == "inlp" else 1
            yield *key, iterations, eraser.rank, removed[key], *errors, before, *after, *controls[key]

    def _controls(
        self, site: "Site", x: Whitened, pairs: Tensor, erasers: dict[Key, Eraser], removed: dict[Key, float]
    ) -> dict[Key, list[float]]:
        """Mean and worst accuracy after random erasures: of the same rank, of the same variance, with flipped signs."""
        accuracy, embedding = site.accuracy(pairs), site.x[pairs]
        found: dict[tuple[str, Any], list[float]] = defaultdict(list)  # erasures of one rank share a control
        generator, signs = (torch.Generator().manual_seed(self.seed) for _ in range(2))
        for _ in range(self.controls):
            basis = erasure.random_basis(embedding.shape[1], generator)
            state = signs.get_state()
            random: dict[tuple[str, Any], Eraser] = {}
            for key, eraser in erasers.items():
                signs.set_state(state)  # the same axes for every erasure
                random["rank", eraser.rank] = erasure.project_away(x, basis[:, : eraser.rank])
                random["variance", removed[key]] = erasure.project_away_variance(x, basis, removed[key])
                random["signs", key] = erasure.flip_signs(x, eraser, signs)
            for kind, control in random.items():
                found[kind].append(accuracy(control(embedding)))
        kinds = {key: [("rank", one.rank), ("variance", removed[key]), ("signs", key)] for key, one in erasers.items()}
        return {key: [float(f(found[kind])) for kind in three for f in (np.mean, min)] for key, three in kinds.items()}

    def notes(self) -> list[str]:
        return [LINEAR, PAPER] if self.task.name == "add" and "value" in self.concepts else []

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super().table(rows[["seed", *SHOWN]]).rename(columns=SHOWN)

    def course(self, rows: pd.DataFrame) -> Course:
        lines = ("concept", "method")
        return Course.of(rows, self.sheet("", rows), "seq_acc_after", lines, "site", "sequence accuracy after erasure")

    def figure(self, rows: pd.DataFrame) -> Figure:
        title = f"{self.task.name}: sequence accuracy after erasing a concept"
        networks = all(isinstance(subject.network, Transformer) for subject in self.subjects)
        published = networks and (self.task.name, self.task.bits, self.iterations) == ("add", 7, 2)
        return draw_erasures(rows, title, published)


class Site:
    """A site of a network: its embeddings of all pairs, and the accuracy with other embeddings instead."""

    def __init__(self, model: Hooked, name: str) -> None:
        self.model, self.name = model, name
        self.examples = model.task.examples()
        _, cache = model.run_with_cache(self.examples, [name])
        self.shape = cache[name].shape[1:]
        self.x = cache[name].flatten(1).cpu()  # (N, d)
        if not self.x.isfinite().all():
            what = f"embeddings of seed {model.seed} at probe.site={name}"
            raise UserError(f"{model.name}: {what} contain NaN or infinity")

    def accuracy(self, pairs: Tensor) -> Callable[[Tensor], float]:
        """Pairs (M,) -> a function of their embeddings (M, d): the share of right answers."""
        examples = self.examples[pairs.numpy()]
        completion = torch.as_tensor(examples.completion, device=self.model.device)
        rest = self.model.resume_from(self.name, examples)

        def measure(embedding: Tensor) -> float:
            erased = embedding.to(self.model.device).unflatten(1, self.shape)
            right = rest([Replace(self.name, None, erased)]).argmax(dim=-1) == completion  # (M, m)
            return float(right.all(dim=-1).double().mean())

        return measure


def probe_error(z: Tensor, predicted: Tensor) -> float:
    """Root mean squared error for numbers, error rate for bits, of (N, k); a tie between 0 and 1 counts as 0."""
    if ((z == 0) | (z == 1)).all():
        return float((z != (predicted > 0.5 + ROUNDING)).double().mean())
    return float((z - predicted).square().mean().sqrt())


def baseline(task: Task, z: Tensor) -> float:
    """`probe_error` of a linear probe of a concept (N, c) that is given the operands' digits and no embedding."""
    digits = task.operand_digits(task.examples().operands)  # (N, k * bits)
    return probe_error(z, torch.as_tensor(LinearRegression().fit(digits, z).predict(digits)))
