"""What compiling costs."""

import torch

from arith_erd.training.compiling import compiled


def test_the_rules_of_inductor_are_filled_once():
    compiled(torch.sin)
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler as Rules

    rule = Rules().add
    assert Rules().add is rule
