"""Seeds: how they are typed, ``0-4,7``, and the independent random streams derived from each.

Every random number of a training run comes from a `RandomStream`, through `derive_seed`. There is no other generator
state, so a run resumes exactly, and a replica is the same run alone or in a pack.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from .errors import bad_value

ACCEPTED_SEEDS = "at most 4096 distinct integers from 0 to 2147483647, such as 3, 0-4, '0-4,7' (quoted) or [0,1,2]"
MAX_SEED = 2**31 - 1
MAX_SEEDS = 4096


class RandomStream(StrEnum):
    """The random streams of a run; the values are hashed, so renaming one changes every run."""

    WEIGHTS = "weights"  # initial weights: `models.network.initialise`
    BATCHES = "batches"  # the order of the examples, indexed by epoch: `training.data.TrainBatches`
    DROPOUT = "dropout"  # the replica's key, indexed by half: `training.pack.Pack`; `models.dropout` hashes it
    HANDCODED = "reference"  # followed by the name of a network written by hand: `models.handcoded.write_network`


def parse_seeds(spec: object) -> tuple[int, ...]:
    """Parse seeds, and return them in ascending order. Every spelling of the same pack gives the same seeds.

    >>> parse_seeds("0-4,7")
    (0, 1, 2, 3, 4, 7)
    >>> parse_seeds(3), parse_seeds([2, "0-1"])
    ((3,), (0, 1, 2))
    """
    parts: Any = spec if isinstance(spec, Iterable) and not isinstance(spec, str | Mapping) else str(spec).split(",")
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", str(part))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last <= MAX_SEED or len(seeds) + last - first >= MAX_SEEDS:
            raise bad_value("seed", spec, ACCEPTED_SEEDS)
        seeds.extend(range(first, last + 1))
    if not seeds or len(set(seeds)) < len(seeds):
        raise bad_value("seed", spec, ACCEPTED_SEEDS)
    return tuple(sorted(seeds))


def format_ranges(seeds: tuple[int, ...]) -> str:
    """The inverse of `parse_seeds`: ``(0, 1, 2, 3, 4, 7)`` -> ``"0-4,7"``."""
    ordered = sorted(seeds)
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs if len(run))


def derive_seed(seed: int, stream: str, index: int = 0) -> int:
    """A 63-bit seed for one random stream, by name: a pure function of its arguments. Streams never overlap."""
    entropy = [seed, index, *stream.encode()]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
