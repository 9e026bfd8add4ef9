"""The end of a run: final weights, one evaluation that decodes, curves, and the summary that makes it finished."""

import numpy as np
from safetensors.torch import save

from ..config.job import Job
from ..models.decoding import answers
from ..plots.curves import learning_curves
from ..plots.style import save_png
from ..runs import Row, Run, epochs_to
from ..system.files import replacing
from .conditions import Conditions
from .data import TableData
from .pack import Pack


def save_weights(run: Run, pack: Pack, epoch: int | None = None) -> None:
    """Write ``weights/seed=K.safetensors`` for every replica, or ``weights/epoch=E/seed=K.safetensors``."""
    for seed, state in zip(pack.seeds, pack.replica_states(), strict=True):
        path = run.weights(seed, epoch)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as beside:
            # Raises an OSError if the disk is full, unlike the library's own writer.
            beside.write_bytes(save(state))


def summarise(run: Run, pack: Pack, data: TableData) -> list[Row]:
    """The summary of each replica. Decoding happens only here, and only for sequences that fail."""
    rows = run.metrics()
    return [_summarise(rows, pack, data, index) for index in range(len(pack.seeds))]


def _summarise(rows: list[Row], pack: Pack, data: TableData, index: int) -> Row:
    seed = pack.seeds[index]
    last = next(row for row in reversed(rows) if row["seed"] == seed)
    prompt, completion = data.validation
    decoded = answers(pack.replica(index), prompt, completion).cpu()
    error = data.task.decode(decoded.numpy()) - data.task.decode(completion.cpu().numpy())
    return {
        **{key: last[key] for key in ("seed", "train_loss", "train_token_acc", "train_seq_acc")},
        **{key: last[key] for key in ("val_token_acc", "val_seq_acc")},
        "val_token_acc_autoregressive": float((decoded == completion.cpu()).double().mean()),
        "val_mae": float(np.abs(error).mean()),
        "epochs_to_95": epochs_to(rows, seed, 0.95),
    }


def draw_curves(job: Job) -> None:
    """Draw ``curves.png``."""
    with replacing(job.run.curves) as beside:
        save_png(learning_curves(job.run.metrics(), title=job.title), beside)


def write_summary(job: Job, pack: Pack, data: TableData, summaries: list[Row], conditions: Conditions) -> None:
    """Write ``summary.json``."""
    run, rows = job.run, job.run.metrics()
    epochs = rows[-1]["epoch"]
    run.finish(
        {
            "params": parameters(pack),
            "epochs": epochs,
            "wall_seconds": sum(row["seconds"] for row in rows if row["seed"] == pack.seeds[0]),
            "train_flops": training_flops(pack, data, epochs),
            "device": conditions.device,
            "versions": conditions.versions,
            "varied": conditions.varied,
            "parts": conditions.parts,
            "seeds": summaries,
        }
    )


def parameters(pack: Pack) -> int:
    """Learnable parameters of one replica."""
    return sum(p.numel() for p in pack.stacked.parameters()) // len(pack.seeds)


def training_flops(pack: Pack, data: TableData, epochs: int) -> int:
    """Of one replica: six operations for each parameter and token, the usual estimate."""
    tokens = len(data.train[0]) * epochs * (data.task.prompt_length + data.task.width)
    return 6 * parameters(pack) * tokens


def describe(summary: Row) -> str:
    """One line for people."""
    reached = summary["epochs_to_95"]
    return (
        f"seed {summary['seed']}: train {summary['train_seq_acc']:.2%}, validation {summary['val_seq_acc']:.2%} of "
        f"sequences, mean absolute error {summary['val_mae']:.3g}, "
        + (f"95% at epoch {reached}" if reached else "95% not reached")
    )
