"""A card says in words what its file says, with no empty cell; other files are refused."""

import pytest

from arith_erd.mechanism.card import Card
from tests.cards import bit, seed_card, whole


def test_card_says_what_is_followed_and_needed() -> None:
    card = Card.from_json(whole(seed_card()))
    assert card.title == "mine: none"
    assert card.table().to_dict("records") == [
        {
            "seed": "0",
            "verdict": "none",
            "right": "87.5%",
            "nearest, distance": "mixed, 1.5",
        }
    ]
    assert card.summary()[1:] == [
        "Prefix: random tokens before a bit change bits 2-3 in 25 to 50% of the answers; ablating the last one changes "
        "no bit.",
        "Steering: an inverted carry is followed by bits 2-3; a shifted sum is followed by no bit.",
    ]
    assert "seed 0: no algorithm is near" in card.notes()


def test_what_is_not_known_is_said_in_words() -> None:
    """A multiplication has no verdict and no carries."""
    nothing = seed_card() | {"distance": None, "nearest": None, "distances": {}, "bits": [bit(1, None, [])]}
    card = Card.from_json(whole(nothing, calibrated=False))
    assert card.table()["nearest, distance"].tolist() == ["none is known"]
    assert card.summary()[1].startswith("Prefix: random tokens before a bit change not measured;")


@pytest.mark.parametrize("text", ["{", "{}", whole(), whole(seed_card() | {"accuracy": 1e300})])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^card\.json: not a card \("):
        Card.from_json(text)
