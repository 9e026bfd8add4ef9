"""Does a network need a concept in its embeddings? Erase the concept and measure accuracy (paper, appendix D)."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression
from torch import Tensor

from ..errors import bad_value
from ..interp import erasure
from ..interp.erasure import Eraser, Whitened, refit, whiten
from ..interp.hooked import Hooked
from ..interp.interchange import finite_cache
from ..interp.interventions import Erase
from ..interp.sites import chosen_sites
from ..models import Transformer
from ..models.network import sequence_correct
from ..plots.curves import EpochCurves
from ..plots.probe_figures import draw_erasures
from ..tasks import Task
from .probe import Natural, OneOrMore, Positive, Probe, listed

Key = tuple[str, str]  # concept, method
Method = Literal["inlp", "mean_projection", "leace"]
METHODS: dict[str, Callable[[Whitened, Tensor, int], Eraser]] = {
    "inlp": erasure.inlp,
    "mean_projection": lambda x, z, iterations: erasure.mean_projection(x, z),
    "leace": lambda x, z, iterations: erasure.leace(x, z),
}
SAMPLE = 1024  # pairs on which random erasures are measured
ROUNDING = 1e-6
SHOWN = {name: name for name in ("site", "concept", "method")}  # columns of the table, in eighty characters
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


class Amnesic(Probe):
    """Erase concepts from the embeddings at a site, and measure how often the whole answer is still right.

    Erasers are fitted under teacher forcing. The layers above the site then run on the erased embeddings. An answer is
    right if all its tokens are, each after the right prefix. The columns:

    - ``iterations``: of INLP; 1 for the other two methods. ``rank``: number of directions erased.
    - ``variance_removed``: E|x - r(x)|^2 / tr Cov(x).
    - ``probe_error_before``, ``_after``: error of a linear probe of the concept, refitted after the erasure. For
      numbers it is the root mean squared error over all columns, in units of the number; for bits the error rate.
      ``baseline_operand_bits``: error of the same probe on the operands' digits instead of the embedding.
    - ``seq_acc_before``, ``_after``: fitted and measured on all pairs, as in the paper. ``seq_acc_after_unseen``:
      fitted on a random half, measured on the other.
    - Controls, with mean and worst accuracy on 1,024 pairs: ``control_rank_*`` erases ``rank`` random orthonormal
      directions; ``control_variance_*`` erases as many as remove the same variance, the last one in part;
      ``control_signs_*`` erases a random concept in the same way (`flip_signs`).

    Args:
        concept, method: a name, a list of names, or None for all.

    Raises:
        UserError: for an unknown site, concept or method. The message lists the known ones.
    """

    columns = (
        *("seed", "site", "concept", "method", "iterations", "rank", "variance_removed"),
        *("probe_error_before", "probe_error_after", *ACCURACIES, "baseline_operand_bits"),
    )
    units: ClassVar[dict[str, str]] = {"rank": "number", **dict.fromkeys(ACCURACIES, "accuracy")}

    def __init__(
        self,
        models: Sequence[Hooked],
        site: OneOrMore[str] = "dec.3",
        concept: OneOrMore[str] | None = None,
        method: OneOrMore[Method] | None = None,
        iterations: Positive = 2,
        controls: Positive = 100,
        seed: Natural = 0,
    ) -> None:
        self.models, self.task = models, models[0].task
        self.sites = chosen_sites(models, site)
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
        for model, name in product(self.models, self.sites):
            for concept, method, *measures in self._at(model, name, targets):
                yield self.row(model.seed, name, concept, method, *measures, baselines[concept])

    def _at(self, model: Hooked, site: str, targets: dict[str, Tensor]) -> Iterator[tuple[Any, ...]]:
        """Erase every concept by every method at one site; yields the columns from ``concept`` to the controls."""
        embeddings = finite_cache(model, self.task.examples(), [site])[site].flatten(1).cpu()  # (N, d)
        order = torch.as_tensor(np.random.default_rng(self.seed).permutation(len(embeddings)))
        seen, unseen = order.chunk(2)
        x, x_seen = whiten(embeddings), whiten(embeddings[seen])
        of_all, of_unseen = accuracy(model, site, torch.arange(len(order))), accuracy(model, site, unseen)
        before = of_all()
        erasers = {(c, m): METHODS[m](x, targets[c], self.iterations) for c, m in product(targets, self.methods)}
        removed = {k: erasure.variance_removed(embeddings, eraser(embeddings)) for k, eraser in erasers.items()}
        controls = self._controls(accuracy(model, site, order[:SAMPLE]), x, erasers, removed)
        for (concept, method), eraser in erasers.items():
            z, key = targets[concept], (concept, method)
            eraser_seen = METHODS[method](x_seen, z[seen], self.iterations)
            errors = probe_error(z, refit(x, z)), probe_error(z, refit(x, z, eraser))
            after = of_all(eraser), of_unseen(eraser_seen)
            iterations = self.iterations if method == "inlp" else 1
            yield *key, iterations, eraser.rank, removed[key], *errors, before, *after, *controls[key]

    def _controls(
        self, measure: Callable[..., float], x: Whitened, erasers: dict[Key, Eraser], removed: dict[Key, float]
    ) -> dict[Key, list[float]]:
        """Mean and worst accuracy after each kind of random erasure: same rank, same variance, flipped signs."""
        accuracies: dict[tuple[str, Any], list[float]] = defaultdict(list)  # erasures of one rank share a control
        generator, signs = (torch.Generator().manual_seed(self.seed) for _ in range(2))
        for _ in range(self.controls):
            basis = erasure.random_basis(len(x.mean), generator)
            state = signs.get_state()
            random: dict[tuple[str, Any], Eraser] = {}
            for key, eraser in erasers.items():
                signs.set_state(state)  # the same axes for every erasure
                random["rank", eraser.rank] = erasure.project_away(x, basis[:, : eraser.rank])
                random["variance", removed[key]] = erasure.project_away_variance(x, basis, removed[key])
                random["signs", key] = erasure.flip_signs(x, eraser, signs)
            for kind, control in random.items():
                accuracies[kind].append(measure(control))
        controls = {}
        for key, eraser in erasers.items():
            of_kinds = [
                accuracies[kind] for kind in (("rank", eraser.rank), ("variance", removed[key]), ("signs", key))
            ]
            controls[key] = [float(f(of_kind)) for of_kind in of_kinds for f in (np.mean, min)]
        return controls

    def notes(self) -> list[str]:
        return [LINEAR, PAPER] if self.task.name == "add" and "value" in self.concepts else []

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super().table(rows[["seed", *SHOWN]]).rename(columns=SHOWN)

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        label = "sequence accuracy after erasure"
        return EpochCurves.of(rows, "seq_acc_after", ("concept", "method"), "site", label, "accuracy")

    def figure(self, rows: pd.DataFrame) -> Figure:
        networks = all(isinstance(model.network, Transformer) for model in self.models)
        published = networks and (self.task.name, self.task.bits, self.iterations) == ("add", 7, 2)
        return draw_erasures(rows, self.task.name, published)


def accuracy(model: Hooked, site: str, pairs: Tensor) -> Callable[..., float]:
    """A function that measures the share of right answers to ``pairs`` (M,), rows of the table, after an erasure."""
    examples = model.task.examples()[pairs.numpy()]
    completion = torch.as_tensor(examples.completion, device=model.device)
    resumed = model.resume_from(site, examples)

    def measure(*erasers: Eraser) -> float:
        tokens = resumed([Erase(site, None, eraser) for eraser in erasers]).argmax(dim=-1)  # (M, m)
        return float(sequence_correct(tokens, completion).double().mean())

    return measure


def probe_error(z: Tensor, predicted: Tensor) -> float:
    """Error of predictions (N, k): root mean squared for numbers, error rate for bits, where a tie counts as 0."""
    if ((z == 0) | (z == 1)).all():
        return float((z != (predicted > 0.5 + ROUNDING)).double().mean())
    return float((z - predicted).square().mean().sqrt())


def baseline(task: Task, z: Tensor) -> float:
    """`probe_error` of a linear probe of a concept (N, c) on the operands' digits instead of embeddings."""
    digits = task.operand_digits(task.examples().operands)  # (N, k * bits)
    return probe_error(z, torch.as_tensor(LinearRegression().fit(digits, z).predict(digits)))
