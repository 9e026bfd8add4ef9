"""Patch one position of a site from another example's run. Which variables does the position hold?

At position t of the answer, base and source share every cause of bit t except one, and r_(t-1) too, the token that the
position reads. Where bit t changes after an ``interchange`` of ``carry`` or ``xor``, the position held that variable;
``neither`` is the control, what any patch would change. At a token of the prompt, bit i of a or of b::

    interchange token     the source has another token there. Where bit i of the answer changes, the position held it.
    resample_ablation     the source has the same token there, others elsewhere. Where any bit of the answer changes,
                          the position held something about other positions.
    position_wise_resampling
                          every position of the prompt comes from a run of its own with the same token there. Copies of
                          the same information in several positions cannot hide it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ..bits import Array
from ..interp.causal_model import CausalModel
from ..interp.counterfactuals import Family, sources
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import residual_stream
from .card import ALL, Row
from .prefixes import Sample

INTERCHANGE, RESAMPLE, POSITION_WISE = "interchange", "resample_ablation", "position_wise_resampling"
OF_ANSWER = {
    "carry": Family(vary=("carry",), keep=("xor", "read")),
    "xor": Family(vary=("xor",), keep=("carry", "read")),
    "neither": Family(keep=("carry", "xor", "read")),
}


@dataclass(frozen=True)
class _Plan:
    """One patch of each of N bases: at the places (N, k), by the runs of the sources (N, k) there; -1: by none.

    ``label`` (N,) names the place, and ``read`` (N, m) marks the positions of the answer where a change counts.
    """

    test: str
    variable: str
    source: Array
    place: Array
    label: Array
    read: Array
    of_prompt: bool = True


@torch.no_grad()
def patch(model: Hooked, count: int = 512, seed: int = 0) -> Iterator[Row]:
    """Every test at every site of the residual stream that has the position; carries are patched only in an addition.

    ``model`` has a task with two operands in base 2; each of ``count`` bases has one source for every test. A row is
    the share of the n pairs whose answer changes where the test reads it. Its ``component`` is the variable of an
    interchange; its position is t of the answer; of the prompt i, for a_i and b_i together, or the operator; or all.
    """
    rng, causal = np.random.default_rng(seed), CausalModel(model.task)
    every = Sample.of(causal, causal.examples.operands)
    base = rng.integers(len(every), size=count)
    plans = [*_of_prompt(every, base, rng), *(_of_answer(every, base, rng) if every.adds else ())]
    plans.append(_position_wise(every, base, np.random.default_rng([seed, 1])))
    sites = residual_stream(model.sites)
    examples = model.task.examples(*every.examples.operands[base].T)
    logits, cache = model.run_with_cache(examples, sites, prompt_too=True)
    before, given = logits.argmax(dim=-1).cpu().numpy(), []
    for plan in plans:
        runs, at = np.unique(plan.source, return_inverse=True)
        others = model.task.examples(*every.examples.operands[runs].T)
        given.append((at.reshape(plan.source.shape), model.run_with_cache(others, sites, prompt_too=True)[1]))
    for site in sites:
        resumed = model.resume_from(site, examples)
        lead = 0 if site.startswith("enc.") else cache[site].shape[1] - model.task.width
        for plan, (at, of_runs) in zip(plans, given, strict=True):
            if not (site.startswith("enc.") or lead if plan.of_prompt else site.startswith("dec.")):
                continue
            x, place = cache[site].clone(), plan.place + (0 if plan.of_prompt else lead)
            x[np.arange(count)[:, None], place] = of_runs[site][at, place]
            prompt = [Replace(site, name, x[:, i]) for i, name in enumerate(model.task.prompt_names[:lead])]
            after = resumed([*prompt, Replace(site, None, x[:, lead:])]).argmax(dim=-1).cpu().numpy()
            changed = ((after != before) & plan.read).any(axis=1)
            for label in dict.fromkeys(plan.label.tolist()):
                counted = (plan.label == label) & (plan.source >= 0).all(axis=1)
                if n := int(counted.sum()):
                    share = float(changed[counted].mean())
                    yield Row(plan.test, plan.variable, site=site, position=label, value=share, n=n)


def _of_prompt(every: Sample, base: Array, rng: np.random.Generator) -> Iterator[_Plan]:
    tokens, task = every.examples.prompt, every.model.task
    place = np.arange(len(base)) % tokens.shape[1]
    label = np.array([name.lstrip("ab") for name in task.prompt_names])[place]
    own_bit = np.eye(task.width, dtype=bool)[[int(name) if name.isdigit() else 0 for name in label]]
    for test, variable, read in ((INTERCHANGE, "token", own_bit), (RESAMPLE, "", np.ones_like(own_bit))):
        source = np.full((len(base), 1), -1)
        for n, (example, at) in enumerate(zip(base, place, strict=True)):
            same = tokens[:, at] == tokens[example, at]
            candidates = np.flatnonzero(same if test == RESAMPLE else ~same)
            if len(candidates):
                source[n] = rng.choice(candidates)
        yield _Plan(test, variable, source, place[:, None], label, read)


def _of_answer(every: Sample, base: Array, rng: np.random.Generator) -> Iterator[_Plan]:
    """Position t = 1 .. m - 1 in turn: no carry enters bit 0."""
    width = every.model.task.width
    place = 1 + np.arange(len(base)) % (width - 1)
    causal = every.model.extended({"read": lambda answer: np.roll(answer, 1, axis=1)})
    for variable, family in OF_ANSWER.items():
        source, read = np.full((len(base), 1), -1), np.eye(width, dtype=bool)[place]
        for t in range(1, width):
            source[place == t, 0] = sources(causal, family, t, base[place == t], rng)
        yield _Plan(INTERCHANGE, variable, source, place[:, None], place.astype(str), read, of_prompt=False)


def _position_wise(every: Sample, base: Array, rng: np.random.Generator) -> _Plan:
    """For each token of a base, another base at random that has the same token at this place."""
    tokens = every.examples.prompt[base]
    source = np.empty_like(tokens)
    for place, column in enumerate(tokens.T):
        for token in np.unique(column):
            rows = np.flatnonzero(column == token)
            source[rows, place] = base[rng.choice(rows, len(rows))]
    read = np.ones((len(base), every.model.task.width), dtype=bool)
    places = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    return _Plan(POSITION_WISE, "", source, places, np.full(len(base), ALL), read)
