"""A run directory: its files, and the rows of its epochs.

================================  =====================================================================
``config.yaml``                   the resolved configuration
``metrics.csv``                   a row per epoch and seed (`METRIC_COLUMNS`)
``tokens.csv``                    the accuracy of each answer token, a row per epoch, seed and split
``slices.csv``                    the accuracy of each kind of example, where examples are drawn from a larger table
``weights/seed=K.safetensors``    final weights of one replica, loadable into the plain network
``weights/epoch=E/``              the same after epoch E, if ``checkpoint.keep`` includes E
``last.ckpt``                     for resuming only
``summary.json``                  written last, atomically; see `Run.finished`
``curves.png``                    sequence accuracy and loss over the epochs
``probes/<probe>/``               one folder per probe: ``rows.csv``, ``probe.json``, ``figure.png``; for ``mechanism``
                                  also ``profile.json`` and ``notes.txt``
``error.txt``                     why the last attempt failed; gone when one succeeds
================================  =====================================================================

Accuracies are fractions in [0, 1], measured after the epoch with dropout off. ``seconds`` is the duration of the epoch.
Epochs count from 1. ``tokens.csv`` has accuracies under teacher forcing, ``slices.csv`` accuracies of held-out examples
by length and by longest carry chain.
"""

import csv
import glob
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ..checks import user_path
from ..errors import UserError, counted, excerpt, file_may_be_intact, first_line
from ..seeds import parse_seeds
from ..system.files import (
    MAX_YAML_DEPTH,
    is_small_yaml,
    locked,
    oserrors_naming,
    remove_partial_files,
    run_path,
    write_atomically,
)
from ..system.machine import git_commit
from .identity import flatten, weights_config

MAX_CONFIG_SIZE, MAX_SUMMARY_SIZE = 2**18, 2**24  # bytes, for 4,096 seeds
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C ten times as fast: 100 runs take 1 s
INTEGER_COLUMNS = ("epoch", "seed")
SLICE_COLUMNS = ("slice", "value", "val_seq_acc")
VALUE_COLUMNS = ("train_loss", "train_token_acc", "train_seq_acc", "val_token_acc", "val_seq_acc", "seconds")
METRIC_COLUMNS: tuple[str, ...] = (*INTEGER_COLUMNS, *VALUE_COLUMNS)

Row = dict[str, Any]
"""A row of ``metrics.csv``, or the entry of a seed in ``summary.json``."""

FINISHED = "finished"
TEMPORARY_PREFIX = "arith_erd-fit-"  # prefix of the folder that `fit` without ``out`` deletes at its end


