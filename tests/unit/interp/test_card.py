"""A card says where it is calibrated. The rest is in ``tests/unit/probes/test_mechanism.py``."""

from functools import partial

import pytest

from arith_erd.interp.card import is_calibrated
from arith_erd.models import NanoGPT, Transformer
from arith_erd.tasks import Add, Mul, Task


@pytest.mark.parametrize(
    ("make", "task", "calibrated"),
    [
        (Transformer, Add(7), True),
        (partial(Transformer, num_layers=1), Add(7), False),
        (partial(Transformer, d_model=32), Add(7), False),
        (Transformer, Add(7, prompt_order="plain"), False),
        (Transformer, Add(5), False),
        (Transformer, Mul(7), False),
        (NanoGPT, Add(7), False),
    ],
)
def test_card_is_calibrated_only_where_references_exist(make, task: Task, calibrated: bool) -> None:
    network = make(task.prompt_length, task.width)
    assert is_calibrated(network, task) == calibrated
