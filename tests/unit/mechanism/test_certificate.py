"""A certificate names the algorithm that made the answers, and measures the noise that was put into them."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.catalog.loading import load_handcoded
from arith_erd.errors import UserError
from arith_erd.interp import algorithms
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.certificate import CLEAR, LOCAL_REMAINDER, Certificate, PrefixBlock, answered_by, certificate
from arith_erd.models import NanoGPT
from arith_erd.probes.certificate import CertificateProbe, mean_over_bits
from arith_erd.tasks import Add, Mul, Sub
from tests.unit.probes.small import measured, untrained

TASK = Add(bits=5)
ALGORITHMS = (LOCAL_REMAINDER, "graded_carry", "remainder", "prefix_carry", "erd")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_gets_its_own_answers_and_fails_the_others(name: str) -> None:
    made = answered_by(lambda block: block.predicted(name), TASK)
    right = made.shares().groupby("algorithm").apply(mean_over_bits, include_groups=False)
    assert right[name] == 1
    assert (right.drop(name) < 0.995).all()
    total = made.shares().groupby("algorithm")["n"].sum()
    assert set(total) == {2**10 * (2**6 - 1)}  # every pair after every prefix, at every bit
    against = made.contrasts().query("algorithm == @name")
    assert (against["right"] == 1).all()


def test_noise_in_c_and_a_moved_threshold_are_measured() -> None:
    rng = np.random.default_rng(0)

    def answer(block: PrefixBlock) -> np.ndarray:
        x = block.inputs
        noisy = x.column_sum + x.c - 0.1 + rng.normal(0, 0.1, len(x.c))
        return np.floor(noisy + 0.5).clip(0, x.column_sums.max_total[x.t]) % 2

    noisy = answered_by(answer, TASK)
    fits = noisy.precision().set_index("bit").loc[2:]
    np.testing.assert_allclose(fits["threshold"], 0.6, atol=0.02)
    np.testing.assert_allclose(fits["sigma"], 0.1, atol=0.02)
    own = noisy.shares().query("algorithm == @LOCAL_REMAINDER")
    assert own.query("distance >= 0.45")["right"].min() > 0.99
    assert own.query("distance < 0.1 & bit > 2")["right"].max() < 0.95


def test_clear_counterexamples_are_listed_with_their_pair_and_prefix() -> None:
    def answer(block: PrefixBlock) -> np.ndarray:
        x = block.inputs
        wrong = (x.a == 3) & (x.b == 5) & (x.prefix == 0) & (x.t == 2)
        return block.predicted(LOCAL_REMAINDER) ^ wrong

    (found,) = answered_by(answer, TASK).counterexamples().itertuples(index=False)
    # (3 + 1 - 0) / 4 = 1 and the bits at 2 are 0 and 1: the total is 2, half a unit from 3/2 and 5/2
    assert found._asdict() == {"bit": 2, "a": 3, "b": 5, "prefix": 0, "distance": 0.5, "answer": 1}


def test_stored_answers_load_unchanged() -> None:
    rng = np.random.default_rng(1)
    made = answered_by(lambda block: block.predicted(LOCAL_REMAINDER) ^ (rng.random(len(block.inputs.a)) < 0.02), TASK)
    back = Certificate.from_bytes(TASK, made.to_bytes(), causal_model=algorithms.ALGORITHMS["erd"].causal_model(TASK))
    by_user_model, by_erd = (back.shares().query("algorithm == @name") for name in ("user_model", "erd"))
    assert by_user_model["right"].tolist() == by_erd["right"].tolist() != []
    assert all(np.array_equal(*pair) for pair in zip(made.answers, back.answers, strict=True))
    assert len(made.to_bytes()) < 2**16  # bits, in at most a sixteenth of the bytes of the answers


def test_probe_counts_every_answer_of_a_network(tmp_path) -> None:
    model = untrained(Add(bits=3), NanoGPT)
    probe = CertificateProbe([model])
    rows = measured(probe)
    assert rows.groupby("algorithm")["n"].sum().tolist() == [64 * 15] * len(ALGORITHMS)
    files = probe.files()
    back = Certificate.from_bytes(model.task, files["answers-seed=0.bin"])
    pd.testing.assert_frame_equal(back.shares(), rows.drop(columns="seed"))
    assert probe.summary()[0].startswith("seed 0: local_remainder gives ")


def test_probe_shows_the_chosen_algorithm() -> None:
    models, own = [untrained(Add(bits=2), NanoGPT)], {"algorithm": "user_model", "causal_model": "erd"}
    mine, erd = CertificateProbe(models, **own), CertificateProbe(models, algorithm="erd")
    assert mine.files()["counterexamples.csv"] == erd.files()["counterexamples.csv"]
    assert mine.files()["counterexamples.csv"] != CertificateProbe(models).files()["counterexamples.csv"]
    assert mine.summary()[0].startswith("seed 0: user_model gives ")
    assert set(mine.shown(measured(mine))["panel"]) == {"user_model, by network", "Other algorithms"}
    with pytest.raises(UserError, match=r"^probe\.algorithm=user_model: expected one of local_remainder, gr"):
        CertificateProbe(models, algorithm="user_model")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local_remainder", "erd"])  # the others: tests/unit/models
def test_a_handcoded_network_gets_the_certificate_of_its_algorithm(name: str, monkeypatch) -> None:
    """We ask every 65th pair after every prefix. The step is odd, so the pairs have all digits."""
    model, some = load_handcoded(name), Add().examples()[::65]
    monkeypatch.setattr(Add, "examples", lambda task: some)
    shares = certificate(model).shares()
    clear = shares[shares["distance"] >= CLEAR]
    assert mean_over_bits(clear[clear["algorithm"] == name]) > 0.999


def test_random_completions_are_a_sample_of_all_prefixes() -> None:
    model = untrained(Mul(bits=2), NanoGPT)
    every, some = certificate(model), certificate(model, num_completions=3)
    pairs = np.arange(model.task.size)[:, None]
    for t, answers in enumerate(some.answers):
        np.testing.assert_array_equal(answers, every.answers[t][pairs, some.completions % 2**t])
    assert some.shares().groupby(["algorithm", "bit"])["n"].sum().eq(16 * 3).all()
    back = Certificate.from_bytes(model.task, some.to_bytes(), some.completions)
    pd.testing.assert_frame_equal(back.curve(), some.curve())


def test_the_curve_of_local_remainder_is_a_square_wave() -> None:
    curve = answered_by(lambda block: block.predicted(LOCAL_REMAINDER), TASK).curve().query("0 <= total < 3")
    middle = curve[curve["bit"].between(2, 4)]  # both operands have the bit
    np.testing.assert_array_equal(middle["ones"], np.floor(middle["total"] + 0.5) % 2)
    assert set(middle["total"] % 1) == set(np.arange(16) / 16)


def test_a_multiplication_has_no_carries_and_other_tasks_are_refused() -> None:
    task = Mul(bits=2)
    made = answered_by(lambda block: block.predicted("erd"), task)
    assert set(made.shares()["algorithm"]) == {LOCAL_REMAINDER, "remainder", "erd"}
    for other, problem in ((Sub(bits=3), "task=sub: has no columns"), (Add(bits=10), "task=add: 1,048,576 examples")):
        with pytest.raises(UserError, match=problem):
            certificate(Hooked(NanoGPT(other.prompt_length, other.answer_length, d_model=16, num_heads=2), task=other))
    model = Hooked(NanoGPT(7, 4, d_model=16, num_heads=2), task=Add(bits=3))
    for given, problem in (
        ((model, CausalModel(Add(bits=4))), "causal_model: received one for Add"),
        ((model, "erd"), "causal_model: received str; expected Ca"),
        ((3,), "model: received int; expected Hooked"),
    ):
        with pytest.raises(UserError, match=f"^certificate: {problem}"):
            certificate(*given)
