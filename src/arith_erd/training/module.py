"""The LightningModule: the loss of a pack, its exact accuracies after every epoch, its optimizer."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import Metric

from ..bits import UNUSED
from ..errors import UserError
from ..models.decoding import shift_right
from ..runs import Row
from ..system.boundary import FAILURE
from .data import Batch
from .pack import Pack
from .recipe import change_rate


class Accuracies(Metric):
    """Accuracies of each replica, given the right tokens before (paper, section 3.2).

    Those of whole answers are the autoregressive ones exactly: see `arith_erd.models.decoding`.
    """

    full_state_update = False
    hits: Tensor  # (R, m), or (R, 1) before the first batch
    used: Tensor  # (R, m), answers that have each token
    right: Tensor  # (R,), answers without an error
    of_slices: Tensor  # (R, G), the same for each kind of example
    total: Tensor  # (), answers

    def __init__(self, replicas: int) -> None:
        super().__init__()
        shapes = {
            "hits": (replicas, 1),
            "used": (replicas, 1),
            "right": (replicas,),
            "of_slices": (replicas, 1),
            "total": (),
        }
        for name, shape in shapes.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, completion: Tensor, slices: Tensor | None = None) -> None:
        """Predicted tokens (R, B, m) against the right ones, (R, B, m) or (B, m) for all replicas.

        ``slices`` (N, G) says of which kinds all N examples are, of which these are the next B.
        """
        used = (completion != UNUSED).expand_as(predicted)
        hits = (predicted == completion) & used
        right = (hits | ~used).all(dim=-1)  # (R, B)
        self.hits = self.hits + hits.sum(dim=1)
        self.used = self.used + used.sum(dim=1)
        self.right += right.sum(dim=1)
        if slices is not None:
            self.of_slices = self.of_slices + right.to(slices.dtype) @ slices[self.total : self.total + hits.shape[1]]
        self.total += hits.shape[1]

    def compute(self) -> Tensor:
        """Fractions (R, 2 + m): of all tokens, of whole answers, and of each token; nan for one that no answer has."""
        hits = self.hits.double()
        of_all = hits.sum(dim=1, keepdim=True) / self.used.sum(dim=1, keepdim=True)
        return torch.cat([of_all, self.right[:, None].double() / self.total, hits / self.used], dim=1)


class LitPack(L.LightningModule):
    """Trains a pack on the sum of its replicas' losses: no gradient crosses from one replica to another.

    Args:
        optimizer: makes an optimizer of parameter groups, ``functools.partial(torch.optim.Adam, lr=1e-4)``.
        gradient_clip: largest norm of one replica's gradient, or None.
        schedule: makes what changes the optimizer's rate after each ``interval``; None for a constant rate.
    """

    loss_sum: Tensor  # (R,), over the examples that this epoch has seen
    examples_seen: Tensor  # ()

    def __init__(
        self,
        pack: Pack,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        gradient_clip: float | None = None,
        schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        interval: str = "step",
    ) -> None:
        super().__init__()
        self.pack, self.optimizer, self.gradient_clip = pack, optimizer, gradient_clip
        self.schedule, self.interval = schedule, interval
        replicas = len(pack.seeds)
        self.train_accuracy, self.val_accuracy = Accuracies(replicas), Accuracies(replicas)
        # In the checkpoint, which may be written in the middle of an epoch.
        self.register_buffer("loss_sum", torch.zeros(replicas))
        self.register_buffer("examples_seen", torch.zeros(()))
        self.rows: list[Row] = []  # after the last epoch: one for each seed, without the seconds
        self.tokens: list[tuple[int, int, str, list[float]]] = []  # rows of ``tokens.csv`` after the last epoch
        self.slices: list[tuple[int, int, str, int, float]] = []  # rows of ``slices.csv``
        self.kinds: Tensor | None = None  # (N, G), of which kinds the held-out examples are; None if all are alike

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer(self.parameter_groups())
        if self.schedule is None:
            return optimizer
        scheduler = {"scheduler": self.schedule(optimizer), "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Weight decay, if any, on matrices only; matrices are recognised by their unstacked shape."""
        parameters = [p for p in self.pack.parameters() if p.requires_grad]
        matrices, vectors = ([p for p in parameters if (p.dim() - 1 >= 2) is matrix] for matrix in (True, False))
        return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]

    def on_fit_start(self) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        self.kinds = data.slices if data.kinds else None

    def on_train_epoch_start(self) -> None:
        self.loss_sum.zero_()
        self.examples_seen.zero_()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        prompt, completion = batch[:2]  # (R, B, P), (R, B, m)
        targets = {"targets": batch[2]} if len(batch) > 2 else {}  # (R, B, k)
        with self._ending_refused():
            losses = self.pack.losses(prompt, completion, step=self.global_step, **targets)  # (R,)
        self.loss_sum += losses.detach() * completion.shape[1]
        self.examples_seen += completion.shape[1]
        return losses.sum()

    @contextmanager
    def _ending_refused(self) -> Iterator[None]:
        """What own code raises within the block is a failure of that code, and ends no epoch or program quietly."""
        try:
            yield
        except (StopIteration, SystemExit, GeneratorExit) as error:
            raised = type(error).__name__
            raise UserError(f"step {self.global_step + 1}: the network or the loss raises {raised}") from error
        except Exception as error:
            kinds = (type(part) for part in (self.pack.stacked, self.pack.loss))
            own = [
                f"{kind.__module__}.{kind.__name__}" for kind in kinds if not kind.__module__.startswith("arith_erd.")
            ]
            if own:
                error.add_note(f"{FAILURE}step {self.global_step + 1}: {' or '.join(own)}")
            raise

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Clip each replica's gradient to its own norm, as `torch.nn.utils.clip_grad_norm_` would."""
        if self.gradient_clip is None:
            return
        gradients = [p.grad for p in self.pack.parameters() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)  # (R,)
        scale = (self.gradient_clip / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        change_rate(scheduler)

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int) -> None:
        prompt, completion = batch  # (B, P), (B, m)
        with self._ending_refused():
            predicted = self.pack(prompt, shift_right(completion)).argmax(dim=-1)  # (R, B, m)
        kinds = self.kinds if dataloader_idx == 1 else None
        (self.train_accuracy, self.val_accuracy)[dataloader_idx].update(predicted, completion, kinds)

    def on_validation_epoch_end(self) -> None:
        """Collect `rows` and `tokens`: the one place in an epoch where the host waits for the device.

        A loss or a weight that is not finite is a `UserError`.
        """
        epoch = self.current_epoch + 1
        finite = torch.stack([p.isfinite().flatten(1).all(dim=1) for p in self.pack.parameters()]).all(dim=0)  # (R,)
        losses = torch.stack([self.loss_sum.double() / self.examples_seen, finite.double()], dim=1)  # (R, 2)
        table = torch.cat([losses, self.train_accuracy.compute(), self.val_accuracy.compute()], dim=1)
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        of_slices = (self.val_accuracy.of_slices / data.slices.sum(dim=0)).tolist() if data.kinds else []
        self.slices = [
            (epoch, seed, name, value, accuracy)
            for seed, accuracies in zip(self.pack.seeds, of_slices, strict=False)
            for (name, value), accuracy in zip(data.kinds, accuracies, strict=True)
        ]
        self.train_accuracy.reset()
        self.val_accuracy.reset()
        self.rows, self.tokens = [], []
        for seed, (loss, is_finite, *accuracies) in zip(self.pack.seeds, table.tolist(), strict=True):
            if not (is_finite and math.isfinite(loss)):
                what = "a weight became infinite or nan" if math.isfinite(loss) else f"the loss became {loss}"
                raise UserError(f"{what} in epoch {epoch}, seed {seed}; a lower model.optimizer.lr may help")
            row: Row = {"epoch": epoch, "seed": seed, "train_loss": loss}
            half = len(accuracies) // 2
            for split, found in (("train", accuracies[:half]), ("val", accuracies[half:])):
                row |= {f"{split}_token_acc": found[0], f"{split}_seq_acc": found[1]}
                self.tokens.append((epoch, seed, split, found[2:]))
            self.rows.append(row)
        for index, seed in enumerate(self.pack.seeds):
            reported = self.pack.loss.report(partial(self.pack.replica, index), data.held_out)
            self.tokens += [(epoch, seed, name, [*found]) for name, found in reported.items()]
