"""Activation patching: run a corrupted input with the clean run's activation at one position of a site.

``recovered`` is (patched - corrupted) / (clean - corrupted) of a metric: 0 if the patch changes nothing, 1 if it
restores the clean run's metric.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checks import require_type
from ..digits import PAD
from ..errors import UserError, first_line
from ..tasks import Examples
from .hooked import Hooked, finite_cache
from .interventions import Replace
from .sites import expand_sites

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metric = Callable[[Tensor], Any]
"""Maps logits (N, m, V) to one number, or to a number for each example (N,); `patch` takes their mean."""


@dataclass(frozen=True)
class PatchResult:
    """The result of `patch`.

    Attributes:
        rows: ``site``, ``position``, ``value`` (the metric of the patched run) and ``recovered``.
        clean: the metric of the clean run.
        corrupted: the metric of the corrupted run without a patch.
    """

    rows: pd.DataFrame
    clean: float
    corrupted: float

    def table(self) -> pd.DataFrame:
        """``recovered``, by site (rows) and position (columns)."""
        return self.rows.pivot_table(index="site", columns="position", values="recovered", sort=False)

    def figure(self) -> "Figure":
        """A heat map of ``recovered``, with a panel for each group of sites that have the same positions."""
        from ..plots.panels import draw_patching  # not at the top: loads matplotlib

        return draw_patching(self.rows)


def patch(
    model: Hooked,
    clean: Examples,
    corrupted: Examples,
    sites: str | Sequence[str] | None = "all",
    metric: Metric | None = None,
) -> PatchResult:
    """Patch each position of each site of the corrupted run with the activation of the clean one.

    >>> import arith_erd as ae
    >>> model = ae.load_pretrained("add-nanogpt")
    >>> clean, corrupted = model.task.examples([3], [5]), model.task.examples([2], [5])
    >>> found = patch(model, clean, corrupted, sites="dec.*.attn.z")
    >>> found.table().shape  # layers, positions of prompt and answer
    (6, 23)

    Args:
        clean: N examples. Row i is paired with row i of ``corrupted``.
        sites: names and patterns, such as ``dec.*.attn.z``; ``all`` stands for the layers.
        metric: a number from logits (N, m, V). By default the clean token's logit minus the corrupted token's, over the
            answer tokens in which the two differ, without padding.

    Raises:
        UserError: for unknown sites, unequal numbers of examples, a metric that returns something else, or one that is
            equal in both runs.
    """
    require_type("patch: model", model, Hooked)
    require_type("patch: clean", clean, Examples)
    require_type("patch: corrupted", corrupted, Examples)
    if len(clean) != len(corrupted):
        raise UserError(f"patch: {len(clean)} clean and {len(corrupted)} corrupted examples; expected equal numbers")
    score = metric or logit_difference(model, clean, corrupted)
    clean_value, corrupted_value = (_value(score, model.run(examples)) for examples in (clean, corrupted))
    if clean_value == corrupted_value:
        raise UserError(f"patch: the metric is {clean_value:g} in both runs; expected runs in which it differs")
    rows = []
    for site, position, logits in patched_runs(model, clean, corrupted, expand_sites(model.sites, sites)):
        value = _value(score, logits)
        recovered = (value - corrupted_value) / (clean_value - corrupted_value)
        rows.append({"site": site, "position": position, "value": value, "recovered": recovered})
    return PatchResult(pd.DataFrame(rows), clean_value, corrupted_value)


def patched_runs(
    model: Hooked, clean: Examples, corrupted: Examples, sites: Sequence[str]
) -> Iterator[tuple[str, int | str, Tensor]]:
    """Site, position and logits (N, m, V) of each run of ``corrupted`` with one activation of ``clean``."""
    for site, x in finite_cache(model, clean, sites, include_prompt=True).items():
        forward = model.resume_from(site, corrupted)
        for name, index in model.site_positions(site, x).by_name(model.task).items():
            yield site, name, forward(Replace(site, name, x[:, index]))


def logit_difference(model: Hooked, clean: Examples, corrupted: Examples) -> Metric:
    """The metric: the clean token's logit minus the corrupted token's, for the answer tokens that differ."""
    pair = [model.target_tokens(x) for x in (clean, corrupted)]
    differ = (pair[0] != pair[1]) & (pair[0] != PAD) & (pair[1] != PAD)  # (N, m)
    if not differ.any():
        raise UserError("patch: clean and corrupted have the same answers; expected different answers, or a metric")
    return lambda logits: token_differences(logits, *pair)[differ]


def token_differences(logits: Tensor, clean: Tensor, corrupted: Tensor) -> Tensor:
    """Logits of clean tokens (N, m) minus logits of corrupted tokens (N, m), from all logits (N, m, V) -> (N, m)."""
    clean_logits, corrupted_logits = (logits.gather(-1, x[..., None]).squeeze(-1) for x in (clean, corrupted))
    return (clean_logits - corrupted_logits).double()


def _value(metric: Metric, logits: Tensor) -> float:
    try:
        value = torch.as_tensor(metric(logits)).detach().cpu().double().mean().item()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"patch: metric: {first_line(error)}; expected a number from logits (N, m, V)") from error
    if not np.isfinite(value):
        raise UserError(f"patch: metric: is {value}; expected a finite number")
    return float(value)
