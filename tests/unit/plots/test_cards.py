"""A card says of its files what they say, bounded, with nothing empty; other files are refused."""

import pandas as pd
import pytest

from arith_erd.plots.cards import MAX_SEEDS, MAX_STAGES, Card, expected_rows
from tests.cards import bit, seed_card, table, whole


def test_table_says_what_is_transmitted_needed_and_where_the_carry_appears() -> None:
    card = Card.read(whole(seed_card()), table(0))
    assert card.title == "mine: none"
    assert card.table.to_dict("records") == [
        {
            "seed": "0",
            "verdict": "none",
            "right": "87.5%",
            "nearest, distance": "mixed, 1.5",
            "moves that answers follow": "carry: bits 2-3; value: no bit",
            "a random prefix changes": "bits 2-3: 25 to 50% of the answers",
            "a prefix that says nothing changes": "no bit",
            "the carry appears": "dec.1 to dec.2, in 1 bit nowhere",
        }
    ]
    assert card.notes == ["seed 0: no algorithm is near"]


def test_what_is_not_known_is_said_in_words() -> None:
    """A multiplication has no verdict and no carries."""
    nothing = seed_card() | {"distance": None, "nearest": None, "distances": {}, "bits": [bit(1, None, [], None)]}
    (line,) = Card.read(whole(nothing, calibrated=False), table(0)).table.to_dict("records")
    assert line["nearest, distance"] == "none is known"
    assert line["a random prefix changes"] == "not measured"
    assert line["the carry appears"] == "nowhere"


def test_many_seeds_and_stages_are_cut_and_the_card_says_so() -> None:
    seeds = range(MAX_SEEDS + 3)
    rows = table(*seeds)
    more = rows[rows["stage"] == "dec.1"].iloc[[0] * (MAX_STAGES + 5)]
    more = more.assign(stage=[f"s{i}" for i in range(len(more))], position="1e9")
    card = Card.read(whole(*map(seed_card, seeds)), pd.concat([rows, more.assign(position="3"), more]))
    assert len(card.table) == len(card.verdicts) == MAX_SEEDS
    assert card.notes[:2] == ["8 more stages are not shown", "3 more seeds are not shown"]
    assert card.rows["stage"].nunique() == MAX_STAGES
    assert "1e9" not in set(card.rows["position"])
    assert card.draw().axes


def test_expected_signatures_become_rows_and_null_is_not_known() -> None:
    rows = expected_rows({"erd": {"carry": [None, 0.5]}})
    assert rows["position"].tolist() == [0, 1]
    assert rows["value"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", whole(), whole(seed_card() | {"accuracy": 1e300}), whole(seed_card() | {"seed": "x"})],
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^card\.json: not a card \("):
        Card.read(text, table(0))
    with pytest.raises(ValueError, match=r"^card\.json: not a card \(KeyError"):
        Card.read(whole(seed_card()), table(0).drop(columns="stage"))
