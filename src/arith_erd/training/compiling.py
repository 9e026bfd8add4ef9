"""`torch.compile` as packs use it, with what makes it quicker for networks of many small layers."""

from collections.abc import Callable
from typing import Any

import torch

OPTIONS: dict[str, Any] = {
    # A result of more operations than this that is used twice is kept, not computed twice. The default for CPUs is 50
    # (torch 2.13), and a sum with a dropped-out branch stays below that: each loop of the layer norm after it would
    # hash the dropout mask anew. That is more C++ to write and to compile, and no quicker to run.
    "realize_opcount_threshold": 30,
}


def compiled(function: Callable[..., Any], cuda_graphs: bool = False) -> Callable[..., Any]:
    """The function, compiled anew for each shape of its arguments.

    Args:
        function: of tensors.
        cuda_graphs: on CUDA, launch each pass as one graph instead of kernel by kernel.
    """
    _fill_rules_once()
    options = OPTIONS | ({"triton.cudagraphs": True} if cuda_graphs else {})
    # One compilation for each batch size: linear layers under vmap take no symbolic one (torch 2.13).
    return torch.compile(function, dynamic=False, options=options)


def _fill_rules_once() -> None:
    """Let Inductor fill its only table of dtype rules once; torch 2.13 does it for every operation that it writes out.

    That took a sixth of the time that the compiler spends in Python.
    """
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler as Rules

    fill = Rules.__init__
    if fill.__name__ == "fill_once":
        return

    def fill_once(self: Rules) -> None:
        if not vars(self):
            fill(self)

    Rules.__init__ = fill_once  # type: ignore[method-assign]
