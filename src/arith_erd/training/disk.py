"""The disk space that a job needs, printed by ``--cfg job``."""

import torch

from ..config.job import Job

ITEM = {"64-true": 8}  # bytes of a number by precision; 4 with the others


def disk_line(job: Job) -> str:
    """The disk space of all runs of a job, in megabytes, by part."""
    with torch.device("meta"):
        parameters = sum(p.numel() for p in job.network().parameters())
    weights = parameters * ITEM.get(job.trainer.precision, 4) * len(job.seeds)
    epochs = len(list(job.checkpoint.keep.until(job.trainer.max_epochs)))
    checkpoint = 3 * weights  # and Adam's two moments
    kept = checkpoint if job.checkpoint.keep_last else 0
    parts = {
        "final weights": weights,
        "last.ckpt": kept,
        f"weights of {epochs} epochs (checkpoint.keep)": epochs * weights,
    }
    said = ", ".join(f"{name} {size / 1e6:,.1f}" for name, size in parts.items() if size)
    whole = sum(parts.values())
    more = 2 * checkpoint - kept  # last.ckpt and previous.ckpt
    return f"on disk, about {whole / 1e6:,.1f} MB: {said}; while it trains, another {more / 1e6:,.1f}"
