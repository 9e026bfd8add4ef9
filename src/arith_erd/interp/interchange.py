"""Interchange interventions: does a network answer as a causal model predicts (Geiger et al., 2021)?

>>> import arith_erd as ae
>>> model = ae.load_pretrained("add-nanogpt")
>>> adder = ae.CausalModel(model.task, variables={
...     "xor": lambda a, b: a ^ b,
...     "carry": lambda a, b: (a + b) ^ a ^ b,
...     "sum": lambda xor, carry: xor ^ carry,
... })
>>> data = ae.CounterfactualDataset.sample(adder, vary="carry", keep=["xor"], n=40)
>>> train, test = data.split(disjoint="operands")
>>> found = ae.interchange_accuracy(model, adder, test, sites=["dec.1"], variable="carry")
>>> found[["position", "n", "no_intervention"]].tail(2)
  position   n  no_intervention
7        7  20              0.5
8      all  20              0.5

Base and source are teacher forced, each with its own right answer. Only the base's activations at a site change.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..bits import Array
from ..errors import UserError
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset, Family, sources
from .hooked import Hooked
from .interventions import Interchange, Position
from .trials import Activations, Trials, balanced


def interchange_accuracy(
    model: Hooked,
    causal_model: CausalModel,
    data: CounterfactualDataset,
    intervention: Interchange | None = None,
    *,
    sites: Sequence[str] = (),
    variable: str | None = None,
) -> pd.DataFrame:
    """How often the answers after an interchange are those that a causal model predicts.

    At a site with the answer's positions, an interchange at position t is judged by the answer's token t; at any other
    place, and at all positions together, by all of its tokens.

    Args:
        model: with a task.
        causal_model: the hypothesis; it may be another one than the data were drawn by.
        data: bases and sources.
        intervention: where, and in which subspace; its source is taken from the data.
        sites: instead of an intervention: whole activations of each site, at all positions together and at each one, or
            only at the one whose digit the data vary.
        variable: the one that is interchanged; by default the one that the data vary.

    Returns:
        ``site, position, variable, n``; ``accuracy``: the mean of ``changed`` and ``kept``, the shares of right tokens
        among those that should change and those that should not; ``no_intervention``: the same accuracy without one;
        ``alike``: other variables that predict the same, which the data cannot tell apart.

    Raises:
        UserError: for a site, position or variable that is not there, or a variable whose interchange changes no answer
            in the data.
    """
    data = replace(data, model=causal_model)
    variable = chosen_variable(data, variable)
    chosen = [intervention.site] if intervention else list(sites)
    activations = Activations(model, causal_model, chosen, np.concatenate([data.base, data.source]))
    predicted = data.expected(variable)
    alike = [v for v in causal_model.variables if v != variable and np.array_equal(data.expected(v), predicted)]
    rows = []
    for site in chosen:
        places: list[Position] = [*range(activations.x[site].shape[1]), None]
        if data.position is not None and len(activations.read_at(site, 0)) == 1:
            places = [activations.digit(data.position), None]
        for position in [intervention.position] if intervention else places:
            trials = Trials(activations, data, site, position, variable)
            tokens = trials.tokens(intervention.subspace if intervention else None)
            right, moved = tokens == trials.expected, trials.expected != trials.unchanged
            rows.append(
                {
                    "site": site,
                    "position": "all" if position is None else position,
                    "variable": variable,
                    "n": len(data),
                    "accuracy": balanced(tokens, trials.expected, trials.unchanged),
                    "changed": float(right[moved].double().mean()),
                    "kept": float(right[~moved].double().mean()),
                    "no_intervention": trials.no_intervention(),
                    "alike": ", ".join(alike),
                }
            )
    return pd.DataFrame(rows)


def chosen_variable(data: CounterfactualDataset, variable: str | None) -> str:
    """The variable to interchange, by default the one that the data vary.

    Raises:
        UserError: if the causal model lacks it, or if its interchange changes none of the answers.
    """
    if variable is None:
        if len(data.family.vary) != 1:
            known = ", ".join(data.model.variables)
            raise UserError(f"variable: expected one of {known}, since the data do not vary a single one")
        variable = data.family.vary[0]
    data.model.require([variable])
    if (data.expected(variable) == data.model.table["answer"][data.base]).all():
        family = f"vary={','.join(data.family.vary)} keep={','.join(data.family.keep)}"
        raise UserError(f"variable={variable}: its interchange changes no answer in these data ({family}); vary it")
    return variable


@torch.no_grad()
def effects(
    model: Hooked,
    causal_model: CausalModel,
    families: Mapping[str, Family],
    variables: Sequence[str],
    sites: Sequence[str],
    sample: int,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Replace the activation at every position of the sites by a source's, for every family of pairs.

    At a site of the answer's positions, position t is replaced in the pairs of a family at t, and token t of the answer
    is read. In the encoder each position is replaced in the pairs of every t. All use the same bases.

    Yields:
        ``site, position, family``, ``answer`` (the token that is read), ``n``; ``flipped``: the share of answers that
        change, ``flipped_by_all``: the same with all positions of the site replaced; ``iia_*``: the share of answers
        that the interchange of a variable predicts, or ``none`` (the base's own answer), or ``token`` (that of the
        prompt, at the position that is replaced; NaN outside the encoder).
    """
    rng, task = np.random.default_rng(seed), causal_model.task
    base, operands = rng.integers(task.size, size=sample), causal_model.examples.operands
    drawn = {
        (name, t): sources(causal_model, family, t or 0, base, rng)
        for name, family in families.items()
        for t in ([None] if family.everywhere else range(task.width))
    }
    drawn = {key: source for key, source in drawn.items() if (source >= 0).any()}
    activations = Activations(model, causal_model, sites, np.concatenate([base, *drawn.values()]).clip(0))
    before = activations.answered(base)
    for (name, t), found in drawn.items():
        counted, source = torch.as_tensor(found >= 0, device=before.device), np.where(found >= 0, found, base)
        said = {"none": activations.right(causal_model.table["answer"][base])}
        for v in variables:
            said[v] = activations.right(causal_model.predict(operands[base], operands[source], v))
        for site in sites:
            resumed = activations.resume(site, base, task.width)
            answers = range(task.width) if t is None else [activations.digit(t)]
            encoder = len(activations.read_at(site, 0)) > 1
            whole = activations.at(site, source)
            by_all = resumed([Interchange(site, None, None, whole)]).argmax(-1) != before
            for place in range(whole.shape[1]) if encoder else answers:
                tokens = resumed([Interchange(site, place, None, whole)]).argmax(-1)
                right = {"flipped": tokens != before, "flipped_by_all": by_all}
                right |= {f"iia_{v}": tokens == of for v, of in said.items()}
                if encoder:
                    of_token = _own_token(causal_model, place, base, source)
                    right["iia_token"] = tokens == activations.right(of_token)
                shares = {key: of[counted].double().mean(0) for key, of in right.items()}
                for answer in answers if encoder else [place]:
                    where = {"site": site, "position": place, "family": name, "answer": answer, "n": int(counted.sum())}
                    measured = {key: float(of[answer]) for key, of in shares.items()}
                    yield where | measured | {"iia_token": measured.get("iia_token", math.nan)}


def _own_token(causal_model: CausalModel, place: int, base: Array, source: Array) -> Array:
    """Digits (n, width) of the answers with one token of the prompt taken from the source."""
    name, operands = causal_model.task.prompt_names[place], causal_model.examples.operands
    for root in causal_model.roots:
        if name == f"{root[0]}{name[1:]}":
            return causal_model.interchange(operands[base], operands[source], root, int(name[1:]))
    return causal_model.table["answer"][base]  # an operator
