"""A run directory as files. Its name is made in `config.names`.

================================  =====================================================================
``config.yaml``                   the resolved configuration
``metrics.csv``                   a row per epoch and seed (`epochs.METRICS`)
``tokens.csv``                    the accuracy of each answer token, a row per epoch, seed and split
``slices.csv``                    the accuracy of each kind of example, where examples are drawn from a larger table
``weights/seed=K.safetensors``    final weights of one replica, loadable into the plain network
``weights/epoch=E/``              the same after epoch E, where ``checkpoint.keep`` says so
``last.ckpt``                     for resuming only
``summary.json``                  written last, atomically; see `Run.finished`
``curves.png``                    sequence accuracy and loss over the epochs
``probes/<probe>/``               one folder per probe: ``rows.csv``, ``probe.json``, ``figure.png``; for ``mechanism``
                                  also ``card.json`` and ``notes.txt``
``error.txt``                     why the last attempt failed; gone when one succeeds
================================  =====================================================================
"""

import glob
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..system.files import locked, remove_partial_files, write_atomically
from ..system.machine import commit
from .epochs import MetricRow, kept_epochs, read_metrics

FINISHED = "finished"


class Run:
    """The files of one run. Nothing is written before `create`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self.config_file = self.path / "config.yaml"
        self.metrics_file = self.path / "metrics.csv"
        self.tokens_file = self.path / "tokens.csv"  # not in runs of older versions
        self.slices_file = self.path / "slices.csv"  # of runs on examples that are drawn
        self.summary_file = self.path / "summary.json"
        self.checkpoint = self.path / "last.ckpt"
        self.error = self.path / "error.txt"
        self.curves = self.path / "curves.png"

    def probe_folder(self, name: str) -> Path:
        return self.path / "probes" / name

    # Weights

    def weights(self, seed: int, epoch: int | None = None) -> Path:
        """The file of a replica's final weights, or of those after an epoch."""
        folder = self.path / "weights"
        return (folder if epoch is None else folder / f"epoch={epoch}") / f"seed={seed}.safetensors"

    def kept_epochs(self, seed: int) -> list[int]:
        """The epochs after which the weights of a replica were kept, ascending."""
        return sorted(epoch for epoch in self._epoch_folders() if self.weights(seed, epoch).is_file())

    def missing_epochs(self, keep: str, seeds: Sequence[int], last: int) -> list[int]:
        """The epochs up to ``last`` that ``keep`` asks for, and after which the weights of some seed were not kept."""
        there = set.intersection(*(set(self.kept_epochs(seed)) for seed in seeds))
        return [epoch for epoch in kept_epochs(keep, last) if epoch not in there]

    def drop_kept_after(self, epoch: int) -> None:
        """Remove weights that were kept after later epochs: the run resumes from an earlier one."""
        for later, folder in self._epoch_folders().items():
            if later > epoch:
                for file in folder.glob("seed=*.safetensors"):
                    file.unlink()
                with suppress(OSError):  # somebody's own files in it stay
                    folder.rmdir()

    def _epoch_folders(self) -> dict[int, Path]:
        folders = (self.path / "weights").glob("epoch=*")
        named = {folder: re.fullmatch(r"epoch=([1-9]\d{0,9})", folder.name, re.ASCII) for folder in folders}
        return {int(match[1]): folder for folder, match in named.items() if match}

    # State

    @property
    def finished(self) -> bool:
        """Whether the summary is valid, and the weights of all the seeds that it lists exist."""
        try:
            summary = self.summary()
            weights = [self.weights(int(entry["seed"])) for entry in summary["seeds"]]
            return bool(summary["status"] == FINISHED and weights and all(path.is_file() for path in weights))
        except (UserError, KeyError, TypeError, ValueError, OverflowError):
            return False

    def skip_message(self, keep: str = "none", sources: Mapping[str, str] | None = None) -> str:
        """The line for a finished run; also if other code trained it, or it lacks weights for ``keep``."""
        summary, line = self.summary(), f"{self.path}: finished already, skipped{self.code_changes(sources)}"
        seeds = [row["seed"] for row in summary["seeds"]]
        if keep != "none" and (missing := self.missing_epochs(keep, seeds, summary["epochs"])):
            line += f"; the weights of {len(missing)} epochs were not kept (overwrite=true trains again, keeping them)"
        return line

    def code_changes(self, sources: Mapping[str, str] | None = None) -> str:
        """How the code differs from that which finished the run, for the end of a line; empty if it does not.

        ``sources`` are the hashes of trusted packages today (`config.build.source_hashes`).
        """
        summary, now, changes = self.summary(), commit() or "", ""
        then, before = summary.get("versions", {}).get("commit"), summary.get("sources", {})
        if then and now and then != now:
            changes += f"; trained at commit {then}, the code is now at {now}".replace("-dirty", " with changes")
        elif then and now.endswith("-dirty"):
            changes += "; cannot tell whether the code changed: both had uncommitted changes"
        if other := [name for name, digest in (sources or {}).items() if before.get(name, digest) != digest]:
            changes += f"; the sources of {', '.join(other)} have changed since"
        return changes

    # Overwriting: the old run is renamed, and deleted when the new one has finished

    @property
    def backup(self) -> "Run":
        """The old run, while a new one is trained in its place."""
        return Run(self.path.with_name(f".{self.name}.old"))

    def set_aside(self) -> None:
        """Rename the run, unless a new one has its place already; refused if another process trains it."""
        if self.path.exists() and not self.backup.path.exists():
            with locked(self.path):
                self.path.rename(self.backup.path)

    def drop_backup(self) -> None:
        """Delete the old run, once the new one has finished."""
        old = self.backup.path
        if self.finished and old.is_symlink():
            old.unlink()
        elif self.finished:
            shutil.rmtree(old, ignore_errors=True)

    # Contents

    def create(self, resolved: dict[str, Any]) -> None:
        """Make the directory and write ``config.yaml``, the resolved configuration; only for who holds its lock."""
        (self.path / "weights").mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.path / "weights", *self._epoch_folders().values()):
            remove_partial_files(folder)
        write_atomically(self.config_file, yaml.safe_dump(resolved, sort_keys=False))

    def config(self) -> dict[str, Any]:
        """The resolved configuration, unchecked; a `UserError` if there is none."""
        try:
            config = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{self.path}: not a run directory (its config.yaml cannot be read)") from error
        if not isinstance(config, dict):
            raise UserError(f"{self.config_file}: expected a mapping of keys to values")
        return config

    def metrics(self) -> list[MetricRow]:
        """The rows of ``metrics.csv``, oldest first."""
        return read_metrics(self.metrics_file)

    def summary(self) -> dict[str, Any]:
        """The contents of ``summary.json``; a `UserError` if there is none, or it is not a JSON object.

        An `OSError` if it is there and cannot be read, since the run may be finished.
        """
        try:
            summary = json.loads(self.summary_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError) as error:
            raise UserError(f"{self.path}: not finished (its summary.json cannot be read)") from error
        if not isinstance(summary, dict):
            raise UserError(f"{self.path}: not finished (its summary.json is not an object)")
        return summary

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``, after the weights of all the seeds that it lists: the run is finished."""
        text = json.dumps({"status": FINISHED, **summary})
        finite = json.loads(text, parse_constant=lambda _: None)  # JSON has neither NaN nor infinity
        write_atomically(self.summary_file, f"{json.dumps(finite, indent=2)}\n")
        self.error.unlink(missing_ok=True)


def run_directories(pattern: str) -> list[Path]:
    """The run directories that a folder or a glob names, none if it names none."""
    paths = [pattern] if os.path.isdir(pattern) else glob.glob(pattern)
    return sorted(Path(path) for path in paths if path == pattern or os.path.isfile(os.path.join(path, "config.yaml")))
