"""Does a network compute the next bit of the answer from the bits before it?"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..bits import ZERO, Array
from ..errors import require_integer
from ..interp.causal import CausalTask
from ..interp.prefix import INTERVENTIONS, Reading, distance, hypotheses, read_prefixes, strata
from ..interp.subject import Subject
from ..plots.prefix import draw_prefixes
from .probe import Probe

BINS = ("0", "<1/4", "<1/2", "1/2", "<3/4", "<1")  # of |d|
HYPOTHESES = ("prompt_only", "local_carry", "remainder")


def bins_of(d: np.ndarray) -> Array:
    """Distances (N,) -> indices into `BINS`, each of which goes from the one before it, included, to its own."""
    d = np.abs(d)
    return np.select([d == 0, d < 0.25, d < 0.5, d == 0.5, d < 0.75], range(5), 5)


class Prefix(Probe):
    """Change the answer tokens before position t, and count how often the likeliest token at t changes.

    Exhaustive over all pairs, teacher forced, for the interventions of `interp.prefix`. A row is one of them at one
    position, over a stratum of the pairs; ``changed`` is the share of its ``n`` answers that change.

    A single inverted token is just where a machine that rounds what remains of the value ties: with
    d = (right prefix - given prefix) / 2^t it has \\|d\\| = 1/2. So ``random`` has rows by bins of \\|d\\| too (column
    ``d``; empty: all together), and tells the hypotheses apart: of the ``n_differ`` answers for which they expect
    different bits, ``prompt_only``, ``local_carry`` and ``remainder`` are the shares that each expects.

    In ``1 + 2 = 3`` at three bits the prefix of position 1 is ``1``. After ``0``, wrong by d = 1/2, a network that
    reads the carry off r_0 takes 1 + 0 with the sum bit 0 for a carry, and answers 0 instead of 1. The pair belongs to
    the stratum ``propagate``, a_0 != b_0.

    Args:
        subjects: trained replicas of one task.
        draws: random prefixes of each pair.
        seed: of those.

    Raises:
        UserError: if the answer is written in plain order.
    """

    columns = ("seed", "position", "intervention", "stratum", "d", "n", "changed", "n_differ", *HYPOTHESES)

    def __init__(self, subjects: Sequence[Subject], draws: int = 2, seed: int = 0) -> None:
        require_integer("probe.draws", draws, 1)
        require_integer("probe.seed", seed, 0)
        self.subjects = subjects
        self.pairs = CausalTask(subjects[0].task)
        self.draws = draws
        self.seed = seed

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            readings = read_prefixes(subject.network, self.pairs, self.draws, self.seed)
            grouped: dict[tuple[int, str], list[Reading]] = defaultdict(list)
            for reading in readings.changed:
                grouped[reading.position, reading.intervention].append(reading)
            order = sorted(grouped, key=lambda key: (key[0], INTERVENTIONS.index(key[1])))
            for t, intervention in order:
                for values in self._rows(t, grouped[t, intervention], readings.clean[:, t]):
                    yield dict(zip(self.columns, (subject.seed, t, intervention, *values), strict=True))

    def _rows(self, t: int, readings: list[Reading], clean: Array) -> Iterator[tuple[Any, ...]]:
        """From ``stratum`` on: all readings of one intervention together, and random ones by |d| too."""
        changed = np.concatenate([reading.tokens != clean for reading in readings])
        cells = {name: np.tile(inside, len(readings)) for name, inside in strata(self.pairs, t).items()}
        if readings[0].intervention != "random":
            for name, inside in cells.items():
                yield name, None, int(inside.sum()), _share(changed[inside]), None, *(None for _ in HYPOTHESES)
            return
        prefixes = [reading.prefix for reading in readings if reading.prefix is not None]
        d = np.concatenate([bins_of(distance(self.pairs, prefix)) for prefix in prefixes])
        expected = {
            name: np.concatenate(bits)
            for name, bits in _columns([hypotheses(self.pairs, prefix) for prefix in prefixes]).items()
        }
        answered = np.concatenate([reading.tokens for reading in readings]) - ZERO
        right = {name: answered == bits for name, bits in expected.items()}
        several = np.stack(list(expected.values()))  # (hypotheses, N)
        differ = (several != several[0]).any(axis=0) & (several >= 0).all(axis=0)
        for stratum, inside in cells.items():
            for label, members in [(None, inside), *((BINS[i], inside & (d == i)) for i in range(len(BINS)))]:
                if not members.any():
                    continue
                apart = members & differ
                agreement = [_share(right[name][apart]) if name in right else None for name in HYPOTHESES]
                yield stratum, label, int(members.sum()), _share(changed[members]), int(apart.sum()), *agreement

    def notes(self) -> list[str]:
        """What the rows cannot tell."""
        return [
            "no dependence on the prefix excludes prefix_carry and remainder; it does not tell a value from carries "
            "that are computed from the prompt (probe=interchange does)"
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The share of changed answers by intervention and stratum, a column for each position: means over seeds."""
        whole = rows[rows["d"].isna()]
        means = whole.groupby(["intervention", "stratum", "position"], sort=False)["changed"].mean()
        wide = means.unstack("position").reset_index()
        shown = wide.loc[sorted(wide.index, key=lambda i: INTERVENTIONS.index(wide["intervention"][i]))]
        return shown.map(lambda x: "" if x != x else f"{x:.3f}" if isinstance(x, float) else x)

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Changed answers by position for each intervention and stratum, and by |d| beside what hypotheses expect."""
        return draw_prefixes(rows, self.subjects[0].task.name)


def _share(what: Array) -> float | None:
    """The mean, None of nothing."""
    return float(what.mean()) if len(what) else None


def _columns(dictionaries: list[dict[str, Array]]) -> dict[str, list[Array]]:
    return {name: [one[name] for one in dictionaries] for name in dictionaries[0]}
