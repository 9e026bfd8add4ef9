"""The card of a network: its verdict, and bit by bit what is transmitted, what is needed and where it appears."""

import math
from typing import Any

import torch

from ..models import Transformer
from ..models.references import written_for
from ..tasks import Task
from .evidence import EFFECT, Evidence, Searched
from .signature import BESIDE, COMPONENTS, STEERING, Measured
from .subject import Subject
from .verdict import NEAR, RIGHT, Verdict

NO_VERDICT = "no verdict: the known algorithms are for addition, so only prefixes and prompt were measured"
MOVED = 0.01
"""Share of answers from which on the prompt's positions count as holding something about each other."""


def make_card(
    subject: Subject, found: Measured, verdict: Verdict | None, others: dict[str, float], evidence: Evidence
) -> dict[str, Any]:
    """What is known of one network, as plain values. ``others`` are distances to algorithms that are no candidates.

    Of each bit: ``transmits``, the variables whose moves it follows; ``follows_prefix``, the share of answers that a
    random prefix changes; ``needs_prefix``, the share that changes if r_(t-1) says nothing; ``appears``, the first
    stage behind which the bit changes with a position from a run where only the carry, or only the xor, differs.
    """
    bits = []
    for t in range(1, subject.task.width):
        numbers = {name: _number(found.components[name][t]) for name in (*COMPONENTS, *BESIDE)}
        stages = {name: chosen[t] or None for name, chosen in found.best.items()}
        nearest, distance = (None, math.nan) if verdict is None else verdict.by_bit[t - 1]
        bits.append(
            {
                "position": t,
                "nearest": nearest,
                "distance": _number(distance),
                "follows_prefix": _number(1 - found.components["prompt_only"][t]),
                "needs_prefix": numbers["neutral"],
                "transmits": [name for name in ("carry", "value") if (numbers[name] or 0) >= EFFECT],
                "appears": {name: evidence.appears(name, str(t)) for name in ("carry", "xor")},
                "first_stage": {name: _first(found, test, t) for name, test in STEERING.items()},
                "best_stage": stages,
                "measured": numbers,
            }
        )
    return {
        "seed": subject.seed,
        "network": subject.name,
        "verdict": "undecided" if verdict is None else verdict.name,
        "nearest": None if verdict is None else verdict.nearest,
        "distance": None if verdict is None else round(verdict.distance, 4),
        "distances": {} if verdict is None else {name: round(value, 4) for name, value in verdict.distances.items()},
        "by_part": {}
        if verdict is None
        else {part: {name: round(value, 4) for name, value in of.items()} for part, of in verdict.by_part.items()},
        "accuracy": round(found.accuracy, 5),
        "calibrated": is_calibrated(subject.network, subject.task),
        "others": {name: _number(value) for name, value in others.items()},
        "reasons": [NO_VERDICT] if verdict is None else [*verdict.reasons, *_near(found, verdict, others)],
        "evidence": [*_pushed(found), *_sentences(evidence)],
        "moved_in_prompt": _number(evidence.moved_in_prompt),
        "followed_doses": _number(evidence.followed),
        "subspaces": [_subspace(searched) for searched in evidence.searched],
        "bits": bits,
    }


def _near(found: Measured, verdict: Verdict, others: dict[str, float]) -> list[str]:
    """Algorithms that the verdict cannot name and that are near, if the answers are right and no candidate is near."""
    fit = [f"{name} ({distance:.2f})" for name, distance in others.items() if distance <= NEAR < verdict.distance]
    near = f"near, of the algorithms that were written after trained networks had been seen: {', '.join(fit)}"
    return [near] if fit and found.accuracy >= RIGHT else []


def _pushed(found: Measured) -> list[str]:
    if not found.pushed:
        return []
    low, high = (f"{end(one.further for one in found.pushed):.0%}" for end in (min, max))
    bits = ", ".join(str(one.position) for one in found.pushed)
    share = low if low == high else f"{low} to {high}"
    return [f"a carry moved on to 2 or to -1 changes {share} of the answers in bits {bits}"]


def is_calibrated(network: object, task: Task) -> bool:
    """Whether there are references for this task, and of exactly this architecture."""
    if not isinstance(network, Transformer) or not written_for(task):
        return False
    with torch.device("meta"):
        paper = Transformer(task.prompt_length, task.width)
    shapes = [{name: tensor.shape for name, tensor in of.state_dict().items()} for of in (paper, network)]
    return shapes[0] == shapes[1]


def _number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def _first(found: Measured, test: str, t: int) -> str | None:
    """The first stage at which bit t follows a move."""
    return next(
        (s.stage for s in found.scores if (s.test, s.position) == (test, t) and s.informedness >= 0.5),
        None,
    )


def _subspace(searched: Searched) -> dict[str, Any]:
    """The chosen subspace of a variable, with every control."""
    found = searched.found
    where = {"variable": searched.variable, "site": searched.site, "position": searched.position}
    numbers = {"iia": found.iia, "floor": found.floor, "whole": found.whole, "strength": found.strength}
    numbers |= {"strength_whole": found.strength_whole} | found.controls
    ranks = {"rank": found.rank, "span": found.span, "passes": searched.passes}
    return where | ranks | {name: _number(value) for name, value in numbers.items()}


def _sentences(evidence: Evidence) -> list[str]:
    """What the evidence beside the signature shows."""
    moved = evidence.moved_in_prompt
    sentences = []
    if math.isfinite(moved):
        what = "something" if moved >= MOVED else "nothing"
        sentences.append(
            f"the prompt's positions hold {what} about each other that the answer uses: exchanging one or all between "
            f"runs with the same token there changes at most {moved:.1%} of the answers"
        )
    if not evidence.dosed.empty:
        followed = max(0.0, evidence.followed)
        sentences.append(f"{followed:.0%} of the whole answers follow a moved sum, by the worst dose at the best site")
    for searched in evidence.searched:
        found = searched.found
        verb = "carries" if searched.passes else "does not carry" if searched.told else "is no evidence for"
        decoy = "" if math.isnan(found.decoy) else f", in a network that computes otherwise {found.decoy:.2f}"
        sentences.append(
            f"rank {found.rank} at {searched.site}, position {searched.position}, {verb} {searched.variable}: "
            f"{found.iia:.2f} of the answers, best control {found.best_control:.2f}{decoy}"
        )
    return sentences
