"""The table of token means, and its curves over epochs."""

import numpy as np
import pandas as pd
import pytest

import arith_erd as ae
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Provenance
from arith_erd.models import Transformer
from arith_erd.probes.encoder_table import EncoderTable
from arith_erd.tasks import Add
from tests.unit.probes.small import untrained


def test_token_means_come_from_all_training_pairs() -> None:
    model = untrained(Add(3), Transformer)
    few, all_pairs = (
        pd.DataFrame(EncoderTable([model], num_examples=count).rows()).query("token == 'r0'")["accuracy"].item()
        for count in (1, None)
    )
    assert few in (0.0, 1.0)
    assert 0 < all_pairs < 1


def test_curves_of_token_means_keep_whole_answers_apart_from_their_tokens() -> None:
    # The split is that of the whole table, whatever the sample.
    provenance = Provenance(split=lambda table: (np.arange(64) % 4 == 0).tolist())
    model = ae.Hooked(untrained(Add(3)).network, task=Add(3), provenance=provenance)
    assert set(ae.probe("encoder_table", model, num_examples=16).rows["n"]) == {16}
    result = ae.probe("encoder_table", model)
    whole = result.rows.query("token == 'all'")["accuracy"].mean()
    curves = result.probe.epoch_curves(result.rows).table.set_index("line")["value"]
    assert curves["all"] == pytest.approx(whole)
    assert set(curves.index) == {"all", "r0", "r1", "r2", "r3"}
    with pytest.raises(UserError, match=r"^probe=encoder_table: .* has no encoder"):
        ae.probe("encoder_table", untrained(Add(3), ae.NanoGPT))
