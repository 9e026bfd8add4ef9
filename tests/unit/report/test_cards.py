"""A card in the report says what its files say, bounded, with no empty cell; other files are refused."""

import pytest

from arith_erd.mechanism.card import Card
from arith_erd.report.cards import MAX_SEEDS, ShownCard
from tests.cards import bit, seed_card, table, whole


def test_table_says_what_is_followed_and_needed() -> None:
    card = ShownCard.read(whole(seed_card()), table(0))
    assert card.title == "mine: none"
    assert card.table.to_dict("records") == [
        {
            "seed": "0",
            "verdict": "none",
            "right": "87.5%",
            "nearest, distance": "mixed, 1.5",
            "steering that answers follow": "carry: bits 2-3; value: no bit",
            "a random prefix changes": "bits 2-3 in 25 to 50% of the answers",
            "an ablated last token changes": "no bit",
        }
    ]
    assert card.notes == [
        "seed 0: Verdict: none of the 2 algorithms fits: the nearest is a mixture of two at 1.50, the limit is 1.",
        "seed 0: Prefix: random tokens before a bit change bits 2-3 in 25 to 50% of the answers; ablating the last one "
        "changes no bit.",
        "seed 0: Steering: an inverted carry is followed by bits 2-3; a shifted sum is followed by no bit.",
        "seed 0: no algorithm is near",
    ]


def test_what_is_not_known_is_said_in_words() -> None:
    """A multiplication has no verdict and no carries."""
    nothing = seed_card() | {"distance": None, "nearest": None, "distances": {}, "bits": [bit(1, None, [])]}
    card = ShownCard.read(whole(nothing, calibrated=False), table(0))
    (line,) = card.table.to_dict("records")
    assert line["nearest, distance"] == "none is known"
    assert line["a random prefix changes"] == "not measured"
    assert card.notes[0].startswith("seed 0: Verdict: none, since the known algorithms are for addition")


def test_card_is_the_same_after_a_round_trip() -> None:
    card = Card.from_json(whole(seed_card(), expected={"erd": {"carry": [None, 0.5]}}))
    assert Card.from_json(card.to_json()) == card
    assert card.expected_rows()["value"].isna().tolist() == [True, False]


def test_many_seeds_are_cut_and_the_card_says_so() -> None:
    seeds = range(MAX_SEEDS + 3)
    card = ShownCard.read(whole(*map(seed_card, seeds)), table(*seeds))
    assert len(card.table) == len(card.card.seeds) == MAX_SEEDS
    assert card.notes[0] == "3 more seeds are not shown"
    assert card.rows["seed"].nunique() == MAX_SEEDS
    assert card.draw().axes


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", whole(), whole(seed_card() | {"accuracy": 1e300}), whole(seed_card() | {"seed": "x"})],
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^card\.json: not a card \("):
        ShownCard.read(text, table(0))


def test_rows_of_an_older_version_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^rows\.csv: not of this card; if it is of an older version, ask"):
        ShownCard.read(whole(seed_card()), table(0).drop(columns="test"))
