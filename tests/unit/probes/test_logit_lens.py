"""The lens at the last layer is the network itself; a layer that is not the whole state has none."""

import pytest

from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.tasks import Add
from tests.unit.probes.small import measured, untrained

TASK = Add(3)


@pytest.mark.parametrize("model", [Transformer, NanoGPT])
def test_logit_lens_of_the_last_layer_equals_the_network(model: type[Network]) -> None:
    probe = LogitLens([untrained(Add(3), model)], num_examples=None)
    rows = measured(probe)
    last = rows[rows["site"] == "dec.2"]
    assert (last["agreement"] == 1).all()
    assert rows.loc[rows["site"] == "dec.1.resid_pre", "agreement"].min() < 1
    assert rows["probability"].between(0, 1).all()


class Branch(NanoGPT):
    """A network whose ``dec.2`` is what a block adds, not the stream after it."""

    def sites(self):
        return super().sites() | {"dec.2": self.blocks[1].feed_forward.sublayer}


def test_logit_lens_refuses_a_layer_that_is_not_the_whole_state():
    branch = Hooked(untrained(TASK, Branch).network, task=TASK)
    with pytest.raises(UserError, match=r"^site=dec.2: is not the whole state of Branch: with dec.2 fixed, .* dec.1"):
        measured(LogitLens([branch], num_examples=8))
