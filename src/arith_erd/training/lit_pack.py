"""The LightningModule of a pack: its loss, its exact accuracies after every epoch, its optimizer."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import CatMetric

from ..digits import PAD
from ..errors import UserError, first_line
from ..models.network import sequence_correct, shift_right
from ..runs.directory import Row
from ..system.cli_errors import naming_user_code
from .data import Batch
from .pack import Pack


def accuracies(predicted: Tensor, completion: Tensor) -> Tensor:
    """Accuracies (R, 2 + m): of all tokens, of whole answers, and of each token (NaN if it is always padding).

    Tokens (R, N, m) are predicted under teacher forcing (paper, section 3.2); completions are (N, m). The accuracy of
    whole answers equals that of greedy decoding exactly.
    """
    used = completion != PAD  # (N, m)
    hits = (predicted == completion) & used  # (R, N, m)
    by_token = hits.sum(dim=1).double() / used.sum(dim=0)  # (R, m)
    all_tokens = hits.sum(dim=(1, 2)).double() / used.sum()  # (R,)
    sequences = sequence_correct(predicted, completion).double().mean(dim=1)  # (R,)
    return torch.cat([all_tokens[:, None], sequences[:, None], by_token], dim=1)


class LitPack(L.LightningModule):
    """Trains a pack on the sum of its replicas' losses, so no gradient crosses from one replica to another."""

    loss_sum: Tensor  # (R,), over the examples that this epoch has seen
    examples_seen: Tensor  # ()

    def __init__(
        self,
        pack: Pack,
        make_optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        gradient_clip: float | None = None,
        make_scheduler: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        interval: str = "step",
    ) -> None:
        super().__init__()
        self.pack, self.make_optimizer, self.gradient_clip = pack, make_optimizer, gradient_clip
        self.make_scheduler, self.interval = make_scheduler, interval
        # The tokens (N, R, m) predicted in an evaluation. Checking for nan would make the host wait at each batch.
        self.train_tokens, self.validation_tokens = CatMetric("disable"), CatMetric("disable")
        self.saved_state: dict[int, dict[str, Any]] = {}  # the optimizer's, in the checkpoint to resume from
        # These are saved, since a checkpoint may be written in the middle of an epoch.
        self.register_buffer("loss_sum", torch.zeros(len(pack.seeds)))
        self.register_buffer("examples_seen", torch.zeros(()))
        self.rows: list[Row] = []  # after the last epoch: one for each seed, without the seconds
        self.token_rows: list[tuple[int, int, str, list[float]]] = []  # rows of ``tokens.csv`` after the last epoch
        self.slice_rows: list[tuple[int, int, str, int, float]] = []  # rows of ``slices.csv``

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer(self.parameter_groups())
        if self.make_scheduler is None:
            return optimizer
        scheduler = {"scheduler": self.make_scheduler(optimizer), "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Matrices, and vectors without weight decay, recognised by their unstacked shape."""
        parameters = [p for p in self.pack.parameters() if p.requires_grad]
        matrices, vectors = ([p for p in parameters if (p.dim() - 1 >= 2) is matrix] for matrix in (True, False))
        return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        (optimizer,) = checkpoint["optimizer_states"]
        self.saved_state = optimizer["state"]

    def on_train_start(self) -> None:
        """Restore the types of the optimizer's loaded state: torch loads all tensors in the parameters' type.

        In 64 bits NAdam keeps one product in 32 bits. Without this a resumed run would differ from an undisturbed one.
        """
        state = self.trainer.optimizers[0].state_dict()["state"]
        for index, saved in self.saved_state.items():
            tensors = {name: x.dtype for name, x in saved.items() if isinstance(x, Tensor)}
            state[index] |= {name: state[index][name].to(dtype) for name, dtype in tensors.items()}
        self.saved_state = {}

    def on_train_epoch_start(self) -> None:
        self.loss_sum.zero_()
        self.examples_seen.zero_()
        self.rows = []

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        prompt, completion, *targets = batch  # (R, B, P), (R, B, m), perhaps (R, B, k)
        with naming_user_code(f"step {self.global_step + 1}", self.pack.stacked, self.pack.loss):
            losses = self.pack.losses(prompt, completion, self.global_step, *targets)  # (R,)
        self.loss_sum += losses.detach() * completion.shape[1]
        self.examples_seen += completion.shape[1]
        return losses.sum()

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        if self.gradient_clip is not None:
            self.pack.clip_gradients(self.gradient_clip)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        with naming_user_code(f"step {self.global_step + 1}", getattr(optimizer, "optimizer", optimizer)):
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        step_scheduler(scheduler)

    def on_validation_epoch_start(self) -> None:
        self.train_tokens.reset()
        self.validation_tokens.reset()

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int) -> None:
        prompt, completion = batch  # (B, P), (B, m)
        with naming_user_code(f"evaluation after step {self.global_step}", self.pack.stacked):
            tokens = self.pack(prompt, shift_right(completion)).argmax(dim=-1)  # (R, B, m)
        (self.validation_tokens if dataloader_idx else self.train_tokens).update(tokens.movedim(1, 0))

    def on_validation_epoch_end(self) -> None:
        """Collect `rows`, `token_rows` and `slice_rows`. The host waits for the device only here."""
        epoch, seeds = self.current_epoch + 1, self.pack.seeds
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        parameters = [p.reshape(len(p), -1) for p in self.pack.parameters()]  # (R,) if it is one number
        finite = torch.stack([p.isfinite().all(dim=1) for p in parameters]).all(dim=0).tolist()  # (R,)
        losses = (self.loss_sum.double() / self.examples_seen).tolist()  # (R,)
        train, val = (x.compute().movedim(0, 1) for x in (self.train_tokens, self.validation_tokens))  # (R, N, m)
        shares = {
            "train": accuracies(train, data.train[1]).tolist(),
            "val": accuracies(val, data.validation[1]).tolist(),
        }
        self.rows, self.token_rows, self.slice_rows = [], [], []
        for index, (seed, loss) in enumerate(zip(seeds, losses, strict=True)):
            if not (finite[index] and math.isfinite(loss)):
                what = "a weight became infinite or nan" if math.isfinite(loss) else f"the loss became {loss}"
                raise UserError(f"{what} in epoch {epoch}, seed {seed}; a lower model.optimizer.lr may help")
            row: Row = {"epoch": epoch, "seed": seed, "train_loss": loss}
            for split, of_replicas in shares.items():
                all_tokens, sequences, *by_token = of_replicas[index]
                row |= {f"{split}_token_acc": all_tokens, f"{split}_seq_acc": sequences}
                self.token_rows.append((epoch, seed, split, by_token))
            self.rows.append(row)
        for index, seed in enumerate(seeds):
            with naming_user_code(f"epoch {epoch}", self.pack.loss):
                reported = self.pack.loss.report(partial(self.pack.replica, index), data.held_out)
                self.token_rows += [(epoch, seed, name, [*values]) for name, values in reported.items()]
        if data.slices:
            right = sequence_correct(val, data.validation[1]).cpu().numpy()  # (R, N)
            self.slice_rows = [
                (epoch, seed, name, int(kind), float(own[kinds == kind].mean()))
                for seed, own in zip(seeds, right, strict=True)
                for name, kinds in data.slices.items()
                for kind in np.unique(kinds)
            ]


def step_scheduler(scheduler: LRScheduler) -> None:
    """Advance a scheduler by one step; a `UserError` if it raises, as `OneCycleLR` does after its last step."""
    try:
        scheduler.step()
    except Exception as error:  # ReduceLROnPlateau needs a number, and a user's class may raise anything
        accepted = "expected a function of the step alone, for all epochs of the run"
        what = "divides by zero" if isinstance(error, ZeroDivisionError) else first_line(error).rstrip(".")
        raise UserError(f"model.scheduler: {what}; {accepted}") from error
