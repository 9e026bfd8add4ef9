"""Callbacks of an epoch: write rows and weights, show progress, end the run early."""

import time
from statistics import mean
from typing import Any

import lightning as L
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..loggers import Logger
from ..runs import Keep, Row, Run
from .finish import save_weights
from .module import LitPack


class KeepRows(L.Callback):
    """Append every epoch's rows to ``metrics.csv`` and pass them to the logger."""

    def __init__(self, run: Run, logger: Logger) -> None:
        self.run = run
        self.logger = logger
        self.started: float | None = None
        """When the epoch began, for `time.perf_counter`; None before training."""
        self.spent = 0.0
        """Seconds spent on this epoch before an interruption."""
        self.learning_rate = 0.0
        """Of the last step. When an epoch ends, the optimizer has that of the next step already."""

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self._seconds(), "learning_rate": self.learning_rate}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.spent = float(state_dict["seconds"])
        self.learning_rate = float(state_dict.get("learning_rate", 0.0))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = time.perf_counter() - self.spent

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.learning_rate = _learning_rate(trainer)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        seconds = self._seconds()
        rows: list[Row] = [{**row, "seconds": seconds} for row in _rows(pl_module)]
        self.run.append_metrics(rows)
        self.logger.log([{**row, "learning_rate": self.learning_rate} for row in rows])

    def _seconds(self) -> float:
        return 0.0 if self.started is None else time.perf_counter() - self.started


def _learning_rate(trainer: L.Trainer) -> float:
    """The largest of the optimizer's groups; 0 for an optimizer without one."""
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups if "lr" in group]
    return float(max(rates, default=0.0))


class KeepWeights(L.Callback):
    """Write the weights of every replica after the epochs in ``keep``, to ``weights/epoch=E/``."""

    def __init__(self, run: Run, keep: Keep) -> None:
        self.run = run
        self.keep = keep

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if epoch in self.keep:
            assert isinstance(pl_module, LitPack)
            save_weights(self.run, pl_module.pack, epoch)


class StopAtAccuracy(L.Callback):
    """End each replica after the first epoch in which its validation sequence accuracy reaches ``accuracy``.

    A replica that has ended waits for the others of its pack: its weights are restored after every step, and its row of
    results is repeated. So it has the same weights and results as its seed alone. The run ends with its last replica.
    The checkpoint holds nothing of this: the rows of the last epoch show which replicas have ended.

    Args:
        run: whose rows these are.
        accuracy: a fraction.
    """

    def __init__(self, run: Run, accuracy: float) -> None:
        self.run = run
        self.accuracy = accuracy
        self.ended: dict[int, tuple[Row, list[torch.Tensor]]] = {}
        """Last row and final weights by replica."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        rows = [row for row in self.run.metrics() if row["epoch"] == trainer.current_epoch]
        self._end(trainer, pl_module, rows)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        with torch.no_grad():
            for index, (_row, weights) in self.ended.items():
                for parameter, weight in zip(_parameters(pl_module), weights, strict=True):
                    parameter[index] = weight

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        rows = _rows(pl_module)
        for index, (row, _weights) in self.ended.items():
            rows[index] = {**row, "epoch": rows[index]["epoch"]}
        self._end(trainer, pl_module, rows)

    def _end(self, trainer: L.Trainer, pl_module: L.LightningModule, rows: list[Row]) -> None:
        for index, row in enumerate(rows):
            if index not in self.ended and row["val_seq_acc"] >= self.accuracy:
                self.ended[index] = row, [p[index].detach().clone() for p in _parameters(pl_module)]
        trainer.should_stop = trainer.should_stop or (bool(rows) and len(self.ended) == len(rows))


class EpochProgress(L.Callback):
    """A bar that moves while an epoch trains, and the last epoch's mean over the replicas beside it.

    Silent unless standard error is a terminal.
    """

    TRAINING = 0.75
    """The share of an epoch that its steps take; the rest is evaluation, see benchmarks/README.md."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.progress: Progress | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self.console.is_terminal:
            return
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            refresh_per_second=2,
            speed_estimate_period=600,  # seconds: some epochs, since the bar rests during evaluation
        )
        self.progress.start()
        assert isinstance(pl_module, LitPack)
        self.bar = self.progress.add_task(
            "the first epoch compiles" if pl_module.pack.compiled else "",
            total=trainer.max_epochs,
            completed=self._completed(trainer),  # type: ignore[arg-type]  # rich takes fractions
            epoch=trainer.current_epoch,
        )

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        often = max(1, trainer.num_training_batches // 48)  # rich remembers 1000 moves
        if self.progress is not None and trainer.global_step % often == 0:
            self.progress.update(self.bar, completed=self._completed(trainer))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.progress is None:
            return
        rows = _rows(pl_module)
        loss, train, val = (mean(row[key] for row in rows) for key in ("train_loss", "train_seq_acc", "val_seq_acc"))
        text = f"loss {loss:.4f}  train {train:6.1%}  val {val:6.1%}"
        epoch = trainer.current_epoch + 1
        self.progress.update(self.bar, completed=epoch, epoch=epoch, description=text)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _completed(self, trainer: L.Trainer) -> float:
        """Epochs, with what has been done of this one, also before an interruption."""
        steps = trainer.global_step / trainer.num_training_batches - trainer.current_epoch
        return trainer.current_epoch + self.TRAINING * steps

    def _stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


def _rows(pl_module: L.LightningModule) -> list[Row]:
    assert isinstance(pl_module, LitPack)
    return pl_module.rows


def _parameters(pl_module: L.LightningModule) -> list[torch.nn.Parameter]:
    """The stacked weights of the pack, (R, ...) each."""
    assert isinstance(pl_module, LitPack)
    return list(pl_module.pack.parameters())
