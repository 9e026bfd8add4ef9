"""The epochs of a run with weights: those that ``checkpoint.keep`` kept, the last one, and 0, before training."""

from collections.abc import Sequence
from typing import Literal

from ..errors import UserError
from ..runs import Run
from ..seeds import format_seeds

Epochs = Literal["all"] | tuple[int, ...]


def epochs_there(run: Run, seeds: Sequence[int]) -> list[int]:
    """Epochs for which all of these seeds have weights, ascending; without 0, which needs no file."""
    last = [row["epoch"] for row in run.metrics()[-1:]] if all(run.weights(seed).is_file() for seed in seeds) else []
    return sorted({*set.intersection(*(set(run.kept_epochs(seed)) for seed in seeds)), *last})


def chosen_epochs(run: Run, seeds: Sequence[int], wanted: Epochs) -> list[int]:
    """The epochs that were asked for, ascending.

    Args:
        run: with the weights.
        seeds: all of them need the weights.
        wanted: epochs, or ``all`` for those that were kept and the last one.

    Raises:
        UserError: if weights are missing; the message lists the epochs that have some.
    """
    there = epochs_there(run, seeds)
    kept = f"{run.path} has weights of {f'epoch {format_seeds(tuple(there))}' if there else 'no epoch'}"
    hint = "" if len(there) > 1 else "; checkpoint.keep=all, log or every:K keeps more while a run trains"
    if wanted == "all" and len(there) < 2:
        raise UserError(f"epoch=all: {kept} alone{hint}" if there else f"epoch=all: {kept}{hint}")
    for epoch in () if wanted == "all" else wanted:
        if epoch not in (0, *there):
            raise UserError(f"epoch={epoch}: {kept} and 0 (before training){hint}")
    return there if wanted == "all" else sorted(wanted)
