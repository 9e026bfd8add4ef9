"""Weights & Biases: one W&B run per seed, grouped by the name of our run. Imported only when chosen."""

import os
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import wandb

from ..errors import UserError, bad_value
from ..rules import MODES, Mode
from ..runs import Config, Row
from .logger import Logger


class Wandb(Logger):
    """Logs every epoch of every seed.

    ``mode=offline`` needs neither account nor network; ``wandb sync`` uploads later. With ``mode=online`` a missing
    key or a silent server never stops a run: it goes on offline, and one line says so.

    Args:
        project: of W&B.
        entity: W&B user or team; None for the account's default.
        mode: offline, online or disabled.
        timeout: seconds that going online may take.
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

    def start(self, name: str, seeds: Sequence[int], config: Config, folder: Path) -> None:
        for seed in seeds:
            run = self._open(name, seed, folder, config={**config, "seed": seed})
            run.define_metric("*", step_metric="epoch")
            self.runs[seed] = run

    def _open(self, name: str, seed: int, folder: Path, config: Config | None = None) -> Any:
        """The W&B run of one seed; it has the same id each time, so that a resumed run or a probe goes on with it."""
        if self.mode == "online" and not _has_key():
            self._go_offline("no API key (set WANDB_API_KEY, or `wandb login`)")
        if self.mode == "online" and not _answers(wandb.Settings().base_url, self.timeout):
            self._go_offline(f"no answer within {self.timeout:g} s")
        try:
            return self._init(name, seed, folder, config)
        except (wandb.Error, OSError) as error:
            if self.mode != "online":
                raise UserError(f"logger.mode={self.mode}: W&B did not start ({error})") from error
            self._go_offline(f"not logged in within {self.timeout:g} s")
            return self._init(name, seed, folder, config)

    def _init(self, name: str, seed: int, folder: Path, config: Config | None) -> Any:
        online = self.mode == "online"
        run_id = re.sub(r"[^\w-]", "_", f"{name}-of-{seed}")
        return wandb.init(
            project=self.project,
            entity=self.entity,
            group=name,
            name=f"{name}/seed={seed}",
            id=run_id if self.asked == self.mode else f"{run_id}-offline",  # W&B keeps the id of a failed start
            resume="allow" if online else None,
            config=config,
            dir=str(folder),
            mode=self.mode,
            reinit="create_new",
            settings=wandb.Settings(init_timeout=self.timeout, silent=True, console="off"),
        )

    def _go_offline(self, why: str) -> None:
        print(f"W&B: {why}; logging offline instead, `wandb sync` uploads later")
        self.mode = "offline"

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.runs[row["seed"]].log({key: value for key, value in row.items() if key != "seed"})

    def finish(self, summaries: Sequence[Row]) -> None:
        for summary in summaries:
            self.runs[summary["seed"]].summary.update(summary)
        for run in self.runs.values():
            run.finish(exit_code=0 if summaries else 1)
        self.runs = {}

    def probe(self, run: str, seed: int, name: str, rows: pd.DataFrame, figure: Path) -> None:
        opened = self._open(run, seed, figure.parent)
        opened.log({f"{name}/rows": wandb.Table(dataframe=rows), f"{name}/figure": wandb.Image(str(figure))})
        opened.finish()


def _answers(url: str, timeout: float) -> bool:
    """Whether a server says anything at all; wandb itself would go on asking for minutes."""
    try:
        urllib.request.urlopen(url, timeout=timeout).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _has_key() -> bool:
    """Whether W&B would find a key without asking for one on the terminal."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    return netrc.is_file() and "wandb" in netrc.read_text(errors="replace")
