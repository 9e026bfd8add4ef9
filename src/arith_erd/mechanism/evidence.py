"""Evidence of a card beside its signature: patched positions, steered sums and learned subspaces.

None of it enters the verdict, which was calibrated without it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from ..interp.causal_model import CausalModel
from ..interp.dose import doses
from ..interp.hooked import Hooked
from ..interp.search import Found, Search, SearchConfig
from ..interp.sites import layers
from ..tasks import Add
from .patching import ALL, INTERCHANGE, POSITION_WISE, RESAMPLE, Patched, patch
from .signature import EFFECT

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

    def rows(self) -> Iterator[tuple[str, str, str, str, str, str, float]]:
        """``test, component, control, dose, site, position, value``: the score, its controls, rank and distances."""
        where = ("", self.site, self.position)
        scores = {"": self.found.iia, "full_patch": self.found.full_patch}
        scores |= {name.removeprefix("iia_"): value for name, value in self.found.controls.items()}
        scores["arbitrary_labels"] = scores.pop("train_arbitrary")
        distances = {"": scores.pop("distance"), "natural_states": scores.pop("distance_natural")}
        yield "subspace_rank", self.variable, "", *where, float(self.found.rank)
        for test, values in (("subspace", scores), ("subspace_distance", distances)):
            for control, value in values.items():
                if not math.isnan(value):
                    yield test, self.variable, control, *where, float(value)

    def sentence(self) -> str:
        found, where = self.found, f"rank {self.found.rank} at {self.site}, position {self.position},"
        verb = "carries" if self.passes else "does not carry"
        claim = f"{where} {verb} {self.variable}"
        claim = claim if self.told else f"cannot tell whether {where} carries {self.variable}"
        control = "" if math.isnan(found.decoy) else f", control network {found.decoy:.2f}"
        return f"{claim}: {found.iia:.2f} of the answers, best control {found.best_control:.2f}{control}"


@dataclass(frozen=True)
class Evidence:
    """The patches, doses and subspaces of one network; doses only of an addition, subspaces only if any were wanted."""

    patched: list[Patched]
    dosed: pd.DataFrame
    searched: list[Searched]

    def share(self, test: str, site: str, variable: str = "", position: str | None = None) -> float:
        """Answers that a patch changes, over all positions unless one is named; NaN if it was not made."""
        key = (test, site, variable)
        of = [p for p in self.patched if (p.test, p.site, p.variable) == key and position in (None, p.position)]
        total = sum(p.n for p in of)
        return sum(p.n * p.changed for p in of) / total if total else math.nan

    def holds(self, variable: str, site: str, position: str | None = None) -> float:
        """Answers that change with a variable, less those that change without one."""
        own, noise = (self.share(INTERCHANGE, site, name, position) for name in (variable, "neither"))
        return own - noise

    def appears(self, variable: str, position: str) -> str | None:
        """The first site at which a position of the answer holds a variable."""
        sites = self.sites(INTERCHANGE, "neither")
        return next((site for site in sites if self.holds(variable, site, position) >= EFFECT), None)

    def sites(self, test: str, variable: str = "") -> list[str]:
        return list(dict.fromkeys(p.site for p in self.patched if (p.test, p.variable) == (test, variable)))

    @property
    def mixed_in_prompt(self) -> float:
        """The largest share of answers that change with what prompt positions hold about each other.

        NaN for a single layer without an encoder, where the prompt has no position at any site.
        """
        shares = [self.share(test, site) for test in (RESAMPLE, POSITION_WISE) for site in self.sites(test)]
        return max(shares, default=math.nan)

    @property
    def followed(self) -> float:
        """Whole answers that follow steering along the sum's slope, less controls: best site, minimum over doses.

        The minimum, since 64 is also a bit of an operand, which carry machines follow. Not between centroids: after the
        last layers those hold the answer's bits, whatever the algorithm.
        """
        if self.dosed.empty:
            return math.nan
        of_slope = self.dosed[self.dosed["method"] == "slope"]
        net = of_slope["answer"] - of_slope[["random", "no_intervention"]].max(axis=1)
        return float(net.groupby(of_slope["site"]).min().max())

    def rows(self) -> Iterator[tuple[str, str, str, str, str, str, float]]:
        for one in self.searched:
            yield from one.rows()
        for p in self.patched:
            yield p.test, p.variable, "", "", p.site, p.position, p.changed
        for dose in self.dosed.to_dict("records"):
            for control, column in (("", "answer"), ("random", "random"), ("no_intervention", "no_intervention")):
                where = (str(dose["delta"]), str(dose["site"]), ALL)
                yield "dose_response", str(dose["method"]), control, *where, float(dose[column])

    def sentences(self) -> list[str]:
        sentences, mixed = [], self.mixed_in_prompt
        if math.isfinite(mixed):
            what = "information" if mixed >= MIXED else "no information"
            sentences.append(
                f"prompt positions hold {what} about each other that the answer uses: resampling one or all of them "
                f"from runs with the same token there changes at most {mixed:.1%} of the answers"
            )
        if not self.dosed.empty:
            followed = f"{max(0.0, self.followed):.0%} of the whole answers follow a shifted sum"
            sentences.append(f"{followed} (best site, minimum over doses)")
        return [*sentences, *(one.sentence() for one in self.searched)]


def gather(model: Hooked, sample: int = 512, steps: int = 50, seed: int = 0) -> Evidence:
    """All of it for an addition; for another task, what its prompt positions hold.

    ``sample`` bases are patched; each dose steers an eighth as many, along directions that four times as many give.
    ``steps`` of each search for a subspace are made; 0 makes no search.
    """
    evidence = Evidence(list(patch(model, sample, seed)), pd.DataFrame(), [])
    if not isinstance(model.task, Add):
        return evidence
    adder, sites = CausalModel(model.task), layers(model.sites)
    decoder = [site for site in sites if site.startswith("dec.")]
    where = [site for site in sites if site.startswith("enc.")][-1:] + decoder
    deltas = [delta for delta in DELTAS if delta < 2**model.task.bits]
    count = max(16, sample // 8)
    moved = doses(model, adder, where, METHODS, deltas, count, seed, prefixes=("target",), fitted=4 * sample, random=2)
    t = model.task.width // 2
    searched = _search(model, adder, entrance(evidence, decoder, str(t)), t, steps, seed) if steps else []
    return Evidence(evidence.patched, pd.DataFrame(moved), searched)


def entrance(evidence: Evidence, sites: Sequence[str], position: str) -> str:
    """The first of the sites that holds the carry; where none does, the one in the middle."""
    held = [site for site in sites if evidence.holds("carry", site, position) >= EFFECT]
    return held[0] if held else sites[len(sites) // 2]


def _search(model: Hooked, adder: CausalModel, site: str, t: int, steps: int, seed: int) -> list[Searched]:
    """Every variable at position t, and the sum as one number at all positions together."""
    config, found = SearchConfig(steps=steps), []
    place = {at: Search(model, adder, site, at, config, seed) for at in (t, None)}
    for variable, position in [*((name, t) for name in VARIABLES), ("sum", None)]:
        chosen = next(one for one in place[position].at(variable, RANKS) if one.chosen)
        found.append(Searched(variable, site, ALL if position is None else str(position), chosen))
    return found
