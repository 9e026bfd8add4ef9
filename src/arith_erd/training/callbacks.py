"""Callbacks that write rows and weights after an epoch, show progress, and end a run early."""

import sys
import time
from statistics import mean
from typing import Any

import lightning as L
import pandas as pd
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..loggers import Logger
from ..runs.directory import (
    METRIC_COLUMNS,
    SLICE_COLUMNS,
    VALUE_COLUMNS,
    Row,
    Run,
    append_rows,
    as_written,
    epochs_to_keep,
    truncate_rows,
)
from ..system.cli_errors import naming_user_code
from .checkpoint import progress_text, save_weights


class MetricsWriter(L.Callback):
    """Writes rows and weights after every epoch. On resuming it deletes rows and weights after the checkpoint."""

    def __init__(self, run: Run, logger: Logger, keep: str) -> None:
        self.run, self.logger, self.keep = run, logger, keep
        self.started = 0.0  # `time.perf_counter` at the beginning of the epoch
        self.seconds_before_resume = 0.0  # seconds spent on this epoch before an interruption
        self.rates: dict[int, float] = {}  # in each epoch's last step; afterwards the optimizer has the next rate

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": time.perf_counter() - self.started, "rates": self.rates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds_before_resume = float(state_dict["seconds"])
        self.rates = dict(state_dict.get("rates", {}))  # older checkpoints have none

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.started = time.perf_counter() - self.seconds_before_resume
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        run, epochs = self.run, trainer.current_epoch
        if trainer.global_step > 0:
            print(f"{run.path}: resuming from {progress_text(trainer)}")
        truncate_rows(run.metrics_file, VALUE_COLUMNS, epochs)
        truncate_rows(run.tokens_file, ("split", *data.task.answer_names), epochs)
        if data.slices:
            truncate_rows(run.slices_file, SLICE_COLUMNS, epochs)
        slices = pd.read_csv(run.slices_file).itertuples(index=False, name=None) if data.slices else []
        with naming_user_code("replay", self.logger):
            self.logger.replay(self._logged_rows(run.metrics(), slices))
        run.delete_weights_after(epochs)
        # Weights are missing if the run began with another ``checkpoint.keep``, or if they were deleted.
        if missing := run.missing_epochs(self.keep, pl_module.pack.seeds, epochs):
            print(f"{run.path}: earlier epochs without kept weights: {len(missing)}; resuming cannot add them")

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        rates = [group["lr"] for group in trainer.optimizers[0].param_groups if "lr" in group]
        self.rates[trainer.current_epoch + 1] = float(max(rates, default=0.0))

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        seconds, epoch = time.perf_counter() - self.started, trainer.current_epoch + 1
        rows: list[Row] = [{**row, "seconds": seconds} for row in pl_module.rows]
        append_rows(self.run.tokens_file, ((*key, *accuracies) for *key, accuracies in pl_module.token_rows))
        if pl_module.slice_rows:
            append_rows(self.run.slices_file, pl_module.slice_rows)
        append_rows(self.run.metrics_file, ([row[name] for name in METRIC_COLUMNS] for row in rows))
        with naming_user_code(f"log of epoch {epoch}", self.logger):
            self.logger.log(self._logged_rows(rows, pl_module.slice_rows))
        if epoch in epochs_to_keep(self.keep, epoch):
            save_weights(self.run, pl_module.pack, epoch)

    def _logged_rows(self, rows: list[Row], slice_rows: Any) -> list[Row]:
        """Rows of ``metrics.csv`` with the learning rate, and the accuracies of ``slices.csv``."""
        complete = ({**row, "learning_rate": self.rates.get(row["epoch"], float("nan"))} for row in rows)
        logged = {(row["epoch"], row["seed"]): row for row in complete}
        for epoch, seed, name, value, accuracy in slice_rows:
            logged[epoch, seed][f"val_seq_acc/{name}={value}"] = accuracy
        return [*logged.values()]


class StopAtAccuracy(L.Callback):
    """Ends each replica after the first epoch in which its validation sequence accuracy reaches ``accuracy``.

    A replica that has ended waits for the others of its pack: we restore its weights after every step, and repeat its
    row of results. The checkpoint does not store this: the rows of the last epoch show which replicas have ended.
    """

    def __init__(self, run: Run, accuracy: float) -> None:
        self.run, self.accuracy = run, as_written(accuracy)  # rows of an earlier process have nine digits
        self.stopped: dict[int, tuple[Row, list[torch.Tensor]]] = {}  # last row and final weights by replica

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        # At epoch 0 the old rows, perhaps damaged, are about to be overwritten, so they are not read.
        if epoch := trainer.current_epoch:
            self._stop(trainer, pl_module, [row for row in self.run.metrics() if row["epoch"] == epoch])

    @torch.no_grad()
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        for index, (_row, weights) in self.stopped.items():
            for parameter, weight in zip(pl_module.pack.parameters(), weights, strict=True):
                parameter[index] = weight

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        for index, (row, _weights) in self.stopped.items():
            pl_module.rows[index] = {**row, "epoch": trainer.current_epoch + 1}
        self._stop(trainer, pl_module, pl_module.rows)

    def _stop(self, trainer: L.Trainer, pl_module: Any, rows: list[Row]) -> None:
        for index, row in enumerate(rows):
            if index not in self.stopped and as_written(row["val_seq_acc"]) >= self.accuracy:
                self.stopped[index] = row, [p[index].detach().clone() for p in pl_module.pack.parameters()]
        trainer.should_stop = trainer.should_stop or (bool(rows) and len(self.stopped) == len(rows))


LINE_INTERVAL = 30.0  # seconds between lines without a terminal, as for probes


class EpochProgress(L.Callback):
    """A progress bar with the last epoch's means over replicas. Without a terminal it prints a line now and then."""

    def __init__(self) -> None:
        self.last_line = time.monotonic()
        console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("epoch {task.completed:.1f}/{task.total}"),
            BarColumn(bar_width=None),
            *(TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn()),
            console=console,
            refresh_per_second=2,
            speed_estimate_period=600,  # seconds: some epochs, since the bar rests during evaluation
            disable=not console.is_terminal,
        )

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        text = "the first epoch compiles" if pl_module.pack.compiled else ""
        self.bar = self.progress.add_task(text, total=trainer.max_epochs)
        self.progress.start()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        done: Any = trainer.global_step / trainer.num_training_batches  # rich takes fractions
        self.progress.update(self.bar, completed=done)
        if self.progress.disable and time.monotonic() - self.last_line >= LINE_INTERVAL:
            self.last_line = time.monotonic()
            line = f"epoch {done:.1f} of {trainer.max_epochs}  {self.progress.tasks[self.bar].description}"
            print(line.rstrip(), file=sys.stderr, flush=True)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        rows = pl_module.rows
        loss, train, val = (mean(row[key] for row in rows) for key in ("train_loss", "train_seq_acc", "val_seq_acc"))
        self.progress.update(self.bar, description=f"loss {loss:.4f}  train {train:6.1%}  val {val:6.1%}")

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:  # after an exception too
        if not self.progress.disable:
            self.progress.stop()
