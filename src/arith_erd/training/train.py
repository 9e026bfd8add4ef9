"""One run, from a configuration to a finished run directory."""

import errno
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from safetensors.torch import save

from ..config.build import build
from ..errors import UserError, first_line
from ..interp.load import network_of
from ..loggers import Logger
from ..models.decoding import answers
from ..plots.style import learning_curves
from ..runs import Config, Row, Run, epochs_to
from ..seeds import format_seeds, parse_seeds
from ..splits import Split
from ..system import lock, signals
from ..system.files import replacing, write_atomically
from ..system.machine import device_name, versions
from ..tasks import Task
from . import memory
from .callbacks import EpochProgress, KeepRows, StopAtAccuracy
from .checkpoint import PlainFile, ResumePoint, resume_point
from .data import TableData
from .module import LitPack
from .pack import Pack

DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE}


def train(run: Run, config: Config) -> None:
    """Train a pack, or go on where it was interrupted, and write everything that a run directory holds.

    Raises:
        UserError: if the device is not there, another process trains this run, the folder cannot be written, or a loss
            stops being a number.
        signals.Preempted: if a signal asked to leave; the same call goes on from there.
    """
    run.require_plain()
    seeds = parse_seeds(config["seed"])
    logger: Logger = build(config["logger"], Logger)
    rows = KeepRows(run, logger)
    callbacks: list[L.Callback] = [rows]
    if config["trainer"]["stop_at"] is not None:
        callbacks.append(StopAtAccuracy(run, config["trainer"]["stop_at"]))
    title = f"{run.name} ({len(seeds)} replica{'s' if len(seeds) > 1 else ''})"
    callbacks += [EpochProgress(title), ResumePoint(run, config["checkpoint"]["every_n_epochs"])]
    trainer = make_trainer(config["trainer"], callbacks)
    module = assemble(config, trainer.strategy.root_device)
    task: Task = build(config["task"], Task)
    data = TableData(task, build(config["split"], Split), seeds, config["data"]["batch_size"])

    with lock.holding(run.path), keeping_errors(run):
        if run.finished:  # by the process that held the lock a moment ago
            print(f"{run.path}: finished already, skipped")
            return
        run.error.unlink(missing_ok=True)  # of an earlier attempt
        resume = resume_point(run, module, trainer)
        run.create(config)
        replicas = f"{len(seeds)} replica(s), seeds {format_seeds(seeds)}"
        print(f"{run.path}: {parameters(module.pack):,} parameters, {replicas}")
        summaries: list[Row] = []
        try:
            logger.start(run.name, seeds, config, run.path)
            with signals.deferred():
                try:
                    trainer.fit(module, data, ckpt_path=resume, weights_only=True)
                except Exception as error:
                    if resume is None or rows.started is not None or isinstance(error, UserError):
                        raise
                    reason = f"training cannot go on from it ({first_line(error)}); delete it to start again"
                    raise UserError(f"{resume}: {reason}") from error
            module.to(trainer.strategy.root_device)
            save_weights(run, module.pack)
            summaries = [summarise(run, module.pack, data, index) for index in range(len(seeds))]
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"seed={config['seed']}: {len(seeds)} replica(s) at data.batch_size={config['data']['batch_size']} do "
                f"not fit into the memory of {device_name(module.pack.replica_keys.device)}; lower pack.max_replicas"
            ) from error
        finally:
            logger.finish(summaries)
        finish(run, config, module.pack, data, summaries)
    for summary in summaries:
        print(describe(summary))


@contextmanager
def keeping_errors(run: Run) -> Iterator[None]:
    """Leave ``error.txt`` in the directory of a run that fails: the message of a `UserError`, else the traceback.

    A disk that is full or read-only is no fault of ours, so it is told as a `UserError`.
    """
    try:
        try:
            yield
        except OSError as error:
            if error.errno not in DISK:
                raise
            saved = "what was saved before is intact, and the same command goes on from there"
            raise UserError(f"{run.path}: cannot be written ({error.strerror}); {saved}") from error
    except Exception as error:
        with suppress(OSError):  # the disk may be full: that is no news then
            run.path.mkdir(parents=True, exist_ok=True)
            text = f"{error}\n" if isinstance(error, UserError) else traceback.format_exc()
            write_atomically(run.error, text)
            error.add_note(f"see {run.error}")
        raise


def finish(run: Run, config: Config, pack: Pack, data: TableData, summaries: list[Row]) -> None:
    """Draw the curves and write the summary."""
    rows = run.metrics()
    title = f"{data.task.name}, {config['split']['name']}, {config['model']['name']}"
    with replacing(run.curves) as beside:
        learning_curves(rows, title=title).savefig(beside, format="png")
    examples = len(data.train[0]) * rows[-1]["epoch"]
    run.finish(
        {
            "status": "finished",
            "params": parameters(pack),
            "epochs": rows[-1]["epoch"],
            "wall_seconds": sum(row["seconds"] for row in rows if row["seed"] == pack.seeds[0]),
            "train_flops": 6 * parameters(pack) * examples * (data.task.prompt_length + data.task.width),
            "device": device_name(pack.replica_keys.device),
            "versions": versions(),
            "seeds": summaries,
        }
    )


def assemble(config: Config, device: torch.device) -> LitPack:
    """The pack of a configuration, ready to be trained on a device.

    Raises:
        UserError: if the optimizer does not take its options.
    """
    options = config["trainer"]
    compile = wants_compile(options["compile"], device)
    if compile:
        torch.compiler.reset()  # it gives up after eight versions of one function, and would count other jobs' packs
    pack = Pack(
        network_of(config, build(config["task"], Task)), parse_seeds(config["seed"]), compile, options["cuda_graphs"]
    )
    optimizer = partial(build, config["model"]["optimizer"], torch.optim.Optimizer)
    module = LitPack(pack, optimizer, config["model"]["gradient_clip"])
    if options["precision"] == "64-true":
        module.double()  # Lightning does so too, but after it has loaded a checkpoint, whose digits it would cut
    try:
        module.configure_optimizers()
    except (TypeError, ValueError) as error:
        raise UserError(f"model.optimizer={config['model']['optimizer']['_target_']}: {error}") from error
    return module


def fitting_replicas(config: Config) -> int:
    """How many replicas the memory of the configured device holds; at least one."""
    device = make_trainer(config["trainer"], []).strategy.root_device
    task: Task = build(config["task"], Task)
    batch = config["data"]["batch_size"]
    with torch.device("meta"):
        network = network_of(config, task)()
        if config["trainer"]["precision"] == "64-true":
            network.double()
        prompt, answer_in = (torch.zeros(batch, n, dtype=torch.int64) for n in (task.prompt_length, task.width))
        replica = memory.training_bytes(network, prompt, answer_in)
    return memory.fitting(len(parse_seeds(config["seed"])), replica, device)


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
            # Under Slurm, Lightning's own choice would save and requeue from inside a signal's handler.
            plugins=[LightningEnvironment(), PlainFile()],
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
        with replacing(run.weights(seed)) as beside:
            beside.write_bytes(
                save(pack.replica_state(index))
            )  # an OSError, not one of the library's, if the disk is full


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
