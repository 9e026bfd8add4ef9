"""`UserError`, which is shown as one line without a traceback, and its wording."""

import errno
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable
from difflib import SequenceMatcher
from typing import TypeGuard

MAX_MESSAGE_LENGTH = 1000
EXCERPT_LENGTH = 200
ERRNOS_OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
MIN_SIMILARITY = 0.6  # least similarity of two names, measured by `difflib`
SYNONYMS = {  # our name -> words for it in other programs
    "num_layers": "depth blocks num_blocks n_blocks",
    "d_model": "width dim hidden hidden_size hidden_dim embed_dim n_embd channels",
    "lr": "learning_rate rate",
    "gradient_clip": "max_grad_norm",
    "max_epochs": "epoch epochs n_epochs num_epochs steps max_steps",
    "bits": "digits n_digits num_digits length",
    "accelerator": "device devices gpu cuda",
    "runs_dir": "output_dir save_dir folder",
    "out": "output_dir save_dir folder runs_dir",
    "seeds": "seed",
    "job_index": "item",  # from here on: our own words before 1.0
    "handcoded": "reference",
    "num_examples": "pairs sample draws",
    "num_pairs": "pairs",
    "num_controls": "controls random",
    "corruption": "source",
}


class UserError(Exception):
    """The user's input cannot be used.

    The message is one line: what was received, what is accepted, and which key or file to change.
    """

    def __init__(self, message: str) -> None:
        text = printable(" ".join(message.split()))
        half = MAX_MESSAGE_LENGTH // 2
        super().__init__(text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:half]} ... {text[-half:]}")


class ArgumentsError(UserError):
    """Wrong arguments of a public function or class; the message has its name, and no key of a configuration."""


def bad_value(key: str, value: object, accepted: str) -> UserError:
    """An error to raise, such as ``task.bits=1: expected an integer from 2 to 9``."""
    received = json.dumps(value) if value is None or isinstance(value, bool) else value  # null, true, false
    return UserError(f"{key}={received}: expected {accepted}")


def counted(number: int, noun: str) -> str:
    """A number of things as text: ``1 seed``, ``3 seeds``."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def nearest(name: str, known: Iterable[str], group: str = "") -> str:
    """The known name, dotted or not, that an unknown one most likely means, by its last part; "" if none is near.

    With a ``group``, such as ``data``, a name outside it counts only if its last part is the same word.

    >>> nearest("layers", ["task.bits", "model.net.num_layers"]), nearest("patch", ["dose", "patching"])
    ('model.net.num_layers', 'patching')
    """
    word = name.rpartition(".")[2].lower()
    meant = {word, *(ours for ours, words in SYNONYMS.items() if word in words.split())}

    def closeness(candidate: str) -> tuple[float, float]:
        last = candidate.rpartition(".")[2].lower()
        few, many = sorted((re.split("[_-]", word), re.split("[_-]", last)), key=len)
        is_part = all(any(min(len(x), len(y)) > 2 and x[: len(y)] == y[: len(x)] for y in many) for x in few)
        similarity = SequenceMatcher(None, word, last).ratio() * (not word.isdigit())
        whole = SequenceMatcher(None, name, candidate).ratio()
        inside = not group or candidate.rpartition(".")[0] == group
        return 2 if last in meant else inside * (similarity + is_part), whole

    best = max(known, key=closeness, default="")
    return best if best and closeness(best)[0] >= MIN_SIMILARITY else ""


def did_you_mean(name: object, known: Iterable[str], group: str = "") -> str:
    """The end of a message, ``; did you mean patching?``, if a known name is near."""
    near = nearest(str(name), known, group)
    return f"; did you mean {near}?" if near else ""


def unknown_name(key: str, value: object, known: Collection[str], accepted: str = "") -> UserError:
    """An error such as ``probe=patch: expected one of dose, patching; did you mean patching?``"""
    return bad_value(key, value, (accepted or f"one of {', '.join(known)}") + did_you_mean(value, known))


def no_such_key(key: str, known: Collection[str]) -> UserError:
    """An error such as ``trainer.max_epoch: no such key; did you mean trainer.max_epochs?``, from dotted keys."""
    groups = {".".join(k.split(".")[:n]) for k in known for n in range(1, k.count(".") + 1)}
    path = key.rpartition(".")[0]
    if hint := did_you_mean(key, sorted({*known, *groups}), path if path in groups else ""):
        return UserError(f"{key}: no such key{hint}")
    siblings = [k for k in {*known, *groups} if k.rpartition(".")[0] == path and "._" not in k] or groups
    accepted = f"expected one of {', '.join(sorted(siblings))}" if siblings else "none is accepted"
    return UserError(f"{key}: no such key; {accepted}")


def first_line(error: BaseException) -> str:
    """The first line of an error, as ``ValueError: its message``; for a `UserError` the message only.

    If it ends with a colon, the next line follows; if a compiler ran, its first line with an error. Without permission
    for a file: ``runs/a/config.yaml: Permission denied; this user may not read or write it``.
    """
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{excerpt(str(error.filename))}: {error.strerror}; this user may not read or write it"
    name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    first, *others = str(error).strip().splitlines() or [""]
    more = next((line.strip() for line in others if first.endswith(":") or "error: " in line), "")
    return f"{name}{first} {more}".strip().removesuffix(":")


def last_line(error: BaseException, is_own: Callable[[str], bool]) -> str:
    """The last line of the user's own files before an error, as ``loss.py, line 3``; empty if it reached none.

    ``is_own`` tells them by their paths.
    """
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((f"{os.path.basename(x.filename)}, line {x.lineno}" for x in frames if is_own(x.filename)), "")


def file_may_be_intact(error: BaseException) -> TypeGuard[OSError]:
    """Whether an unreadable file may be intact: no permission, too many open files, or a fault of the disk."""
    return isinstance(error, OSError) and error.errno in ERRNOS_OF_THE_SYSTEM


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this package, however deep we are in it. Python shows each line once."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in (__package__, "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def printable(text: str) -> str:
    """Escape control characters, which could rewrite the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def excerpt(text: str) -> str:
    """The first 200 characters of a text from a file, safe to print."""
    return printable(text if len(text) <= EXCERPT_LENGTH else f"{text[:EXCERPT_LENGTH]} ...")
