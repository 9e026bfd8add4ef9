"""Interchange interventions: does a network answer as a causal model predicts (Geiger et al., 2021)?

::

    adder = CausalModel(model.task)
    data = CounterfactualDataset.sample(adder, vary="carry", keep=["xor"], n=1000, position=4)
    interchange_accuracy(model, adder, data, sites=["dec.3"], variable="carry")

Base and source are teacher forced, each with its own right answer. Only the base's activations at a site change, at one
position or at all, wholly or in a subspace.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from ..bits import Array, reorder
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
        sites: instead of an intervention: whole activations of each, at every position and at all together.
        variable: the one that is interchanged; by default the one that the data vary.

    Returns:
        ``site, position, variable, n``; ``accuracy``: the mean of ``changed`` and ``kept``, the shares of right tokens
        among those that should change and those that should not; ``no_intervention``: the accuracy without one, 0.5 if
        the network is always right; ``alike``: other variables that predict the same, which the data cannot tell apart.

    Raises:
        UserError: for a site, position or variable that is not there, or a variable whose interchange changes no answer
            in the data.
    """
    data = replace(data, model=causal_model)
    variable = tested_variable(data, variable)
    names = list(sites) if intervention is None else [intervention.site]
    activations = Activations(model, causal_model, names, np.concatenate([data.base, data.source]))
    predicted = data.expected(variable)
    alike = [v for v in causal_model.variables if v != variable and np.array_equal(data.expected(v), predicted)]
    rows = []
    for site in names:
        every: list[Position] = [*range(activations.x[site].shape[1]), None]
        for position in every if intervention is None else [intervention.position]:
            trials = Trials.of(activations, data, site, position, variable)
            tokens = trials.tokens(None if intervention is None else intervention.subspace)
            moved = trials.expected != trials.unchanged
            right = tokens == trials.expected
            rows.append(
                {
                    "site": site,
                    "position": "all" if position is None else position,
                    "variable": variable,
                    "n": len(data),
                    "accuracy": balanced(tokens, trials.expected, trials.unchanged),
                    "changed": float(right[moved].double().mean()),
                    "kept": float(right[~moved].double().mean()),
                    "no_intervention": balanced(trials.runs.tokens, trials.expected, trials.unchanged),
                    "alike": ", ".join(alike),
                }
            )
    return pd.DataFrame(rows)


def _variable(causal_model: CausalModel, data: CounterfactualDataset, variable: str | None) -> str:
    """The variable to interchange; refused if the data say nothing about it."""
    if variable is None:
        if len(data.family.vary) != 1:
            raise UserError(
                f"variable: expected one of {', '.join(causal_model.variables)}; the data vary no single one"
            )
        variable = data.family.vary[0]
    causal_model.require([variable])
    data = replace(data, model=causal_model)
    if (data.expected(variable) == data.unchanged()).all():
        family = f"vary={','.join(data.family.vary)} keep={','.join(data.family.keep)}"
        raise UserError(f"variable={variable}: its interchange changes no answer in these data ({family}); vary it")
    return variable


def _alike(causal_model: CausalModel, data: CounterfactualDataset, one: str, other: str) -> bool:
    data = replace(data, model=causal_model)
    return np.array_equal(data.expected(one), data.expected(other))


def tested_variable(data: CounterfactualDataset, variable: str | None) -> str:
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
    if (data.expected(variable) == data.unchanged()).all():
        family = f"vary={','.join(data.family.vary)} keep={','.join(data.family.keep)}"
        raise UserError(f"variable={variable}: its interchange changes no answer in these data ({family}); vary it")
    return variable


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

    Args:
        variables: of the causal model, whose predictions are compared.
        sample: number of bases.
        seed: of the pairs.

    Yields:
        ``site, position, family``, ``answer`` (the token that is read), ``n``; ``flipped``: the share of answers that
        change, ``flipped_by_all``: the same with all positions of the site replaced; ``iia_*``: the share of answers
        that the interchange of a variable predicts, or ``none`` (the base's own answer), or ``token`` (the replaced
        token of the prompt; NaN outside the encoder).
    """
    rng, task = np.random.default_rng(seed), causal_model.task
    base = rng.integers(task.size, size=sample)
    drawn = {
        (name, t): sources(causal_model, family, t or 0, base, rng)
        for name, family in families.items()
        for t in ([None] if family.everywhere else range(task.width))
    }
    drawn = {key: source for key, source in drawn.items() if (source >= 0).any()}
    activations = Activations(model, causal_model, sites, np.concatenate([base, *drawn.values()]).clip(0))
    before = activations.answered(base)
    token_of = reorder(np.arange(task.width), task.completion_order).argsort()
    operands = causal_model.examples.operands
    for site in sites:
        resumed = model.resume_from(site, task.examples(*operands[base].T))
        encoder = len(activations.read_at(site, 0)) > 1
        for (name, t), found in drawn.items():
            counted, source = found >= 0, np.where(found >= 0, found, base)
            said = {"none": activations.answer_tokens(causal_model.table["answer"][base])}
            for v in variables:
                said[v] = activations.answer_tokens(causal_model.predict(operands[base], operands[source], v))
            places: list[Position] = [*range(activations.x[site].shape[1])]
            if t is not None and not encoder:
                places = [int(token_of[t])]
            changed: dict[Position, Tensor] = {}
            for place in [None, *places]:
                value = activations.at(site, source, place)
                tokens = resumed([Interchange(site, place, None, value)]).argmax(-1)
                changed[place] = (tokens != before)[counted].double().mean(0)
                if place is None:
                    continue
                said["token"] = _own_token(activations, place, base, source) if encoder else tokens
                agree = {v: (tokens == of)[counted].double().mean(0) for v, of in said.items()}
                for answer in [int(token_of[t])] if t is not None else range(task.width) if encoder else [place]:
                    yield {
                        "site": site,
                        "position": place,
                        "family": name,
                        "answer": answer,
                        "n": int(counted.sum()),
                        "flipped": float(changed[place][answer]),
                        "flipped_by_all": float(changed[None][answer]),
                    } | {f"iia_{v}": float(share[answer]) for v, share in agree.items() if encoder or v != "token"}


def _own_token(activations: Activations, place: int, base: Array, source: Array) -> Tensor:
    """Tokens (n, m) of the answers with one token of the prompt taken from the source."""
    causal_model = activations.causal_model
    name, operands = causal_model.task.prompt_names[place], causal_model.examples.operands
    root = next((root for root in causal_model.roots if name[1:].isdigit() and root[0] == name[0]), None)
    if root is None:  # an operator
        return activations.answer_tokens(causal_model.table["answer"][base])
    return activations.answer_tokens(causal_model.interchange(operands[base], operands[source], root, int(name[1:])))
