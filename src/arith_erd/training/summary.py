"""The end of a run: final weights, one evaluation that decodes, and the summary that makes it finished."""

from collections.abc import Mapping

import numpy as np
from safetensors.torch import save
from torch import Tensor

from ..bits import PAD
from ..models.network import Network, greedy_tokens, teacher_forced_tokens
from ..runs import Run, SeedSummary, epochs_to
from ..stats import Counts, stuck
from ..system.files import replacing
from ..system.machine import device_name, versions
from .data import TableData
from .pack import Pack


def save_weights(run: Run, pack: Pack, epoch: int | None = None) -> None:
    """Write ``weights/seed=K.safetensors`` for every replica, or ``weights/epoch=E/seed=K.safetensors``."""
    for index, seed in enumerate(pack.seeds):
        path = run.weights(seed, epoch)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as partial:
            # Raises an OSError if the disk is full, unlike the library's own writer.
            partial.write_bytes(save(pack.replica_state(index)))


def summarise(run: Run, pack: Pack, data: TableData) -> list[SeedSummary]:
    """The summary of each replica. Decoding happens only here, and only for sequences that fail."""
    rows, summaries = run.metrics(), []
    prompt, completion = data.validation
    right = completion.cpu()
    for index, seed in enumerate(pack.seeds):
        last = next(row for row in reversed(rows) if row["seed"] == seed)
        summary = {key: value for key, value in last.items() if key not in ("epoch", "seconds")}
        network = pack.replica(index)
        decoded = greedy_tokens(network, prompt, completion).cpu()
        error = data.task.decode(decoded.numpy()) - data.task.decode(right.numpy())
        summary["val_token_acc_autoregressive"] = float((decoded == right)[right != PAD].double().mean())
        summary["val_mae"] = float(np.abs(error).mean())
        summary["epochs_to_95"] = epochs_to(rows, seed, 0.95)
        summary["never_learnt"] = never_learnt(network, data)
        summaries.append(summary)
    return summaries


def never_learnt(network: Network, data: TableData) -> list[str]:
    """The names of the answer tokens that are no better than the most common answer, in training and held out."""
    if data.task.min_bits is not None:  # of the tokens of the longest operands training may have none
        return []
    counted = (_counts(network, *half[:2]) for half in (data.train, data.validation))
    tokens = zip(data.task.answer_names, *counted, strict=True)
    return [name for name, *counts in tokens if stuck(*counts) == "never learnt"]


def _counts(network: Network, prompt: Tensor, completion: Tensor) -> list[Counts]:
    """Of each answer token, after the right ones before it: prompts (N, P), completions (N, m)."""
    n, hits = len(completion), (teacher_forced_tokens(network, prompt, completion) == completion).sum(dim=0)
    most_common = (int(token.bincount().max()) for token in completion.cpu().T)
    return [(right, n, most / n) for right, most in zip(hits.tolist(), most_common, strict=True)]


def finish(run: Run, pack: Pack, data: TableData, summaries: list[SeedSummary], sources: Mapping[str, str]) -> None:
    """Write ``summary.json``; device, versions and sources are those of the process that finishes the run."""
    rows = run.metrics()
    epochs = rows[-1]["epoch"]
    tokens = len(data.train[0]) * epochs * (data.task.prompt_length + data.task.answer_length)
    run.finish(
        {
            "params": num_parameters(pack),
            "epochs": epochs,
            "wall_seconds": sum(row["seconds"] for row in rows if row["seed"] == pack.seeds[0]),
            "train_flops": 6 * num_parameters(pack) * tokens,  # of one replica: 6 N T, the usual estimate
            "device": device_name(pack.replica_keys.device),
            "versions": versions(),
            **({"sources": sources} if sources else {}),
            "seeds": summaries,
        }
    )


def num_parameters(pack: Pack) -> int:
    """Learnable parameters of one replica."""
    return sum(p.numel() for p in pack.stacked.parameters()) // len(pack.seeds)


def describe(summary: SeedSummary) -> str:
    """One line for people."""
    reached = summary["epochs_to_95"]
    return (
        f"seed {summary['seed']}: train {summary['train_seq_acc']:.2%}, validation {summary['val_seq_acc']:.2%} of "
        f"sequences, mean absolute error {summary['val_mae']:.3g}, "
        + (f"95% at epoch {reached}" if reached else "never reached 95%")
    )