class Run:
    """The files of one run. Nothing is written before `create`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self.config_file = self.path / "config.yaml"
        self.metrics_file = self.path / "metrics.csv"
        self.tokens_file = self.path / "tokens.csv"  # not in runs of older versions
        self.slices_file = self.path / "slices.csv"  # only in runs on examples that are drawn
        self.summary_file = self.path / "summary.json"
        self.checkpoint_file = self.path / "last.ckpt"
        self.error_file = self.path / "error.txt"
        self.curves_file = self.path / "curves.png"

    # Weights

    def weights_file(self, seed: int, epoch: int | None = None) -> Path:
        """The file of a replica's final weights, or of its weights after an epoch."""
        folder = self.path / "weights"
        return (folder if epoch is None else folder / f"epoch={epoch}") / f"seed={seed}.safetensors"

    def saved_epochs(self, *seeds: int) -> list[int]:
        """The epochs whose weights of all these replicas were kept, ascending."""
        epochs = self._epoch_folders()
        return sorted(epoch for epoch in epochs if all(self.weights_file(seed, epoch).is_file() for seed in seeds))

    def missing_epochs(self, keep: str, seeds: Sequence[int], last: int) -> list[int]:
        """The epochs up to ``last`` that ``keep`` includes and for which some seed has no weights."""
        return sorted({*epochs_to_keep(keep, last)} - {*self.saved_epochs(*seeds)})

    def delete_weights_after(self, epoch: int) -> None:
        """Remove weights of later epochs, since the run resumes from ``epoch``."""
        for later, folder in self._epoch_folders().items():
            if later > epoch:
                for file in run_path(folder, self.path).glob("seed=*.safetensors"):
                    file.unlink()
                with suppress(OSError):  # the folder stays if it holds other files
                    folder.rmdir()

    def _epoch_folders(self) -> dict[int, Path]:
        folders = (self.path / "weights").glob("epoch=*")
        matches = ((folder, re.fullmatch(r"epoch=([1-9]\d{0,9})", folder.name, re.ASCII)) for folder in folders)
        return {int(match[1]): folder for folder, match in matches if match}

    # State

    @property
    def finished(self) -> bool:
        """Whether the summary is valid and the weights of all its seeds exist."""
        try:
            summary = self.summary()
            seeds = parse_seeds([entry["seed"] for entry in summary["seeds"]])
            return bool(summary["status"] == FINISHED and all(self.weights_file(seed).is_file() for seed in seeds))
        except (UserError, KeyError, TypeError):
            return False

    def skip_message(self, resolved: Mapping[str, Any], keep: str, sources: Mapping[str, str]) -> str:
        """The line that says that a finished run of a ``resolved`` configuration is skipped.

        It also says if the code has changed, if files are damaged, or if weights that ``keep`` includes are missing.
        """
        summary, line = self.summary(), f"{self.path}: finished already, skipped{self.describe_code_changes(sources)}"
        seeds = [row["seed"] for row in summary["seeds"]]
        try:
            rows = self.metrics()
            complete = {*seeds} <= {row["seed"] for row in rows if row["epoch"] == summary["epochs"] <= len(rows)}
            complete &= weights_config(self.config()) == weights_config(resolved)  # else its file was cut short
        except OSError as error:
            return f"{line}; {first_line(error)}, so tables omit it"
        except (KeyError, TypeError, UserError):
            complete = False
        if not complete:
            line += "; it lacks a valid config.yaml or metrics.csv, so tables omit it (overwrite=true trains again)"
        elif keep != "none" and (missing := self.missing_epochs(keep, seeds, summary["epochs"])):
            line += f"; epochs without kept weights: {len(missing)} (overwrite=true trains again, keeping them)"
        return line

    def describe_code_changes(self, sources: Mapping[str, str]) -> str:
        """How the code and ``sources`` (`source_hashes`) have changed since the run finished; empty if unchanged."""
        versions, now, changes = self.summary().get("versions"), git_commit() or "", ""
        then = excerpt(str(versions.get("commit") or "")) if isinstance(versions, dict) else ""
        if then and now and then != now:
            changes += f"; trained at commit {then}, the code is now at {now}".replace("-dirty", " with changes")
        elif then and now.endswith("-dirty"):
            changes += "; cannot tell whether the code changed: both had uncommitted changes"
        if changed := self.changed_sources(sources):
            changes += f"; the sources of {changed} have changed since"
        if unknown := ", ".join(name for name, digest in sources.items() if not digest):
            changes += f"; cannot tell whether the classes of {unknown} have changed: Python has no source of them"
        return changes

    def changed_sources(self, sources: Mapping[str, str]) -> str:
        """The packages whose ``sources`` (`source_hashes`) have changed since the run finished; empty if unfinished."""
        try:
            before = self.summary().get("sources")
        except (OSError, UserError):
            before = None
        known = before if isinstance(before, Mapping) else {}
        return ", ".join(name for name, digest in sources.items() if digest and known.get(name, digest) != digest)

    # Overwriting: the old run is renamed, and deleted when the new one has finished

    @property
    def backup(self) -> "Run":
        """The old run while a new one replaces it."""
        return Run(self.path.with_name(f".{self.name}.old"))

    def move_to_backup(self) -> None:
        """Rename the run, unless a new one has replaced it already; an error if another process trains it.

        Without an old run we make an empty folder instead, which says that the next run is new.
        """
        if self.path.exists() and not self.backup.path.exists():
            with locked(self.path):
                self.path.rename(self.backup.path)
        self.backup.path.mkdir(parents=True, exist_ok=True)

    def restore_backup(self) -> None:
        """Undo `move_to_backup`, before a new run has begun."""
        with suppress(OSError):  # it is not empty
            self.backup.path.rmdir()
        if self.backup.path.exists() and not self.path.exists():
            self.backup.path.rename(self.path)

    def delete_backup(self) -> None:
        """Delete the old run, once the new one has finished."""
        backup = self.backup.path
        if self.finished and backup.is_symlink():
            backup.unlink()
        elif self.finished:
            shutil.rmtree(backup, ignore_errors=True)

    # Contents

    def create(self, resolved: dict[str, Any]) -> None:
        """Make the directory and write ``config.yaml``, the resolved configuration. The caller must hold its lock."""
        run_path(self.path / "weights").mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.path / "weights", *self._epoch_folders().values()):
            remove_partial_files(run_path(folder, self.path))
        write_atomically(self.config_file, yaml.safe_dump(resolved, sort_keys=False))

    def config(self) -> dict[str, Any]:
        """The resolved configuration: plain values, otherwise unchecked; a `UserError` if there is none."""
        try:
            text = run_path(self.config_file, limit=MAX_CONFIG_SIZE).read_text(encoding="utf-8")
            if not is_small_yaml(text, YAML_LOADER, aliases=False):
                raise ValueError(f"an alias, a tag, or more than {MAX_YAML_DEPTH} levels")
            config = yaml.load(text, YAML_LOADER)
        except (OSError, ValueError, yaml.YAMLError) as error:
            if file_may_be_intact(error):
                raise
            reason = getattr(error, "strerror", "") or first_line(error)
            raise UserError(f"{self.path}: not a run directory (its config.yaml cannot be read: {reason})") from error
        if not isinstance(config, dict) or any(isinstance(x, int) and abs(x) >= 2**63 for _, x in flatten(config)):
            raise UserError(f"{self.config_file}: expected a mapping of keys to values, and integers of 64 bits")
        return config

    def metrics(self) -> list[Row]:
        """The rows of ``metrics.csv``, oldest first; none without the file. A line that a kill cut off is dropped."""
        kinds = {name: int if name in INTEGER_COLUMNS else float for name in METRIC_COLUMNS}
        try:
            rows = csv.DictReader(_whole_lines(self.metrics_file))
            return [{name: kind(row[name]) for name, kind in kinds.items()} for row in rows]
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise UserError(f"{self.metrics_file}: expected the columns {', '.join(METRIC_COLUMNS)}") from error

    def summary(self) -> dict[str, Any]:
        """The contents of ``summary.json``; a `UserError` if it is missing or not a JSON object."""
        try:
            summary = json.loads(run_path(self.summary_file, limit=MAX_SUMMARY_SIZE).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError) as error:
            raise UserError(f"{self.path}: not finished (its summary.json cannot be read)") from error
        if not isinstance(summary, dict):
            raise UserError(f"{self.path}: not finished (its summary.json is not an object)")
        return summary

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``, which marks the run as finished. Write the weights of all its seeds before."""
        text = json.dumps({"status": FINISHED, **summary})
        finite = json.loads(text, parse_constant=lambda _: None)  # JSON has neither NaN nor infinity
        write_atomically(self.summary_file, f"{json.dumps(finite, indent=2)}\n")
        self.error_file.unlink(missing_ok=True)


def is_run(path: Path | str) -> bool:
    """Whether a folder is a run directory, or may be one but is not readable."""
    return os.path.lexists(f"{path}/config.yaml") or (os.path.isdir(path) and not os.access(path, os.X_OK))


def matching_runs(pattern: str) -> list[Path]:
    """The run directories that match a folder or a glob."""
    paths = [pattern] if os.path.isdir(pattern := str(user_path(pattern, "run"))) else glob.glob(pattern)
    return sorted(Path(path) for path in paths if path == pattern or is_run(path))


def require_runs(pattern: str, key: str = "run") -> list[Path]:
    """The run directories that match a folder or a glob; a `UserError` if there are none."""
    if not (paths := matching_runs(pattern)):
        raise UserError(f"{key}={pattern}: no such folder; expected a run directory, or a glob of them in quotes")
    if not is_run(paths[0]) and (runs := matching_runs(f"{glob.escape(pattern)}/*")):
        inside, quoted = f"a folder with {counted(len(runs), 'run')}", glob.escape(pattern)
        raise UserError(f"{key}={pattern}: {inside}; expected {key}={pattern}/NAME, or {key}='{quoted}/*' for all")
    return paths


def truncate_rows(path: Path, names: Sequence[str], last: int) -> None:
    """Rewrite a file with only the rows up to epoch ``last``; ``names`` are its columns after epoch and seed."""
    damage = "missing" if last and not os.path.lexists(path) else ""
    try:
        lines = [line for line in _whole_lines(path)[1:] if 1 <= int(line.partition(",")[0]) <= last]
    except ValueError:
        damage, lines = "damaged", []
    if damage:
        print(f"{path}: {damage}; started again at epoch {last + 1}")
    write_atomically(path, _lines([(*INTEGER_COLUMNS, *names)]) + "".join(f"{line}\n" for line in lines))


def append_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Append the rows of one epoch and flush them to the disk, since the next checkpoint relies on them."""
    with oserrors_naming(path), run_path(path, limit=math.inf).open("a", encoding="utf-8") as file:
        file.write(_lines(rows))
        file.flush()
        os.fsync(file.fileno())


