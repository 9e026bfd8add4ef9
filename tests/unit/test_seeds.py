"""Every spelling of a pack means the same seeds, and no two random streams meet."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.errors import UserError, bad_value
from arith_erd.seeds import MAX_SEED, MAX_SEEDS, RandomStream, derive_seed, format_ranges, parse_seeds

SEED_SETS = st.sets(st.integers(0, 60) | st.integers(0, MAX_SEED), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("spec", "seeds"),
    [
        ("7,0-4", (0, 1, 2, 3, 4, 7)),
        (" 1 - 3 , 5 ", (1, 2, 3, 5)),
        (["0-2", 9], (0, 1, 2, 9)),
        (MAX_SEED, (MAX_SEED,)),
        (f"0-{MAX_SEEDS - 1}", tuple(range(MAX_SEEDS))),
    ],
)
def test_spec_stands_for_the_seeds_that_it_names(spec, seeds):
    assert parse_seeds(spec) == seeds


@given(SEED_SETS, st.randoms())
def test_every_spelling_of_a_pack_has_one_canonical_form(seeds, random):
    shuffled = list(seeds)
    random.shuffle(shuffled)
    canonical = format_ranges(parse_seeds(shuffled))
    assert format_ranges(parse_seeds(",".join(map(str, shuffled)))) == canonical
    assert format_ranges(parse_seeds(canonical)) == canonical


BAD_SPECS = [
    *("4-0", -1, "0,-1", "", "1,", "0-", "-", "0--2", "0-2-4", 1.5, "1e3", "[0,1]", "3,3", "0-4,2"),
    *(None, True, [], [[0]], [0, 0], [0, -1], [0.5], [0, "0-1"], {"a": 1}, "zero"),
    *(MAX_SEED + 1, f"0-{MAX_SEEDS}", f"0-{MAX_SEED}", "9" * 5000),
]


@pytest.mark.parametrize("spec", BAD_SPECS, ids=lambda spec: repr(spec)[:20])
def test_bad_spec_names_key_and_value(spec):
    with pytest.raises(UserError) as refused:
        parse_seeds(spec)
    message = str(refused.value)
    assert message.startswith(str(bad_value("seed", spec, ""))[:400])  # of a very long one the middle is left out
    assert ": expected " in message
    assert "\n" not in message


def test_streams_of_seeds_never_meet():
    seeds = (0, 1, 2, 63, 2**16, MAX_SEED)
    derived = [derive_seed(*place) for place in itertools.product(seeds, RandomStream, range(200))]
    assert len(set(derived)) == len(derived)
    assert all(0 <= value < 2**63 for value in derived)


def test_streams_equal_those_of_the_published_results():
    assert derive_seed(0, "weights") == 684422423885802804
    assert derive_seed(7, "batches", 3) == 79104026011276854
