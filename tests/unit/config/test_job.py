"""Jobs: their seeds, and the packs that these are trained in, which the same command finds again."""

import itertools
from dataclasses import replace

import pytest

from arith_erd.config.compose import compose
from arith_erd.seeds import parse_seeds


@pytest.mark.parametrize("seeds", ["0", "0-18", "1,3,5,7-40"])
@pytest.mark.parametrize("limit", [1, 5, 64, "auto"])
def test_every_seed_is_in_one_pack_and_no_pack_is_too_large(seeds, limit):
    job = compose("train", [f"seed='{seeds}'"])
    packs = replace(job, pack=replace(job.pack, max_replicas=limit)).packs()
    assert tuple(itertools.chain.from_iterable(pack.seeds for pack in packs)) == parse_seeds(seeds)
    assert max(len(pack.seeds) for pack in packs) <= (len(job.seeds) if limit == "auto" else limit)
    assert {pack.pack.part_of for pack in packs} == ({None} if len(packs) == 1 else {seeds})
