"""What a card shows beside its signature: exchanged positions, moved sums and learned subspaces.

None of it enters the verdict, which was calibrated without it. It says where each variable appears, whether the encoder
moves anything between positions, and which variables a subspace of rank 1 or 2 carries, beside all controls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import pandas as pd

from ..models.network import Network
from ..tasks import Add, Task
from .activations import layers
from .causal import CausalTask
from .dose import doses
from .exchange import ALL, Exchanged, exchanges
from .place import Budget
from .search import Found, Search

EFFECT = 0.5
"""Share of answers from which on a variable counts as held."""
PASSES = 0.9
"""Balanced accuracy of a subspace that counts as carrying a variable; 0.5 is none."""
CLEAR = 0.1
"""How much higher it has to be than that of every control."""
DOSES = (1, 8, 64)
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
        """Whether a network that computes the answer from other variables (`search.DECOYS`) does clearly worse."""
        return isnan(self.found.decoy) or self.found.decoy + CLEAR <= max(PASSES, self.found.iia)

    @property
    def passes(self) -> bool:
        """Whether it carries the variable, and no control does nearly as well; whole embeddings must not do worse."""
        found = self.found
        enough = max(PASSES, found.best_control + CLEAR)
        strong = found.strength_whole >= found.strength - CLEAR
        return self.told and found.iia >= enough and strong and found.span > found.rank


@dataclass(frozen=True)
class Evidence:
    """Of one network.

    Attributes:
        exchanged: see `interp.exchange`.
        dosed: ``site, method, delta, answer, floor, random`` of `interp.dose`; empty for a task that is no addition.
        searched: subspaces; empty if none were wanted.
    """

    exchanged: list[Exchanged]
    dosed: pd.DataFrame
    searched: list[Searched]

    def share(self, test: str, stage: str, position: str | None = None) -> float:
        """Answers that an exchange changes, over all positions unless one is named; NaN if it was not made."""
        of = [e for e in self.exchanged if (e.test, e.stage) == (test, stage) and position in (None, e.position)]
        total = sum(e.n for e in of)
        return sum(e.n * e.changed for e in of) / total if total else float("nan")

    def holds(self, variable: str, stage: str, position: str | None = None) -> float:
        """Answers that change with a variable, less those that change without one."""
        return self.share(variable, stage, position) - self.share("neither", stage, position)

    def appears(self, variable: str, position: str) -> str | None:
        """The first stage behind which a position of the answer holds a variable."""
        return next((s for s in self.stages("neither") if self.holds(variable, s, position) >= EFFECT), None)

    def stages(self, test: str) -> list[str]:
        """Those at which a test was made."""
        return list(dict.fromkeys(e.stage for e in self.exchanged if e.test == test))

    @property
    def moved_in_prompt(self) -> float:
        """The largest share of answers that change with what the prompt's positions hold about each other.

        NaN for a single layer without an encoder, where the prompt has no position behind any stage.
        """
        shares = [self.share(test, stage) for test in ("elsewhere", "mosaic") for stage in self.stages(test)]
        return max(shares, default=float("nan"))

    @property
    def followed(self) -> float:
        """Whole answers that follow a move along the sum's slope, by the worst dose at the best site, less controls.

        The worst, since 64 is also a bit of an operand, which carry machines follow. Not between centroids: behind the
        last layers those hold the answer's bits, whatever the algorithm.
        """
        if self.dosed.empty:
            return float("nan")
        of_slope = self.dosed[self.dosed["method"] == "slope"]
        net = of_slope["answer"] - of_slope[["random", "floor"]].max(axis=1)
        return float(net.groupby(of_slope["site"]).min().max())

    def rows(self) -> list[tuple[str, str, str, float]]:
        """``component, stage, position, value`` for every number that there is."""
        rows: list[tuple[str, str, str, float]] = []
        for one in self.searched:
            numbers = {"": one.found.iia, "_rank": one.found.rank, "_whole": one.found.whole}
            numbers |= {f"_{name.removeprefix('iia_')}": value for name, value in one.found.controls.items()}
            rows += [
                (f"subspace_{one.variable}{name}", one.site, one.position, float(value))
                for name, value in numbers.items()
                if not isnan(value)
            ]
        rows += [(f"exchange_{e.test}", e.stage, e.position, e.changed) for e in self.exchanged]
        for dose in self.dosed.itertuples():
            numbers = {"": dose.answer, "_random": dose.random, "_floor": dose.floor}
            rows += [(f"dose_{dose.method}_{dose.delta}{end}", dose.site, ALL, v) for end, v in numbers.items()]
        return rows


def gather(network: Network, task: Task, sample: int = 512, steps: int = 50, seed: int = 0) -> Evidence:
    """All of it for an addition; for another task, what its prompt's positions hold.

    Args:
        network: in evaluation mode.
        task: answered least significant bit first.
        sample: couples of the exchanges; an eighth of it are moved by each dose, along directions
            that four times as many give.
        steps: of each search for a subspace, or 0 for no search.
        seed: of all samples.
    """
    pairs = CausalTask(task)
    exchanged = list(exchanges(network, pairs, sample, seed))
    evidence = Evidence(exchanged, pd.DataFrame(), [])
    if not isinstance(task, Add):
        return evidence
    sites = layers(network)
    last_of_encoder = [site for site in sites if site.startswith("enc.")][-1:]
    decoder = [site for site in sites if site.startswith("dec.")]
    deltas = [delta for delta in DOSES if delta < 2**task.bits]
    count, where = max(16, sample // 8), last_of_encoder + decoder
    moved = doses(
        network, pairs, where, METHODS, deltas, count, seed, prefixes=("target",), fitted=4 * sample, random=2
    )
    t = task.width // 2
    site = entrance(evidence, decoder, str(t))
    searched = _search(network, pairs, site, t, steps, seed) if steps else []
    return Evidence(exchanged, pd.DataFrame(moved), searched)


def entrance(evidence: Evidence, sites: Sequence[str], position: str) -> str:
    """The first site that holds the carry; where none does, the one in the middle."""
    held = [site for site in sites if evidence.holds("carry", site, position) >= EFFECT]
    return held[0] if held else sites[len(sites) // 2]


def _search(network: Network, pairs: CausalTask, site: str, t: int, steps: int, seed: int) -> list[Searched]:
    """Every variable at position t, and the sum as one number at all positions together."""
    search = Search(network, pairs, [site], Budget(steps=steps), seed)
    places: list[tuple[str, int | None]] = [*((variable, t) for variable in pairs.models), ("sum", None)]
    found = []
    for variable, position in places:
        chosen = next(one for one in search.at(site, position, variable, RANKS) if one.chosen)
        found.append(Searched(variable, site, ALL if position is None else str(position), chosen))
    return found
