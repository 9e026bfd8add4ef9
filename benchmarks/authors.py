"""Time the paper authors' code, in a process of its own and without touching their files.

Their training functions are called as their notebooks call them. The clock is attached by wrapping three functions
that they look up by name: an epoch begins with a call of ``shuffle_in_unison``, ends when the training function
returns, and evaluates through ``eval_accuracy_autoregressive``. Imports, the making of the data set and of the model
all happen before the shuffle, so they are in no epoch; both accuracies are in it.
"""

import contextlib
import importlib
import io
import resource
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any

import torch

WARM_UP = 1024  # examples of either subset: one evaluation batch of theirs


def time_epoch(script: Path, function: str, operation: str, cpu: bool) -> dict[str, Any]:
    """Time the first epoch of one of their runs, after a warm-up on 1024 examples.

    Returns:
        ``seconds`` in ``training``, ``evaluation`` and ``total``; ``memory``, the peaks in bytes; ``train_seq_acc`` and
        ``val_seq_acc``.
    """
    warnings.filterwarnings("ignore")
    if cpu:
        torch.cuda.is_available = lambda: False
    for name, attribute in (("torch.utils.tensorboard", "SummaryWriter"), ("torchinfo", "summary")):
        unused = types.ModuleType(name)  # imported by their nanoGPT script, which then never calls it
        setattr(unused, attribute, None)
        sys.modules[name] = unused
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(script.parent))
    module = importlib.import_module(script.stem)
    clock = _Clock(module)
    for limit in (WARM_UP, None):
        clock.start_epoch(limit)
        with contextlib.redirect_stdout(io.StringIO()):  # a dot for every step
            train_accuracy, val_accuracy = getattr(module, function)(operation, run_count=1, epochs=1)
    total = _synchronized_time() - clock.start
    seconds = {"training": total - clock.evaluation, "evaluation": clock.evaluation, "total": total}
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    device = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return {
        "seconds": seconds,
        "memory": {"resident": resident, "device": device},
        "train_seq_acc": float(train_accuracy[-1]),
        "val_seq_acc": float(val_accuracy[-1]),
    }


class _Clock:
    """Wraps the functions that ``module`` looks up."""

    def __init__(self, module: Any) -> None:
        self.shuffle = module.shuffle_in_unison
        self.split = module.random_split_dataset
        self.evaluate = module.eval_accuracy_autoregressive
        module.shuffle_in_unison = self._shuffle
        module.random_split_dataset = self._split
        module.eval_accuracy_autoregressive = self._evaluate

    def start_epoch(self, limit: int | None) -> None:
        """Start the clock of an epoch. With a limit, each subset has only so many examples."""
        self.limit, self.start, self.evaluation = limit, 0.0, 0.0

    def _split(self, *arguments: Any, **options: Any) -> Any:
        return [x[: self.limit] for x in self.split(*arguments, **options)]

    def _shuffle(self, *arguments: Any, **options: Any) -> Any:
        self.start = _synchronized_time()
        return self.shuffle(*arguments, **options)

    def _evaluate(self, *arguments: Any, **options: Any) -> Any:
        start = _synchronized_time()
        result = self.evaluate(*arguments, **options)
        self.evaluation += _synchronized_time() - start
        return result


def _synchronized_time() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