def as_written(number: float) -> float:
    """A number as CSV files of a run have it, in nine digits."""
    return float(f"{number:.9g}")


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, with nine digits of real numbers."""
    texts = ([f"{value:.9g}" if isinstance(value, float) else str(value) for value in row] for row in rows)
    return "".join(f"{','.join(row)}\n" for row in texts)


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file, without a last line that a kill truncated; none without the file."""
    text = run_path(path).read_text(encoding="utf-8") if os.path.lexists(path) else ""
    return text[: text.rfind("\n") + 1].splitlines()


def first_epoch_reaching(rows: Iterable[Row], seed: int, accuracy: float) -> int | None:
    """The first epoch at which a seed's validation sequence accuracy reaches ``accuracy``; None if it never does."""
    return min((r["epoch"] for r in rows if r["seed"] == seed and r["val_seq_acc"] >= accuracy), default=None)


def epochs_to_keep(keep: str, last: int) -> Sequence[int]:
    """The epochs whose weights a run of ``last`` epochs keeps, ascending; ``log`` keeps eight of each decade.

    >>> [list(epochs_to_keep(keep, 10)) for keep in ("none", "every:4", "log")]
    [[], [4, 8], [1, 2, 3, 4, 6, 7, 10]]
    """
    if keep == "log":
        steps = range(round(8 * math.log10(max(last, 1))) + 1)
        return sorted({epoch for step in steps if (epoch := round(10 ** (step / 8))) <= last})
    step = {"none": last + 1, "all": 1}.get(keep) or int(keep.removeprefix("every:"))
    return range(step, last + 1, step)
