"""Evidence of a card beside its signature: patched positions, steered sums and learned subspaces.

None of it enters the verdict, which was calibrated without it.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..interp.causal_model import CausalModel
from ..interp.dose import doses
from ..interp.hooked import Hooked
from ..interp.search import Found, Search, SearchConfig
from ..interp.sites import layers
from ..tasks import Add
from .card import ALL, EFFECT, Row
from .patching import INTERCHANGE, POSITION_WISE, RESAMPLE, patch

PASSES = 0.9
"""Balanced accuracy of a subspace that counts as carrying a variable; 0.5 is no effect."""
CLEAR = 0.1
"""How much higher it has to be than that of every control."""
MIXED = 0.01
"""Share of answers from which on prompt positions count as holding something about each other."""
VARIABLES = ("a_bit", "b_bit", "xor", "carry", "sum", "sum_mod")
DELTAS = (1, 8, 64)
METHODS = ("slope", "centroids")
RANKS = (1, 2)


@dataclass(frozen=True)
class Searched:
    """The chosen subspace of a variable at a site and a position (``all``: of all positions together)."""

    variable: str
    site: str
    position: str
    found: Found

    @property
    def told(self) -> bool:
        """Whether a control network, which computes the answer from other variables, does clearly worse."""
        return math.isnan(self.found.decoy) or self.found.decoy + CLEAR <= max(PASSES, self.found.iia)

    @property
    def passes(self) -> bool:
        """Whether it carries the variable, and no control does nearly as well; a full patch must not do worse."""
        found = self.found
        enough, strong = max(PASSES, found.best_control + CLEAR), found.strength_full >= found.strength - CLEAR
        return self.told and found.iia >= enough and strong and found.span > found.rank

    def rows(self) -> Iterator[Row]:
        """Rank, score and distances, each with its controls."""
        found, controls = self.found, dict(self.found.controls)
        numbers: dict[tuple[str, str], float] = {
            ("subspace_rank", ""): found.rank,
            ("subspace", ""): found.iia,
            ("subspace", "full_patch"): found.full_patch,
            ("subspace", "arbitrary_labels"): controls.pop("train_arbitrary"),
            ("subspace_distance", ""): controls.pop("distance"),
            ("subspace_distance", "natural_states"): controls.pop("distance_natural"),
        }
        numbers |= {("subspace", name.removeprefix("iia_")): value for name, value in controls.items()}
        for (test, control), value in numbers.items():
            if not math.isnan(value):
                yield Row(test, self.variable, control, "", self.site, self.position, float(value))

    def sentence(self) -> str:
        found, where = self.found, f"rank {self.found.rank} at {self.site}, position {self.position},"
        verb = "carries" if self.passes or not self.told else "does not carry"
        claim = f"{'' if self.told else 'cannot tell whether '}{where} {verb} {self.variable}"
        control = "" if math.isnan(found.decoy) else f", control network {found.decoy:.2f}"
        return f"{claim}: {found.iia:.2f} of the answers, best control {found.best_control:.2f}{control}"


@dataclass(frozen=True)
class Evidence:
    """The patches, doses and subspaces of one network; doses only of an addition, subspaces only if any were wanted."""

    patched: list[Row]
    dosed: list[dict[str, Any]] = field(default_factory=list)  # as `interp.dose.doses` yields them
    searched: list[Searched] = field(default_factory=list)

    def share(self, test: str, site: str, variable: str = "", position: str | None = None) -> float:
        """Answers that a patch changes, over all positions unless one is named; NaN if it was not made."""
        key = (test, site, variable)
        of = [(p.value, p.n) for p in self.patched if (p.test, p.site, p.component) == key
              and position in (None, p.position)]  # fmt: skip
        return sum(value * n for value, n in of) / sum(n for _, n in of) if of else math.nan

    def holds(self, variable: str, site: str, position: str | None = None) -> float:
        """Answers that change with a variable, less those that change without one."""
        own, noise = (self.share(INTERCHANGE, site, name, position) for name in (variable, "neither"))
        return own - noise

    def appears(self, variable: str, position: str, sites: Sequence[str] = ()) -> str | None:
        """The first site, of all or of these, at which a position of the answer holds a variable."""
        sites = sites or list(dict.fromkeys(p.site for p in self.patched))
        return next((site for site in sites if self.holds(variable, site, position) >= EFFECT), None)

    @property
    def mixed_in_prompt(self) -> float:
        """The largest share of answers that change with what prompt positions hold about each other.

        NaN for a single layer without an encoder, where the prompt has no position at any site.
        """
        made = {(p.test, p.site) for p in self.patched if p.test in (RESAMPLE, POSITION_WISE)}
        return max((self.share(test, site) for test, site in made), default=math.nan)

    @property
    def followed(self) -> float:
        """Whole answers that follow steering along the sum's slope, less controls: best site, minimum over doses.

        The minimum, since 64 is also a bit of an operand, which carry machines follow. Not between centroids: after the
        last layers those hold the answer's bits, whatever the algorithm.
        """
        net = defaultdict(list)
        for dose in self.dosed:
            if dose["method"] == "slope":
                net[dose["site"]].append(dose["answer"] - max(dose["random"], dose["no_intervention"]))
        return max(map(min, net.values()), default=math.nan)

    def rows(self) -> Iterator[Row]:
        yield from (row for one in self.searched for row in one.rows())
        yield from self.patched
        for dose in self.dosed:
            for control in ("", "random", "no_intervention"):
                where = (dose["method"], control, str(dose["delta"]), dose["site"])
                yield Row("dose_response", *where, value=dose[control or "answer"])

    def sentences(self) -> list[str]:
        sentences, mixed = [], self.mixed_in_prompt
        if math.isfinite(mixed):
            what = "information" if mixed >= MIXED else "no information"
            sentences.append(
                f"prompt positions hold {what} about each other that the answer uses: resampling one or all of them "
                f"from runs with the same token there changes at most {mixed:.1%} of the answers"
            )
        if self.dosed:
            followed = f"{max(0.0, self.followed):.0%} of the whole answers follow a shifted sum"
            sentences.append(f"{followed} (best site, minimum over doses)")
        return [*sentences, *(one.sentence() for one in self.searched)]


def gather(model: Hooked, sample: int = 512, steps: int = 50, seed: int = 0) -> Evidence:
    """All of it for an addition; for another task, what its prompt positions hold.

    ``sample`` bases are patched; each dose steers an eighth as many, along directions that four times as many give.
    ``steps`` of each search for a subspace are made; 0 makes no search. They are made at the first layer at which the
    bit in the middle holds its carry; where none does, at the one in the middle. Every variable is searched for at
    that bit's position, and the sum as one number at all positions together.
    """
    evidence = Evidence(list(patch(model, sample, seed)))
    if not isinstance(model.task, Add):
        return evidence
    adder, sites, t = CausalModel(model.task), layers(model.sites), model.task.width // 2
    decoder = [site for site in sites if site.startswith("dec.")]
    where = [site for site in sites if site.startswith("enc.")][-1:] + decoder
    deltas = [delta for delta in DELTAS if delta < 2**model.task.bits]
    count = max(16, sample // 8)
    moved = doses(model, adder, where, METHODS, deltas, count, seed, prefixes=("target",), fitted=4 * sample, random=2)
    evidence.dosed.extend(moved)
    if steps:
        site = evidence.appears("carry", str(t), decoder) or decoder[len(decoder) // 2]
        place = {at: Search(model, adder, site, at, SearchConfig(steps=steps), seed) for at in (t, None)}
        for variable, position in [*((name, t) for name in VARIABLES), ("sum", None)]:
            chosen = next(one for one in place[position].at(variable, RANKS) if one.chosen)
            evidence.searched.append(Searched(variable, site, ALL if position is None else str(position), chosen))
    return evidence
