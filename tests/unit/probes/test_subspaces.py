"""Where subspaces are searched, for which variables, and what makes a search impossible."""

import pytest

from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.models import NanoGPT, Transformer
from arith_erd.probes.subspaces import Subspaces
from arith_erd.tasks import Add, ModAdd, Mul
from tests.unit.probes.small import measured, untrained

SMALL = {"num_train": 64, "num_validation": 20, "num_test": 20, "steps": 4, "num_controls": 2}


@pytest.mark.parametrize(("num_layers", "middle"), [(1, "dec.1"), (2, "dec.1"), (6, "dec.3")])
def test_subspaces_are_searched_in_the_middle_of_the_decoder(num_layers: int, middle: str) -> None:
    task = Add(2)
    for kind in (Transformer, NanoGPT):
        network = kind(task.prompt_length, task.width, d_model=8, num_heads=2, num_layers=num_layers)
        assert Subspaces([Hooked(network, task=task)]).sites == [middle]


@pytest.mark.slow
def test_variables_are_those_of_the_task_and_all_positions_have_its_value() -> None:
    rows = measured(Subspaces([untrained(Mul(3))], "dec.1", 2, rank=1, **SMALL))
    assert list(rows["variable"]) == ["a_bit", "b_bit", "column_sum", "carry", "product"]
    rows = measured(Subspaces([untrained(Add(3))], "enc.1", "all", rank=1, **SMALL))
    assert rows[["position", "variable"]].to_numpy().tolist() == [["all", "sum"]]
    decoder_only = Hooked(NanoGPT(7, 4, d_model=8, num_heads=2, num_layers=2), task=Add(3))
    rows = measured(Subspaces([decoder_only], "dec.1", ["a1", "r1"], "a_bit", rank=1, **SMALL))
    assert rows["position"].tolist() == ["a1", "r1"]


def test_too_few_operands_for_separate_pools_are_refused() -> None:
    with pytest.raises(UserError, match=r"^task=mod_add: has too few values of an operand; expected three sets"):
        list(Subspaces([untrained(ModAdd(bits=2, modulus=3), NanoGPT)]).rows())
