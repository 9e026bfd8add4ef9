"""Put the stream behind a stage, at one position, into another pair's run: what did the position hold?

At position t of the answer, couples share everything that bit t hangs on but one variable. They share r_(t-1) too, the
token that the position reads, so that a carry read off the answer counts once it has been found, and not before::

    carry      only the carry into t differs. Where bit t changes, the position held the carry.
    xor        only a_t xor b_t differs. Where bit t changes, the position held the xor.
    neither    both are the same: what changes here, any exchange would change.

At a token of the prompt, bit i of a or of b::

    token      the source has another token there. Where bit i of the answer changes, the position held its own token.
    elsewhere  the source has the same token there, and others elsewhere. Where any bit of the answer changes, the
               position held something about other positions.
    mosaic     every position of the prompt comes from a run of its own, with the same token there. Where any bit
               changes, some position held something about others; several that hold the same cannot hide it.

But for the mosaic, each run is changed at one position, so that no other exchange is seen where the answer is read. A
whole position cannot tell a number from the bits that it is made of; `interp.search` and `interp.dose` look for a
number.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..bits import Array
from ..models.decoding import shift_right
from ..models.network import Network
from .causal import CausalTask
from .pairs import Family, sources
from .stages import Stages, State
from .tokens import prompt_names

OF_ANSWER = {
    "carry": Family(same=("xor", "read"), differ=("carry",)),
    "xor": Family(same=("carry", "read"), differ=("xor",)),
    "neither": Family(same=("carry", "xor", "read")),
}
OF_PROMPT = ("token", "elsewhere")
ALL = "all"  # a position that stands for all of them


@dataclass(frozen=True)
class Exchanged:
    """How many answers an exchange changes.

    Attributes:
        stage: behind which the stream was exchanged.
        test: ``carry``, ``xor``, ``neither``, ``token``, ``elsewhere`` or ``mosaic``.
        position: t of the answer; of the prompt i, for a_i and b_i together, or the operator; ``all`` for a mosaic.
        n: couples.
        changed: share of them whose answer changes, where the test reads it.
    """

    stage: str
    test: str
    position: str
    n: int
    changed: float


@dataclass(frozen=True)
class _Plan:
    """Couples of one test.

    Attributes:
        source: (N,) indices of pairs, -1 where a base has no source.
        place: (N,) exchanged position, of the answer or of the prompt.
        label: (N,) its name.
        read: (N, m), the positions of the answer where a change counts.
    """

    test: str
    source: Array
    place: Array
    label: Array
    read: Array

    def where(self, stage: str, state: State) -> int | None:
        """The first position of the stream that ``place`` counts from; None if the stream does not have them."""
        length, answer = state.x.shape[1], state.answer_in.shape[1]
        if self.test in OF_PROMPT:
            return 0 if stage.startswith("enc.") or length > answer else None
        return None if stage.startswith("enc.") else length - answer


@torch.no_grad()
def exchanges(network: Network, pairs: CausalTask, sample: int = 512, seed: int = 0) -> Iterator[Exchanged]:
    """Every test behind every stage that has the position.

    Args:
        network: in evaluation mode.
        pairs: of its task. Only an addition is asked for carries.
        sample: bases, each with one exchange for every test.
        seed: of bases and sources.
    """
    rng = np.random.default_rng(seed)
    base = rng.integers(len(pairs.a), size=sample)
    plans = [*_of_prompt(pairs, base, rng), *(_of_answer(pairs, base, rng) if "carry" in pairs.values else ())]
    stages = Stages(network)
    prompt, completion = torch.from_numpy(pairs.examples.prompt), torch.from_numpy(pairs.examples.completion)
    states, logits = stages.run(prompt[base], shift_right(completion[base]))
    before = logits.argmax(-1).numpy()
    rows = np.arange(sample)
    for plan in plans:
        source = np.where(plan.source < 0, base, plan.source)
        given, _ = stages.run(prompt[source], shift_right(completion[source]))
        for stage, state in states.items():
            first = plan.where(stage, state)
            if first is None:
                continue
            x = state.x.clone()
            x[rows, first + plan.place] = given[stage].x[rows, first + plan.place]
            after = stages.answers(stage, replace(state, x=x)).numpy()
            changed = ((after != before) & plan.read).any(axis=1)
            for label in dict.fromkeys(plan.label.tolist()):
                counted = (plan.label == label) & (plan.source >= 0)
                if counted.any():
                    yield Exchanged(stage, plan.test, label, int(counted.sum()), float(changed[counted].mean()))
    tiles = _tiles(pairs.examples.prompt[base], np.random.default_rng([seed, 1]))  # (N, P)
    places = np.arange(tiles.shape[1])
    for stage, state in states.items():
        if stage.startswith("enc.") or state.x.shape[1] > state.answer_in.shape[1]:
            x = state.x.clone()
            x[:, places] = state.x[tiles, places]
            changed = (stages.answers(stage, replace(state, x=x)).numpy() != before).any(axis=1)
            yield Exchanged(stage, "mosaic", ALL, sample, float(changed.mean()))


def _tiles(tokens: Array, rng: np.random.Generator) -> Array:
    """For each token (N, P) a random row (N, P) that has the same token at this place."""
    tiles = np.empty_like(tokens)
    for place, column in enumerate(tokens.T):
        for token in np.unique(column):
            rows = np.flatnonzero(column == token)
            tiles[rows, place] = rng.choice(rows, len(rows))
    return tiles


def _of_answer(pairs: CausalTask, base: Array, rng: np.random.Generator) -> Iterator[_Plan]:
    """Position t = 1 .. m - 1 in turn: no carry enters bit 0."""
    width = pairs.task.width
    place = 1 + np.arange(len(base)) % (width - 1)
    pairs = copy.copy(pairs)
    pairs.values = pairs.values | {"read": np.roll(pairs.values["answer"], 1, axis=1)}
    for test, family in OF_ANSWER.items():
        source = np.full(len(base), -1)
        for t in range(1, width):
            source[place == t] = sources(pairs, family, t, base[place == t], rng)
        yield _Plan(test, source, place, place.astype(str), np.eye(width, dtype=bool)[place])


def _of_prompt(pairs: CausalTask, base: Array, rng: np.random.Generator) -> Iterator[_Plan]:
    """Every token of the prompt in turn."""
    tokens, task = pairs.examples.prompt, pairs.task
    place = np.arange(len(base)) % tokens.shape[1]
    label = np.array([name.lstrip("ab") for name in prompt_names(task)])[place]
    index = np.array([int(name) if name.isdigit() else 0 for name in label])
    own_bit = np.eye(task.width, dtype=bool)[index]
    for test in OF_PROMPT:
        source = np.full(len(base), -1)
        for n, (pair, at) in enumerate(zip(base, place, strict=True)):
            same = tokens[:, at] == tokens[pair, at]
            candidates = np.flatnonzero(same if test == "elsewhere" else ~same)
            if len(candidates):
                source[n] = rng.choice(candidates)
        yield _Plan(test, source, place, label, own_bit if test == "token" else np.ones_like(own_bit))
