"""A run directory as files: its name, its metrics, its summary. Imports no torch.

================================  =====================================================================
``config.yaml``                   the resolved configuration
``metrics.csv``                   a row per epoch and seed (`METRICS`)
``weights/seed=K.safetensors``    final weights of one replica, loadable into the plain network
``last.ckpt``, ``previous.ckpt``  for resuming only; the second until the run has finished
``summary.json``                  written last, atomically: its presence is what "finished" means
``curves.png``                    sequence accuracy and loss over the epochs
``probes/<probe>/``               one folder per probe: ``rows.csv`` and ``figure.png``
``error.txt``                     why the last attempt failed; gone when one succeeds
================================  =====================================================================

Accuracies are fractions in [0, 1], times are in seconds, epochs count from 1.
"""

import csv
import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError, bad_value
from ..seeds import format_seeds, parse_seeds
from ..system.files import read_text, write_atomically

METRICS = (
    "epoch",
    "seed",
    "train_loss",
    "train_token_acc",
    "train_seq_acc",
    "val_token_acc",
    "val_seq_acc",
    "seconds",
)
INTEGERS = ("epoch", "seed")

Config = dict[str, Any]
Row = dict[str, Any]


def identity(config: Config) -> Config:
    """The part of a resolved configuration that can change the weights, with the seeds in canonical form.

    Paths, the logger, the launcher, checkpointing, the device and compilation are left out.
    """
    trainer = config["trainer"]
    return {
        **{key: config[key] for key in ("task", "split", "model", "ablation", "data")},
        "trainer": {key: trainer[key] for key in ("max_epochs", "stop_at", "precision")},
        "seed": format_seeds(parse_seeds(config["seed"])),
    }


def require_name(key: str, value: object) -> str:
    """Refuse what cannot stand in the name of a file, in a page and in the title of a plot.

    Raises:
        UserError: naming the key.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w+.-]{0,63}", value, re.ASCII):
        raise bad_value(key, value, "a name of at most 64 letters, digits and _ + . -, the first a letter or a digit")
    return value


def run_name(config: Config) -> str:
    """``add-random-transformer-none-seed0-4-1f0c2d3e``: readable parts and a hash of `identity`."""
    who = identity(config)
    digest = hashlib.sha256(json.dumps(who, sort_keys=True).encode()).hexdigest()[:8]
    parts = [require_name(f"{group}.name", who[group]["name"]) for group in ("task", "split", "model", "ablation")]
    seeds = who["seed"].replace(",", "+")
    if len(seeds) > 40:
        seeds = f"{seeds[:30]}+more"
    return "-".join([*parts, f"seed{seeds}", digest])


class PlainLoader(yaml.SafeLoader):
    """YAML without aliases, of which a screenful can stand for billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


class PlainDumper(yaml.SafeDumper):
    """The same for writing."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class Run:
    """The files of one run.

    Nothing is written before `create`, so a refused configuration leaves nothing behind.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def of(cls, config: Config) -> "Run":
        """The directory of a resolved configuration: ``runs_dir`` / `run_name`."""
        return cls(Path(config["runs_dir"]) / run_name(config))

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        return self.path / "last.ckpt"

    @property
    def previous_checkpoint(self) -> Path:
        """The one before `checkpoint`, in case that one cannot be read."""
        return self.path / "previous.ckpt"

    @property
    def error(self) -> Path:
        return self.path / "error.txt"

    @property
    def curves(self) -> Path:
        return self.path / "curves.png"

    def weights(self, seed: int) -> Path:
        return self.path / "weights" / f"seed={seed}.safetensors"

    def probe(self, name: str) -> Path:
        return self.path / "probes" / name

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def create(self, config: Config) -> None:
        """Make the directory and write ``config.yaml``."""
        (self.path / "weights").mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.yaml", yaml.dump(config, Dumper=PlainDumper, sort_keys=False))

    def require_plain(self) -> None:
        """Refuse a run directory with links or pipes in it; to be asked before anything is written there.

        Writing would change a file elsewhere, or wait for ever. The run directory itself may be a link, and so may
        what W&B keeps in ``wandb/``.

        Raises:
            UserError: naming the file.
        """
        for folder, inside, files in os.walk(self.path):
            for name in (*inside, *files):
                try:
                    mode = os.lstat(os.path.join(folder, name)).st_mode
                except FileNotFoundError:  # renamed by whoever trains this run
                    continue
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise UserError(f"{folder}/{name}: a link or a pipe; expected files and folders only: remove it")
            if folder == str(self.path) and "wandb" in inside:
                inside.remove("wandb")

    def config(self) -> Config:
        """The resolved configuration of the run.

        Raises:
            UserError: if there is none, or it is no YAML mapping.
        """
        path = self.path / "config.yaml"
        try:
            config = yaml.load(read_text(path, 2**18), PlainLoader)
        except Exception as error:  # PyYAML's constructors raise anything: !!int "" an IndexError, !!bool x a KeyError
            raise UserError(f"{self.path}: no run directory (its config.yaml cannot be read)") from error
        if not isinstance(config, dict):
            raise UserError(f"{path}: expected a mapping of keys to values")
        return config

    def metrics(self) -> list[Row]:
        """The rows of ``metrics.csv``, oldest first; none before the first epoch has ended.

        A last line without its end was cut off by a kill, and does not count.
        """
        try:
            text = read_text(self.path / "metrics.csv")
            rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
            return [{key: (int if key in INTEGERS else float)(row[key]) for key in METRICS} for row in rows]
        except FileNotFoundError:
            return []
        except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
            raise UserError(f"{self.path / 'metrics.csv'}: not the columns {', '.join(METRICS)}") from error

    def write_metrics(self, rows: Iterable[Row]) -> None:
        """Replace ``metrics.csv``."""
        lines = [",".join(METRICS), *(_line(row) for row in rows)]
        write_atomically(self.path / "metrics.csv", "\n".join(lines) + "\n")

    def append_metrics(self, rows: Iterable[Row]) -> None:
        """Add the rows of one epoch to ``metrics.csv``, on the disk before any checkpoint that counts on them."""
        with (self.path / "metrics.csv").open("a") as file:
            file.write("".join(_line(row) + "\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())

    def summary(self) -> Config:
        """The contents of ``summary.json``; the run must be finished."""
        try:
            summary: Config = json.loads(read_text(self.path / "summary.json"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{self.path}: not finished (its summary.json cannot be read)") from error
        return summary

    def finish(self, summary: Config) -> None:
        """Write ``summary.json``: the run is finished."""
        write_atomically(self.path / "summary.json", json.dumps(_finite(summary), indent=2) + "\n")
        for path in (self.previous_checkpoint, self.error):
            path.unlink(missing_ok=True)


def epochs_to(rows: Iterable[Row], seed: int, accuracy: float) -> int | None:
    """The first epoch at which a seed's validation sequence accuracy reached ``accuracy``; None if it never did."""
    return min((r["epoch"] for r in rows if r["seed"] == seed and r["val_seq_acc"] >= accuracy), default=None)


def _line(row: Row) -> str:
    return ",".join(str(row[key]) if key in INTEGERS else f"{row[key]:.9g}" for key in METRICS)


def _finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinity: null instead."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
