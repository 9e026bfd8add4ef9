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
from torch import Tensor

from ..bits import Array
from ..interp.causal_model import CausalModel
from ..interp.counterfactuals import Family, sources
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.resumed import Resumed
from ..interp.sites import residual_stream
from .prefixes import Sample

INTERCHANGE, RESAMPLE, POSITION_WISE = "interchange", "resample_ablation", "position_wise_resampling"
OF_ANSWER = {
    "carry": Family(vary=("carry",), keep=("xor", "read")),
    "xor": Family(vary=("xor",), keep=("carry", "read")),
    "neither": Family(keep=("carry", "xor", "read")),
}
ALL = "all"  # a position that stands for all of them


@dataclass(frozen=True)
class Patched:
    """The share ``changed`` of the ``n`` pairs whose answer changes with a patch, where the test reads it.

    ``variable`` is that of an interchange, else empty. ``position`` is t of the answer; of the prompt i, for a_i and
    b_i together, or the operator; or ``all``.
    """

    site: str
    test: str
    variable: str
    position: str
    n: int
    changed: float


@dataclass(frozen=True)
class _Plan:
    """Pairs of one test: ``source`` (N,), -1 where a base has none; the patched ``place`` (N,) and its name; and the
    positions of the answer (N, m) where a change counts.
    """

    test: str
    variable: str
    source: Array
    place: Array
    label: Array
    read: Array

    @property
    def of_prompt(self) -> bool:
        return self.test == RESAMPLE or self.variable == "token"


@torch.no_grad()
def patch(model: Hooked, count: int = 512, seed: int = 0) -> Iterator[Patched]:
    """Every test at every site of the residual stream that has the position; carries are patched only in an addition.

    ``model`` has a task with two operands in base 2; each of ``count`` bases has one source for every test.
    """
    rng = np.random.default_rng(seed)
    causal = CausalModel(model.task)
    every = Sample.of(causal, causal.examples.operands)
    base = rng.integers(len(every), size=count)
    plans = [*_of_prompt(every, base, rng), *(_of_answer(every, base, rng) if every.adds else ())]
    sites, prompt = residual_stream(model.sites), every.examples.prompt[base]
    tiles, places = _tiles(prompt, np.random.default_rng([seed, 1])), np.arange(prompt.shape[1])  # (N, P), (P,)

    def run(members: Array) -> tuple[Tensor, dict[str, Tensor]]:
        return model.run_with_cache(model.task.examples(*every.examples.operands[members].T), sites, prompt_too=True)

    logits, cache = run(base)
    before = logits.argmax(dim=-1).cpu().numpy()
    given = [run(np.where(plan.source < 0, base, plan.source))[1] for plan in plans]
    bases = model.task.examples(*every.examples.operands[base].T)
    for site in sites:
        resumed = model.resume_from(site, bases)
        lead = 0 if site.startswith("enc.") else cache[site].shape[1] - model.task.width
        has_prompt = site.startswith("enc.") or lead > 0
        for plan, of_source in zip(plans, given, strict=True):
            if not (has_prompt if plan.of_prompt else site.startswith("dec.")):
                continue
            x, at = cache[site].clone(), plan.place + (0 if plan.of_prompt else lead)
            x[np.arange(count), at] = of_source[site][np.arange(count), at]
            changed = ((_answers(model, resumed, x, lead) != before) & plan.read).any(axis=1)
            for label in dict.fromkeys(plan.label.tolist()):
                counted = (plan.label == label) & (plan.source >= 0)
                if counted.any():
                    share = float(changed[counted].mean())
                    yield Patched(site, plan.test, plan.variable, label, int(counted.sum()), share)
        if has_prompt:
            x = cache[site].clone()
            x[:, places] = cache[site][tiles, places]
            changed = (_answers(model, resumed, x, lead) != before).any(axis=1)
            yield Patched(site, POSITION_WISE, "", ALL, count, float(changed.mean()))


def _answers(model: Hooked, resumed: Resumed, x: Tensor, lead: int) -> Array:
    """The likeliest tokens (N, m) with x (N, T, C) as the site's output; the first ``lead`` are of the prompt."""
    names = model.task.prompt_names[:lead]
    prompt = [Replace(resumed.site, name, x[:, i]) for i, name in enumerate(names)]
    found: Array = resumed([*prompt, Replace(resumed.site, None, x[:, lead:])]).argmax(dim=-1).cpu().numpy()
    return found


def _tiles(tokens: Array, rng: np.random.Generator) -> Array:
    """For each token (N, P) a random row (N, P) that has the same token at this place."""
    tiles = np.empty_like(tokens)
    for place, column in enumerate(tokens.T):
        for token in np.unique(column):
            rows = np.flatnonzero(column == token)
            tiles[rows, place] = rng.choice(rows, len(rows))
    return tiles


def _of_answer(every: Sample, base: Array, rng: np.random.Generator) -> Iterator[_Plan]:
    """Position t = 1 .. m - 1 in turn: no carry enters bit 0."""
    width = every.task.width
    place = 1 + np.arange(len(base)) % (width - 1)
    causal = every.model.extended({"read": lambda answer: np.roll(answer, 1, axis=1)})
    for variable, family in OF_ANSWER.items():
        source = np.full(len(base), -1)
        for t in range(1, width):
            source[place == t] = sources(causal, family, t, base[place == t], rng)
        yield _Plan(INTERCHANGE, variable, source, place, place.astype(str), np.eye(width, dtype=bool)[place])


def _of_prompt(every: Sample, base: Array, rng: np.random.Generator) -> Iterator[_Plan]:
    tokens, task = every.examples.prompt, every.task
    place = np.arange(len(base)) % tokens.shape[1]
    label = np.array([name.lstrip("ab") for name in task.prompt_names])[place]
    index = np.array([int(name) if name.isdigit() else 0 for name in label])
    own_bit = np.eye(task.width, dtype=bool)[index]
    for test, variable, read in ((INTERCHANGE, "token", own_bit), (RESAMPLE, "", np.ones_like(own_bit))):
        source = np.full(len(base), -1)
        for n, (example, at) in enumerate(zip(base, place, strict=True)):
            same = tokens[:, at] == tokens[example, at]
            candidates = np.flatnonzero(same if test == RESAMPLE else ~same)
            if len(candidates):
                source[n] = rng.choice(candidates)
        yield _Plan(test, variable, source, place, label, read)
