"""Weights & Biases: one W&B run per seed, grouped by the name of our run. Imported only when chosen."""

import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its telemetry would delay the exit if the server is silent
import wandb

from ..config.rules import MODES, Mode
from ..errors import UserError, bad_value, first_line
from ..runs import Row
from .logger import Logger


class Wandb(Logger):
    """Logs every epoch of every seed.

    ``mode=offline`` needs neither account nor network; ``wandb sync`` uploads later. With ``mode=online``, if W&B fails
    (a missing or wrong key, a silent server), training continues offline, waits at most ``timeout`` in total, and
    prints the sync command. The run directory has all numbers in any case.

    Args:
        project: of W&B.
        entity: W&B user or team; None for the account's default.
        mode: offline, online or disabled.
        timeout: seconds that a run may wait for W&B in total, from its start to its end.
    """

    def __init__(
        self, project: str = "arith_erd", entity: str | None = None, mode: Mode = "offline", timeout: float = 10.0
    ) -> None:
        if mode not in MODES:
            raise bad_value("logger.mode", mode, " or ".join(MODES))
        self.project = project
        self.entity = entity
        self.mode: Mode = mode
        self.asked = mode
        self.timeout = timeout
        self.runs: dict[int, Any] = {}
        self.failed = False

    def start(self, name: str, seeds: Sequence[int], config: dict[str, Any], folder: Path) -> None:
        self._go_online(folder)
        for place, seed in enumerate(seeds):
            run = self._open(name, seed, folder, len(seeds) - place, config={**config, "seed": seed})
            self.runs[seed] = run
            with self._never_in_the_way():
                run.define_metric("*", step_metric="epoch")

    def _go_online(self, folder: Path) -> None:
        """Start the clock for ``timeout``, and stay offline without a key or an answer."""
        self.folder = folder
        self.until = time.monotonic() + self.timeout
        if self.mode == "online" and not _has_key():
            self._stay_offline("no API key (set WANDB_API_KEY, or `wandb login`)")
        if self.mode == "online" and not _answers(wandb.setup().settings.base_url, self.timeout):
            self._stay_offline(f"no answer within {self.timeout:g} s")

    def _open(self, name: str, seed: int, folder: Path, sharing: int, config: dict[str, Any] | None = None) -> Any:
        """The W&B run of one seed. Its id is fixed, so that a resumed run or a probe continues it."""
        try:
            return self._init(name, seed, folder, sharing, config)
        except (wandb.Error, OSError) as error:
            if self.mode != "online":
                raise UserError(f"logger.mode={self.mode}: W&B did not start ({error})") from error
            self._stay_offline("the server refused the API key" if "401" in str(error) else first_line(error))
            return self._init(name, seed, folder, sharing, config)

    def _init(self, name: str, seed: int, folder: Path, sharing: int, config: dict[str, Any] | None) -> Any:
        online = self.mode == "online"
        run_id = re.sub(r"[^\w-]", "_", f"{name}-of-{seed}")
        left = max(self.until - time.monotonic(), 0.1)
        return wandb.init(
            project=self.project,
            entity=self.entity,
            group=name,
            name=f"{name}/seed={seed}",
            id=run_id if self.asked == self.mode else f"{run_id}-offline",  # the failed online start has taken the id
            resume="allow" if online else None,
            config=config,
            dir=str(folder),
            mode=self.mode,
            reinit="create_new",
            settings=wandb.Settings(
                init_timeout=left if online else self.timeout,
                finish_timeout=left / sharing,
                finish_timeout_raises=True,
                silent=True,
                console="off",
                symlink=False,  # a run directory holds no links
            ),
        )

    def _stay_offline(self, why: str) -> None:
        print(f"W&B: {why}; logging offline. To upload later: {self._sync('offline-run')}")
        self.mode = "offline"

    def _sync(self, prefix: str) -> str:
        return f"wandb sync {self.folder}/wandb/{prefix}-*"

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            with self._never_in_the_way():
                self.runs[row["seed"]].log({key: value for key, value in row.items() if key != "seed"})

    def finish(self, summaries: Sequence[Row]) -> None:
        for summary in summaries:
            with self._never_in_the_way():
                self.runs[summary["seed"]].summary.update(summary)
        for run in self.runs.values():
            with self._never_in_the_way():
                run.finish(exit_code=0 if summaries else 1)
        self.runs = {}

    @contextmanager
    def _never_in_the_way(self) -> Iterator[None]:
        """Suppress errors of W&B, and of its service, which may die. The first one is printed."""
        try:
            yield
        except Exception as error:
            if not self.failed:
                print(f"W&B: {first_line(error)}; going on without. To upload what it has: {self._sync('*run')}")
            self.failed = True

    def probe(self, run: str, seed: int, name: str, rows: pd.DataFrame, figure: Path) -> None:
        self._go_online(figure.parent)
        self.runs[seed] = self._open(run, seed, figure.parent, 1)
        with self._never_in_the_way():
            self.runs[seed].log(
                {f"{name}/rows": wandb.Table(dataframe=rows), f"{name}/figure": wandb.Image(str(figure))}
            )
        self.finish([{"seed": seed}])


def _answers(url: str, timeout: float) -> bool:
    """Whether a server answers at all; wandb itself would keep trying for minutes."""
    answered = []

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=timeout).close()
        except urllib.error.HTTPError:
            pass
        except (OSError, ValueError):
            return
        answered.append(True)

    asking = threading.Thread(target=ask, daemon=True)  # a silent name server ignores the timeout
    asking.start()
    asking.join(timeout)
    return bool(answered)


def _has_key() -> bool:
    """Whether W&B would find a key without prompting for it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    return netrc.is_file() and "wandb" in netrc.read_text(errors="replace")
