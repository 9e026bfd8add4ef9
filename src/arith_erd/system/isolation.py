"""Make a library call independent of the calling program's global settings, and leave these settings unchanged.

A notebook may have turned gradients off, or changed torch's default type; calls may run in several threads.
"""

import os
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np

LOCK, TRAINING, HYDRA = locks = [threading.RLock() for _ in range(3)]
"""Locks for what all threads share. A thread holds the first briefly, for torch's global generator or network hooks,
and the second while a pack trains: Lightning, torch's compiler and the queue of signals serve one at a time."""
for lock in locks:
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]

at_end = ExitStack()  # the last call to end runs these
_calls = 0  # number of active calls in all threads


@contextmanager
def isolated(gradients: bool = True, network: Any = None) -> Iterator[None]:
    """Within the block, or the decorated function, torch, NumPy and warnings have the same settings in any program.

    New tensors are float32 on the CPU. With a ``network`` they have the device and precision of its parameters, and
    only this thread can hook it. PyTorch has one default precision for all threads: while a float64 network runs, other
    threads make float64 tensors, too.
    """
    global _calls
    torch: Any = sys.modules.get("torch")
    with ExitStack() as stack:
        with LOCK:
            _calls += 1
            stack.callback(_leave)
            if _calls == 1:
                _enter(torch)
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        if torch is not None:
            parameter = None if network is None else next(network.parameters(), None)
            like = torch.empty(0, device="cpu", dtype=torch.float32) if parameter is None else parameter
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(gradients))
            for device in ("cpu", "cuda", "mps"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            if torch.get_default_device() != like.device:
                stack.enter_context(like.device)
            if network is not None:
                stack.enter_context(LOCK)
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(torch.float64 if like.dtype == torch.float64 else torch.float32)
        yield


def _enter(torch: Any) -> None:
    at_end.callback(random.setstate, random.getstate())  # rich draws numbers
    if any(action == "error" for action, *_ in warnings.filters):  # a library's warning would raise
        at_end.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", module=r"(hydra|lightning|matplotlib|numpy|omegaconf|pandas|torch)\b")
    if torch is not None:
        at_end.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        for matmul in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
            at_end.callback(setattr, matmul, "fp32_precision", matmul.fp32_precision)
        with suppress(RuntimeError):  # torch cannot read a value set by the newer name above
            at_end.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")


def _leave() -> None:
    global _calls
    with LOCK:
        _calls -= 1
        if not _calls:
            at_end.close()


@contextmanager
def own_generator(seed: int) -> Iterator[None]:
    """Within the block torch's global CPU generator starts at a seed, for code that cannot take another generator."""
    import torch

    with LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would also seed GPUs
        yield


def drop_unusable_cache() -> None:
    """Until the call ends, compile in PyTorch's default folder if the chosen one would keep PyTorch from loading."""
    folder = os.environ.get(name := "TORCHINDUCTOR_CACHE_DIR", "/")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        print(f"{name}={folder}: not used ({error.strerror})", file=sys.stderr)
        at_end.callback(os.environ.__setitem__, name, os.environ.pop(name))
