"""One run, from a configuration to a finished run directory."""

import logging
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from safetensors.torch import save_file

from .build import build
from .callbacks import EpochProgress, KeepRows, ResumePoint, StopAtAccuracy
from .data import TableData
from .decoding import answers
from .errors import UserError
from .lit import LitPack
from .loggers import Logger
from .machine import device_name, versions
from .models.network import Network
from .pack import Pack
from .report.figures import learning_curves
from .runs import Config, Row, Run, epochs_to
from .seeds import format_seeds, parse_seeds
from .splits import Split
from .tasks import Task


def train(run: Run, config: Config) -> None:
    """Train a pack, or go on where it was interrupted, and write everything that a run directory holds.

    Raises:
        UserError: if the device is not there, the folder cannot be written, or a loss stops being a number.
    """
    run.require_plain()
    seeds = parse_seeds(config["seed"])
    task: Task = build(config["task"], Task)
    logger: Logger = build(config["logger"], Logger)
    callbacks: list[L.Callback] = [KeepRows(run, logger)]
    if config["trainer"]["stop_at"] is not None:
        callbacks.append(StopAtAccuracy(run, config["trainer"]["stop_at"]))
    title = f"{run.name} ({len(seeds)} replica{'s' if len(seeds) > 1 else ''})"
    callbacks += [EpochProgress(title), ResumePoint(run.checkpoint, config["checkpoint"]["every_n_epochs"])]
    trainer = make_trainer(config["trainer"], callbacks)
    module = assemble(config, trainer.strategy.root_device)
    pack = module.pack
    data = TableData(task, build(config["split"], Split), seeds, config["data"]["batch_size"])

    resume = resume_point(run)
    run.create(config)
    print(f"{run.path}: {parameters(pack):,} parameters, {len(seeds)} replica(s), seeds {format_seeds(seeds)}")
    summaries: list[Row] = []
    logger.start(run.name, seeds, config, run.path)
    try:
        trainer.fit(module, data, ckpt_path=resume, weights_only=True)
        module.to(trainer.strategy.root_device)
        save_weights(run, pack)
        summaries = [summarise(run, pack, data, index) for index in range(len(seeds))]
    finally:
        logger.finish(summaries)
    rows = run.metrics()
    learning_curves(rows, title=f"{task.name}, {config['split']['name']}, {config['model']['name']}").savefig(
        run.curves
    )
    examples = len(data.train[0]) * rows[-1]["epoch"]
    run.finish(
        {
            "status": "finished",
            "params": parameters(pack),
            "epochs": rows[-1]["epoch"],
            "wall_seconds": sum(row["seconds"] for row in rows if row["seed"] == seeds[0]),
            "train_flops": 6 * parameters(pack) * examples * (task.prompt_length + task.width),
            "device": device_name(trainer.strategy.root_device),
            "versions": versions(),
            "seeds": summaries,
        }
    )
    for summary in summaries:
        print(describe(summary))


def assemble(config: Config, device: torch.device) -> LitPack:
    """The pack of a configuration, ready to be trained on a device.

    Raises:
        UserError: if the optimizer does not take its options.
    """
    task: Task = build(config["task"], Task)
    lengths = {"prompt_length": task.prompt_length, "answer_length": task.width}
    network = partial(build, config["model"]["net"], Network, **lengths)
    pack = Pack(network, parse_seeds(config["seed"]), compile=wants_compile(config["trainer"]["compile"], device))
    optimizer = partial(build, config["model"]["optimizer"], torch.optim.Optimizer)
    module = LitPack(pack, optimizer, config["model"]["gradient_clip"])
    try:
        module.configure_optimizers()
    except (TypeError, ValueError) as error:
        raise UserError(f"model.optimizer={config['model']['optimizer']['_target_']}: {error}") from error
    return module


def resume_point(run: Run) -> Path | None:
    """The checkpoint to go on from; None for a run that starts.

    Raises:
        UserError: if it cannot be read.
    """
    if not run.checkpoint.is_file():
        return None
    try:
        torch.load(run.checkpoint, map_location="meta", weights_only=True)
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        raise UserError(f"{run.checkpoint}: damaged ({type(error).__name__}); delete it to start again") from error
    return run.checkpoint


def make_trainer(options: dict[str, Any], callbacks: list[L.Callback]) -> L.Trainer:
    """A trainer that logs, saves and shows nothing of its own: our callbacks do, once an epoch."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_float32_matmul_precision("high")
    try:
        return L.Trainer(
            max_epochs=options["max_epochs"],
            precision=options["precision"],
            accelerator=options["accelerator"],
            devices=1,
            callbacks=callbacks,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
    except (MisconfigurationException, RuntimeError, ValueError) as error:
        raise UserError(
            f"trainer.accelerator={options['accelerator']}, trainer.precision={options['precision']}: {error}"
        ) from error


def wants_compile(option: bool | str, device: torch.device) -> bool:
    """``auto`` compiles for CUDA only: on a CPU it costs more than a minute."""
    return device.type == "cuda" if option == "auto" else bool(option)


def parameters(pack: Pack) -> int:
    """Learnable parameters of one replica."""
    return sum(p.numel() for p in pack.stacked.parameters()) // len(pack.seeds)


def save_weights(run: Run, pack: Pack) -> None:
    """Write ``weights/seed=K.safetensors`` for every replica."""
    for index, seed in enumerate(pack.seeds):
        target = run.weights(seed)
        beside = target.with_name(f".{target.name}.partial")
        save_file(pack.replica_state(index), beside)
        beside.replace(target)


def summarise(run: Run, pack: Pack, data: TableData, index: int) -> Row:
    """The last word on one replica; only here, and only for the sequences that fail, is anything decoded."""
    seed = pack.seeds[index]
    rows = run.metrics()
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


def describe(summary: Row) -> str:
    """One line for people."""
    reached = summary["epochs_to_95"]
    return (
        f"seed {summary['seed']}: train {summary['train_seq_acc']:.2%}, validation {summary['val_seq_acc']:.2%} of "
        f"sequences, mean absolute error {summary['val_mae']:.3g}, "
        + (f"95% at epoch {reached}" if reached else "95% not reached")
    )
