"""Networks and tasks without anything to find give numbers or one line, not an internal error."""

import pandas as pd
import pytest

from arith_erd.errors import UserError
from arith_erd.models import NanoGPT, Transformer
from arith_erd.probes.dose import Dose
from arith_erd.probes.encoder_table import EncoderTable
from arith_erd.probes.patching import Patching
from arith_erd.probes.probe import weighted_means
from arith_erd.probes.subspaces import Subspaces
from arith_erd.tasks import Add, ModAdd, Mul
from tests.unit.probes.small import untrained


def test_means_are_over_the_values_that_are_known() -> None:
    rows = pd.DataFrame({"token": ["r0", "r0", "r1"], "n": [1, 3, 2], "a": [0.5, float("nan"), float("nan")]})
    means = weighted_means(rows, ["token"], ["a"])["a"]
    assert means["r0"] == 0.5
    assert pd.isna(means["r1"])


def test_a_step_along_no_direction_changes_nothing() -> None:
    model = untrained(Add(3), Transformer)
    for parameter in model.network.parameters():
        parameter.data.zero_()
    rows = pd.DataFrame(Dose([model], site="dec.1", method=["leace", "slope"]).rows())
    assert (rows["followed"] == rows["no_intervention"]).all()


def test_token_means_come_from_all_training_pairs() -> None:
    model = untrained(Add(3), Transformer)
    few, all_pairs = (
        pd.DataFrame(EncoderTable([model], num_examples=count).rows()).query("token == 'r0'")["accuracy"].item()
        for count in (1, None)
    )
    assert few in (0.0, 1.0)
    assert 0 < all_pairs < 1


def test_too_few_operands_for_separate_pools_are_refused() -> None:
    with pytest.raises(UserError, match=r"^task=mod_add: has too few values of an operand; expected three sets"):
        list(Subspaces([untrained(ModAdd(bits=2, modulus=3), NanoGPT)]).rows())


def test_a_figure_without_a_number_says_so() -> None:
    probe = Patching([untrained(Mul(3), NanoGPT)], num_examples=1, seed=11, site="dec.1")
    rows = pd.DataFrame(probe.rows())
    (ax,) = probe.figure(rows.assign(recovered=float("nan"))).axes
    assert [text.get_text() for text in ax.texts] == ["no row has a number to draw"]
