"""Profiles name the algorithm of known networks, and say what was not measured."""

import json

import pandas as pd
import pytest

from arith_erd.catalog.loading import load_handcoded
from arith_erd.mechanism.profile import NO_VERDICT, UNCALIBRATED, BitResponse, NetworkProfile
from arith_erd.mechanism.steering import largest_shift
from arith_erd.models import NanoGPT
from arith_erd.probes.mechanism import CURVE_NAMES, Mechanism
from arith_erd.tasks import Add, Mul
from tests.unit.probes.small import measured, untrained


@pytest.mark.slow
def test_profile_of_a_handcoded_network_names_its_algorithm() -> None:
    probe = Mechanism([load_handcoded("prefix_carry", 7)], num_examples=64, num_steered=64, causal_model="prefix_carry")
    rows = measured(probe)
    assert json.loads(probe.files()["profile.json"])["seeds"][0]["bits"][0]["position"] == 1
    (profile,) = probe.profiles
    assert (profile.verdict, profile.calibrated, profile.accuracy) == ("prefix_carry", True, 1)
    assert {name for bit in profile.bits for name, follows in bit.follows.items() if follows} == {"carry"}
    assert all(bit.follows_prefix > 0 and bit.needs_prefix > 0 for bit in profile.bits[1:])
    verdict, *_, own = probe.summary()
    assert "it expects 100% of the answers" in own
    assert f"seed 7: {verdict}\n" in probe.files()["notes.txt"]
    assert set(probe.epoch_curves(rows).table["line"]) == set(CURVE_NAMES.values())
    assert UNCALIBRATED not in probe.notes()
    assert probe.table(rows)["verdict"].tolist() == ["prefix_carry"]
    distances = rows[rows["test"] == "distance"].set_index("component")["value"]
    assert distances.drop(["user_model", "mixed"]).idxmin() == "prefix_carry"
    assert distances["prefix_carry"] == rows["value"].iloc[0]


def test_profile_of_a_multiplier_gives_no_verdict_and_says_why() -> None:
    probe = Mechanism([untrained(Mul(3), NanoGPT)], num_examples=64, num_steered=64)
    table = probe.table(measured(probe))
    assert [(profile.verdict, profile.calibrated) for profile in probe.profiles] == [("undecided", False)]
    assert table["nearest (fits up to 1)"].tolist() == ["none is known"]
    assert NO_VERDICT in probe.summary()[0]
    assert UNCALIBRATED in probe.notes()


def test_panels_say_how_far_the_sum_is_shifted() -> None:
    """It is shifted by at most half of the operands' range, and by at most 64."""
    assert [largest_shift(bits) for bits in (3, 7, 8)] == [4, 64, 64]
    probe = Mechanism([untrained(Add(3), NanoGPT)], num_examples=64, num_steered=64)
    assert "Sum shifted by 1 .. 4:\nanswers that follow" in set(probe.shown(pd.DataFrame(probe.rows()))["question"])
    assert "seed 0: answers " in probe.files()["notes.txt"]  # a reason that the summary does not give


class OwnAdd(Add):
    """A subclass that changes nothing."""


def test_subclass_of_addition_is_an_addition() -> None:
    own, ours = (Mechanism([untrained(task, NanoGPT)], num_examples=64, num_steered=64) for task in (OwnAdd(3), Add(3)))
    pd.testing.assert_frame_equal(pd.DataFrame(own.rows()), pd.DataFrame(ours.rows()))


FOLLOWS = ({"carry": carry, "value": False} for carry in (None, True, True))
BITS = tuple(BitResponse(t, 0.25 * (t - 1), 0.0, follows) for t, follows in enumerate(FOLLOWS, 1))
DISTANCES = {"erd": 3.0, "mixed": 1.5}
PROFILE = NetworkProfile(0, "mine", "none", "mixed", 1.5, DISTANCES, {}, 0.875, True, ("no algorithm is near",), BITS)


def test_profile_says_what_is_followed_and_needed() -> None:
    assert PROFILE.summary()[1:] == [
        "Prefix: random tokens before a bit change bits 2-3 in 25 to 50% of the answers; ablating the last one changes "
        "no bit.",
        "Steering: bits 2-3 follow an inverted carry (bit 1 not measured); no bit follows a shifted sum.",
    ]
    assert PROFILE.other_reasons == ["no algorithm is near"]
