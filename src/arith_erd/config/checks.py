"""What a configuration may say, key by key."""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args


def is_number(value: object, low: float, high: float = math.inf) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and low <= value <= high


def _positive_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _positive(value: object) -> bool:
    return is_number(value, 0) and value != 0


def _folder(value: object) -> bool:
    return isinstance(value, str) and value != ""


Rule = tuple[str, Callable[[Any], bool], str]
SWITCHES = ("encoder", "attention", "feed_forward", "positional_encoding")
PRECISIONS = ("32-true", "64-true", "bf16-mixed")
Mode = Literal["offline", "online", "disabled"]  # of W&B
MODES: tuple[Mode, ...] = get_args(Mode)
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")

NAMED = ("task", "split", "model", "logger", "probe", "ablation")  # groups whose names become part of a path
NEEDS = ["task", "split", "subjects"]
HIGHEST = {  # beyond what any machine has, and within what torch can count to
    **dict.fromkeys(("data.batch_size", "trainer.max_epochs", "checkpoint.every_n_epochs"), 2**31 - 1),
    **dict.fromkeys(("model.net.d_model", "model.net.num_heads", "model.net.num_layers"), 4096),
}

RULES: tuple[Rule, ...] = (
    ("data.batch_size", _positive_integer, "an integer of at least 1"),
    ("trainer.max_epochs", _positive_integer, "an integer of at least 1"),
    ("trainer.stop_at", lambda x: x is None or is_number(x, 0, 1), "an accuracy from 0 to 1, or null"),
    ("trainer.compile", lambda x: x == "auto" or isinstance(x, bool), "auto, true or false"),
    ("trainer.cuda_graphs", lambda x: isinstance(x, bool), "true or false"),
    ("pack.max_replicas", lambda x: x == "auto" or _positive_integer(x), "auto, or an integer of at least 1"),
    ("trainer.precision", lambda x: x in PRECISIONS, " or ".join(PRECISIONS)),
    ("trainer.accelerator", lambda x: x in ACCELERATORS, " or ".join(ACCELERATORS)),
    ("checkpoint.every_n_epochs", _positive_integer, "an integer of at least 1"),
    ("fail_fast", lambda x: isinstance(x, bool), "true or false"),
    ("model.net.d_model", _positive_integer, "an integer of at least 1"),
    ("model.net.num_heads", _positive_integer, "an integer of at least 1"),
    ("model.net.num_layers", _positive_integer, "an integer of at least 1"),
    ("model.net.dropout", lambda x: is_number(x, 0, 1) and x < 1, "a probability from 0 to below 1"),
    *((f"model.net.{key}", lambda x: isinstance(x, bool), "true or false") for key in SWITCHES),
    ("model.optimizer.lr", _positive, "a number above 0"),
    (
        "model.optimizer.betas",
        lambda x: isinstance(x, list) and len(x) == 2 and all(is_number(b, 0, 1) and b < 1 for b in x),
        "two numbers from 0 to below 1, as [0.9,0.98]",
    ),
    ("model.optimizer.eps", _positive, "a number above 0"),
    ("model.optimizer.weight_decay", lambda x: is_number(x, 0), "a number of at least 0"),
    ("model.gradient_clip", lambda x: x is None or _positive(x), "a number above 0, or null"),
    ("logger.mode", lambda x: x in MODES, " or ".join(MODES)),
    ("logger.timeout", _positive, "seconds above 0"),
    ("runs_dir", _folder, "a folder"),
    ("out", lambda x: x is None or _folder(x), "a folder, or null"),
)
