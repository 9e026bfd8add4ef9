"""Weights & Biases: one W&B run per seed, grouped by the name of our run. Imported only when chosen."""

import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its telemetry would delay the exit if the server is silent
import wandb

from ..bundled import load_option
from ..errors import printable
from ..runs.directory import Row, Run
from ..runs.identity import NAMED_GROUPS, short_hash
from ..system.files import run_path
from . import Logger

OPTIONS = load_option("logger", "wandb")


@dataclass
class Wandb(Logger):
    """Logs every epoch of every seed to Weights & Biases.

    ``mode=offline`` needs neither account nor network; ``wandb sync`` uploads later. With ``mode=online``, if the
    server fails, logging continues offline, and we print the sync command. If W&B does not start at all, training
    continues without it. The run directory has all numbers in any case. A resumed run is logged again from the start.

    Args:
        project: W&B project.
        entity: W&B user or team; None for the account's default.
        mode: offline, online or disabled.
        timeout: seconds that a run may wait for W&B at its start, and again at its end.
        artifacts: whether to upload each seed's final weights and ``config.yaml`` as an artifact ``model``.
    """

    project: str = OPTIONS["project"]
    entity: str | None = OPTIONS["entity"]
    mode: Literal["offline", "online", "disabled"] = OPTIONS["mode"]
    timeout: float = OPTIONS["timeout"]
    artifacts: bool = OPTIONS["artifacts"]

    def __post_init__(self) -> None:
        self.runs: dict[int, Any] = {}
        self.suffix = ""  # suffix of W&B run ids: a failed online start may already have taken the plain id
        self.failed = False  # whether an error was printed
        self.printed_sync = False  # whether the command that uploads offline runs was printed

    def start(self, name: str, seeds: Sequence[int], config: dict[str, Any], folder: Path) -> None:
        with self._errors_suppressed("training continues without it"):
            for seed in seeds:
                self.runs[seed] = self._open(folder, name, seed, len(seeds), config={**config, "seed": seed})
                self.runs[seed].define_metric("*", step_metric="epoch", step_sync=False)  # rows have it

    def _open(self, folder: Path, name: str, seed: int, seeds: int, config: dict[str, Any] | None = None) -> Any:
        self.folder = folder
        if self.mode == "online" and not _has_api_key():
            self._go_offline("no API key (set WANDB_API_KEY, or `wandb login`)")
        try:
            return self._init(name, seed, seeds, config)
        except (wandb.Error, OSError) as error:
            if self.mode != "online":
                raise
            refused = str(error) in ("user is not logged in", "<no message>")  # the texts of a status 401
            self._go_offline("the server refused the API key" if refused else _reason(error))
            return self._init(name, seed, seeds, config)

    def _init(self, name: str, seed: int, seeds: int, config: dict[str, Any] | None) -> Any:
        group = shortened(name)
        return wandb.init(
            project=str(self.project),  # logger.project=3 is a number on the command line
            entity=None if self.entity is None else str(self.entity),
            group=group,
            name=shortened(f"{name}/seed={seed}"),
            # A fixed id, so that a resumed run replaces its earlier log, and a probe adds to it.
            id=shortened(re.sub(r"[^\w-]", "_", f"{name}-of-{seed}{self.suffix}")),
            resume="allow" if config is None else None,
            config=config if group == name else {**(config or {}), "run": name},
            tags=None if config is None else _tags(config),
            dir=str(run_path(self.folder / "wandb").parent),
            mode=self.mode,
            reinit="create_new",
            settings=wandb.Settings(
                init_timeout=self.timeout,
                finish_timeout=self.timeout / seeds,  # seconds for each; all together wait at most ``timeout``
                finish_timeout_raises=True,
                silent=True,
                console="off",
                symlink=False,  # a run directory holds no links
                x_sync_dir_suffix="" if config is None else "epochs",
                x_save_requirements=False,  # listing all packages takes 0.2 s of CPU time for each seed
            ),
        )

    def _go_offline(self, why: str) -> None:
        print(f"W&B: {why}; logging offline. To upload all runs later: {self._sync_command()}")
        self.mode, self.suffix, self.printed_sync = "offline", "-offline", True

    def _sync_command(self) -> str:
        return f"wandb sync {shlex.quote(str(self.folder.parent))}/*/wandb"

    def replay(self, rows: Sequence[Row]) -> None:
        self.log(rows)
        if self.failed or self.mode == "disabled":  # keep the earlier files, since no new ones replace them
            return
        files = {Path(run.sync_dir).name for run in self.runs.values()}
        for earlier in self.folder.resolve().glob("wandb/offline-run-*-epochs"):
            if earlier.name not in files and earlier == earlier.resolve():  # a later upload would replace ours
                shutil.rmtree(earlier, ignore_errors=True)

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if run := self.runs.get(row["seed"]):
                with self._errors_suppressed():
                    run.log({key: value for key, value in row.items() if key != "seed"}, row["epoch"], commit=True)

    def finish(self, summaries: Sequence[Row]) -> None:
        for summary in summaries:
            if run := self.runs.get(summary["seed"]):
                with self._errors_suppressed():
                    run.summary.update(summary)
                    self._log_files(run, summary["seed"])
        self._close(0 if summaries else 1)

    def _log_files(self, run: Any, seed: int) -> None:
        """Log the curves, and with ``artifacts`` the weights, which are not copied."""
        files = Run(self.folder)
        if files.curves_file.is_file():
            run.log({"curves": wandb.Image(str(files.curves_file))})
        if self.artifacts and files.weights_file(seed).is_file():
            artifact = wandb.Artifact(shortened(re.sub(r"[^\w.-]", "_", f"{files.name}-seed{seed}")), type="model")
            for path in (files.weights_file(seed), files.config_file):
                artifact.add_file(str(path.resolve()), policy="immutable", skip_cache=True)
            run.log_artifact(artifact)

    def probe(self, run: str, seed: int, name: str, rows: pd.DataFrame, figure: Path, folder: Path) -> None:
        with self._errors_suppressed("the files of the probe are complete without it"):
            self.runs[seed] = self._open(folder, run, seed, 1)
            logged = {f"{name}/rows": wandb.Table(dataframe=rows), f"{name}/figure": wandb.Image(str(figure))}
            self.runs[seed].log(logged)
        self._close(0)

    def _close(self, exit_code: int) -> None:
        for run in self.runs.values():
            with self._errors_suppressed():
                run.finish(exit_code=exit_code)
                Path(f"{run.settings.sync_file}.synced").unlink(missing_ok=True)  # uploaded early, so only in part
        if self.runs and self.mode == "offline" and not (self.failed or self.printed_sync):
            self.printed_sync = True
            print(f"W&B: logged offline. To upload all runs: {self._sync_command()}")
        self.runs = {}

    @contextmanager
    def _errors_suppressed(self, outcome: str = "") -> Iterator[None]:
        """Suppress errors of W&B and its service. The first one is printed, with the outcome."""
        try:
            yield
        except Exception as error:
            here = f"To upload what is there: wandb sync --include-online {shlex.quote(str(self.folder))}/wandb"
            outcome = outcome or f"logging may be incomplete. {here}"
            if not self.failed:
                print(f"W&B: {_reason(error)}; {outcome}")
            self.failed = True


def _tags(config: Mapping[str, Any]) -> list[str]:
    """Tags to filter by: ``["add", "random", "nanogpt", "7 bits"]``, and the ablation if there is one."""
    groups = (config.get(group, {}) for group in NAMED_GROUPS)
    names = [str(group["name"]) for group in groups if group.get("name", "none") != "none"]
    bits = config.get("task", {}).get("bits")
    return [shortened(tag, 64) for tag in (*dict.fromkeys(names), *([] if bits is None else [f"{bits} bits"]))]


def shortened(text: str, limit: int = 128) -> str:
    """A unique text that the server accepts: in long texts, a hash replaces the middle."""
    return text if len(text) <= limit else f"{text[: limit // 2]}-{short_hash(text)}-{text[-limit // 4 :]}"


def _reason(error: Exception) -> str:
    """An error as one line: ``ValidationError: 1 validation error for Settings mode Input should be ...``."""
    return printable(textwrap.shorten(f"{type(error).__name__}: {error}", 240, placeholder=" ..."))


def _has_api_key() -> bool:
    """Whether W&B would find a key without prompting for it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    return netrc.is_file() and "wandb" in netrc.read_text(errors="replace")
