"""Interchange interventions: test whether a network answers as a causal model predicts (Geiger et al., 2021).

>>> import arith_erd as ae
>>> model = ae.load_pretrained("add-nanogpt")
>>> adder = ae.CausalModel(model.task, variables={
...     "xor": lambda a, b: a ^ b,
...     "carry": lambda a, b: (a + b) ^ a ^ b,
...     "sum": lambda xor, carry: xor ^ carry,
... })
>>> data = ae.CounterfactualDataset.sample(adder, vary="carry", keep=["xor"], n=40)
>>> train, test = data.split()
>>> found = ae.interchange_accuracy(model, adder, test, sites=["dec.1"], variable="carry")
>>> found[["position", "no_intervention", "n"]].tail(2)
   position  no_intervention   n
22       r7              0.5  20
23      all              0.5  20

Base and source are teacher forced, each with its own right answer. Only the base's activations at a site change. An
interchange at answer position t is scored by token t of the answer. At positions of the prompt, and at all positions of
a site together, all tokens are scored. In a decoder-only network "all positions" are those of the answer.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checks import require_type
from ..errors import UserError
from ..models.network import Network
from ..system.isolation import isolated
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset
from .hooked import Hooked, ResumedRun, finite_cache, select_position
from .interventions import Features, Interchange, Position, Subspace
from .sites import expand_sites


@isolated()
def interchange_accuracy(
    model: Hooked,
    causal_model: CausalModel,
    data: CounterfactualDataset,
    intervention: Interchange | None = None,
    *,
    sites: str | Sequence[str] | None = None,
    variable: str | None = None,
) -> pd.DataFrame:
    """Measure how often a causal model predicts the answers after an interchange.

    Args:
        causal_model: the hypothesis; it need not be the causal model with which the data were drawn.
        intervention: the site, position and subspace; its source is taken from the data.
        sites: sites to test instead of ``intervention``; ``all`` for the layers. Whole activations are interchanged, at
            all positions together and at each single one, also of the prompt. If the data vary one digit, only its
            position is tested in the answer.
        variable: by default the one that the data vary.

    Returns:
        A table with ``site``, ``position`` and these shares: ``changed``, the accuracy on tokens that should change;
        ``kept``, on the others; ``accuracy``, the mean of both (``changed`` alone if all should change, NaN if none
        should); ``no_intervention``, the accuracy without an intervention. Then ``n``, ``variable``, and in
        ``same_predictions`` other variables that predict the same answers, so that the data cannot distinguish them.

    Raises:
        UserError: for an unknown site, position or variable, an interchange that changes no answer, or a causal model
            or data of another task.
    """
    data, variable = prepare_pairs(model, causal_model, data, variable)
    if (intervention is None) == (not sites):
        received = "neither" if intervention is None else "both"
        raise UserError(f"interchange_accuracy: received {received}; expected either an intervention or sites")
    if intervention is not None and not isinstance(intervention, Interchange):
        received = type(intervention).__name__
        raise UserError(f"interchange_accuracy: received a {received}; expected an Interchange, or sites=[..]")
    sites = expand_sites(model.sites, sites or [])
    predicted = data.expected(variable)
    others = []
    for other in causal_model.variables:
        with suppress(UserError):  # other variables may have interchanges without a valid answer
            others += [other] if other != variable and np.array_equal(data.expected(other), predicted) else []
    cache = finite_cache(model, data.source_examples, [intervention.site] if intervention else sites, True)
    answer_names = model.task.answer_names
    scored = answer_names if data.digit is None else [answer_names[model.task.answer_positions[data.digit]]]
    rows = []
    for site, source in cache.items():
        positions = model.site_positions(site, source).by_name(model.task)
        names = [name for name in positions if name in scored or name not in answer_names]
        tested = [intervention] if intervention else [Interchange(site, name) for name in (*names, None)]
        resumed = model.resume_from(site, data.base_examples)
        tokens_before = resumed().argmax(dim=-1)
        for change in tested:
            evaluation = PairEvaluation(model, data, site, change.position, variable, source, resumed, change.head)
            expected, base_tokens = evaluation.expected, evaluation.base_tokens
            tokens, unchanged = evaluation.tokens(change.subspace), tokens_before[:, evaluation.scored_positions]
            changed, kept = changed_and_kept(tokens, expected, base_tokens)
            row: dict[str, Any] = {"site": site, "position": "all" if change.position is None else change.position}
            row |= {"accuracy": balanced_accuracy(tokens, expected, base_tokens), "changed": changed, "kept": kept}
            row |= {"no_intervention": balanced_accuracy(unchanged, expected, base_tokens), "n": len(data)}
            rows.append(row | {"variable": variable, "same_predictions": ", ".join(others)})
    return pd.DataFrame(rows)


def prepare_pairs(
    model: Hooked, causal_model: CausalModel, data: CounterfactualDataset, variable: str | None
) -> tuple[CounterfactualDataset, str]:
    """The pairs with this causal model, and the variable to interchange, by default the one that the pairs vary.

    Raises a `UserError` if their task is not the network's, or if the variable changes no answer.
    """
    require_type("model", model, Hooked)
    require_type("causal_model", causal_model, CausalModel)
    require_type("data", data, CounterfactualDataset)
    for name, task in (("causal model", causal_model.task), ("data", data.causal_model.task)):
        if not task.same_as(model.task):
            raise UserError(f"{name}: received one for {task}; expected the network's task, {model.task}")
    model.require_causal()
    if not len(data):
        raise UserError("data: received no pairs; expected one or more")
    data = replace(data, causal_model=causal_model)
    if variable is None and len(data.family.vary) != 1:
        accepted = ", ".join(causal_model.variables)
        raise UserError(f"variable: not given, and the data do not vary a single one; expected one of {accepted}")
    variable = variable or data.family.vary[0]
    causal_model.require_variables([variable])
    if (data.expected(variable) == causal_model.table["answer"][data.base]).all():
        problem = f"variable={variable}: its interchange changes no answer in these data ({data.family})"
        raise UserError(f"{problem}; draw pairs that differ in it, with vary={variable}")
    return data, variable


class PairEvaluation:
    """n counterfactual pairs at one site and position, with the predicted answers after interchanging a variable.

    Attributes:
        scored_positions: the j answer positions whose tokens are scored.
        source: the source runs' activations (n, T, ...) at the site, prompt included; measured here unless given.
        expected, base_tokens: the predicted tokens (n, j), and the bases' right tokens (n, j).
        forward: the resumed forward pass on the bases, up to the last scored token; made here unless given.
    """

    def __init__(
        self,
        model: Hooked,
        data: CounterfactualDataset,
        site: str,
        position: Position,
        variable: str,
        source: Tensor | None = None,
        forward: ResumedRun | None = None,
        head: int | None = None,
    ) -> None:
        self.site, self.position, self.head, base = site, position, head, data.base_examples
        self.source = finite_cache(model, data.source_examples, [site], True)[site] if source is None else source
        select_position(model, self.source, site, position)  # refuses a position that is not there
        self.scored_positions = model.site_positions(site, self.source).scored(position, model.task)
        predicted = model.task.to_tokens(data.expected(variable))
        self.expected, self.base_tokens = (
            torch.as_tensor(tokens, device=model.device)[:, self.scored_positions]
            for tokens in (predicted, base.completion)
        )
        prompt, answer_in = model.inputs(base)
        if isinstance(model.network, Network) and not site.endswith(".pattern"):  # a pattern would have fewer keys
            answer_in = answer_in[:, : max(self.scored_positions) + 1]
        self.forward = forward or model.resume_from(site, (prompt, answer_in))

    def logits(self, subspace: Subspace | Features | None) -> Tensor:
        """Logits (n, j, V) with the subspace interchanged, or the whole activation (None); gradients pass."""
        interchange = Interchange(self.site, self.position, subspace, self.source, head=self.head)
        return self.forward([interchange])[:, self.scored_positions]

    def tokens(self, subspace: Subspace | Features | None) -> Tensor:
        return self.logits(subspace).argmax(dim=-1)

    def accuracy(self, subspace: Subspace | Features | None) -> float:
        """`balanced_accuracy` with the subspace interchanged, or the whole activation (None)."""
        return balanced_accuracy(self.tokens(subspace), self.expected, self.base_tokens)

    def no_intervention(self) -> float:
        return balanced_accuracy(self.forward()[:, self.scored_positions].argmax(-1), self.expected, self.base_tokens)


def balanced_accuracy(tokens: Tensor, expected: Tensor, base_tokens: Tensor) -> float:
    """Interchange-intervention accuracy: the mean of two accuracies, on tokens that should change and on the others.

    The arguments are tokens (n, k): the network's, the causal model's, and the bases' right tokens. A network that is
    always right scores 0.5 without an intervention. NaN if no token should change.
    """
    changed, kept = changed_and_kept(tokens, expected, base_tokens)
    return changed if math.isnan(kept) else (changed + kept) / 2


def changed_and_kept(tokens: Tensor, expected: Tensor, base_tokens: Tensor) -> tuple[float, float]:
    """The accuracy on tokens that should change, and on those that should not; NaN where there are none."""
    right, should_change = tokens == expected, expected != base_tokens
    return float(right[should_change].double().mean()), float(right[~should_change].double().mean())
