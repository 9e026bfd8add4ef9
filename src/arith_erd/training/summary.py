"""The summary of a finished run: the final numbers of each seed, and what trained it."""

import math
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from ..digits import PAD
from ..errors import UserError
from ..models.network import Network, greedy_tokens, teacher_forced_tokens
from ..runs.directory import Row, Run, first_epoch_reaching
from ..stats import TARGET_ACCURACY, TokenCounts, stuck_status
from ..system.cli_errors import naming_user_code
from ..system.machine import device_name, versions
from .data import TaskData
from .pack import Pack


def seed_summaries(run: Run, pack: Pack, data: TaskData) -> list[Row]:
    """The summary of each replica. Only here do we decode answers, and only where teacher forcing is wrong."""
    rows, summaries = run.metrics(), []
    prompt, completion = data.validation
    right = completion.cpu()
    for index, seed in enumerate(pack.seeds):
        last = next(row for row in reversed(rows) if row["seed"] == seed)
        summary = {key: value for key, value in last.items() if key not in ("epoch", "seconds")}
        network = pack.replica(index)
        decoded = greedy_tokens(network, prompt, completion).cpu()
        summary["val_token_acc_autoregressive"] = float((decoded == right)[right != PAD].double().mean())
        summary["val_mae"] = math.nan
        with suppress(UserError), naming_user_code("summary", data.task):  # a task whose tokens have no names
            summary["val_mae"] = float(np.abs(data.task.decode(decoded) - data.task.decode(right)).mean())
        summary["epochs_to_95"] = first_epoch_reaching(rows, seed, TARGET_ACCURACY)
        summary["never_learnt"] = never_learned(network, data)
        summaries.append(summary)
    return summaries


def never_learned(network: Network, data: TaskData) -> list[str]:
    """The answer tokens that the network predicts no better than a constant guess, in training and held out."""
    if data.task.min_bits is not None:  # the highest answer tokens may occur in no training example
        return []
    counts: list[list[TokenCounts]] = []  # for each answer token under teacher forcing, in both subsets
    for prompt, completion, *_ in (data.train, data.validation):  # (N, P), (N, m)
        n, hits = len(completion), (teacher_forced_tokens(network, prompt, completion) == completion).sum(dim=0)
        most_common = (int(token.bincount().max()) for token in completion.cpu().T)
        counts.append([(right, n, most / n) for right, most in zip(hits.tolist(), most_common, strict=True)])
    tokens = zip(data.task.answer_names, *counts, strict=True)
    return [name for name, *both in tokens if stuck_status(*both) == "never learned"]


def write_summary(run: Run, pack: Pack, data: TaskData, summaries: list[Row], sources: Mapping[str, str]) -> None:
    """Write ``summary.json`` with the device, versions and sources of the process that finishes the run."""
    rows, parameters = run.metrics(), pack.num_parameters_each
    epochs = rows[-1]["epoch"]
    tokens = len(data.train[0]) * epochs * (data.task.prompt_length + data.task.answer_length)
    run.finish(
        {
            "params": parameters,
            "epochs": epochs,
            "wall_seconds": sum(row["seconds"] for row in rows if row["seed"] == pack.seeds[0]),
            "train_flops": 6 * parameters * tokens,  # 6 N T for one replica, the usual estimate
            "device": device_name(pack.replica_keys.device),
            "versions": versions(),
            **({"sources": sources} if sources else {}),
            "seeds": summaries,
        }
    )


def seed_line(summary: Row) -> str:
    reached = summary["epochs_to_95"]
    return (
        f"seed {summary['seed']}: train {summary['train_seq_acc']:.2%}, validation {summary['val_seq_acc']:.2%} of "
        f"sequences, mean absolute error {summary['val_mae']:.3g}, "
        + (f"95% at epoch {reached}" if reached else "never reached 95%")
    )
