"""The groups of a training configuration as typed objects; `rules` says which values each key takes."""

from dataclasses import dataclass
from typing import Annotated, Any

from ..runs import Keep, require_name
from ..runs.kept import NOTHING
from .build import Factory, factory
from .rules import (
    ACCURACY,
    LOSS,
    NETWORK,
    OPTIMIZER,
    POSITIVE,
    SCHEDULER,
    SWITCH,
    accepting,
    count,
    is_count,
    nullable,
    one_of,
)


@dataclass(frozen=True)
class Ablation:
    """The name of an ablation; its effect is in the model's own options."""

    name: Annotated[str, require_name]


CROSS_ENTROPY = Factory("arith_erd.losses.CrossEntropy", key="model.loss")


@dataclass(frozen=True)
class Schedule:
    """How the optimizer's rate changes."""

    scheduler: Factory
    interval: str
    """After each of what: ``step`` or ``epoch``."""

    @classmethod
    def read(cls, key: str, group: Any) -> "Schedule | None":
        if group is None:
            return None
        scheduler = Factory.read(key, group, SCHEDULER, metadata=("interval",))
        return cls(scheduler, one_of("step", "epoch")(f"{key}.interval", group.get("interval")))


@dataclass(frozen=True)
class Model:
    """A network and its recipe."""

    name: Annotated[str, require_name]
    net: Annotated[Factory, factory(NETWORK)]
    optimizer: Annotated[Factory, factory(OPTIMIZER)]
    gradient_clip: Annotated[float | None, nullable(POSITIVE)]
    """Largest norm of one replica's gradient."""
    scheduler: Annotated[Schedule | None, Schedule.read] = None
    loss: Annotated[Factory, factory(LOSS)] = CROSS_ENTROPY


@dataclass(frozen=True)
class Data:
    batch_size: Annotated[int, count()]
    """Examples that one replica sees in a step."""


@dataclass(frozen=True)
class Training:
    """The group ``trainer``."""

    max_epochs: Annotated[int, count()]
    stop_at: Annotated[float | None, nullable(ACCURACY)]
    """Validation sequence accuracy of every replica that ends the run early."""
    precision: Annotated[str, one_of("32-true", "64-true", "bf16-mixed")]
    accelerator: Annotated[str, one_of("auto", "cpu", "gpu", "cuda")] = "auto"
    compile: Annotated[bool | str, accepting("auto, true or false", lambda x: x == "auto" or isinstance(x, bool))] = (
        "auto"
    )
    cuda_graphs: Annotated[bool, SWITCH] = False


@dataclass(frozen=True)
class Packing:
    """The group ``pack``."""

    max_replicas: Annotated[
        int | str, accepting("auto, or an integer of at least 1", lambda x: x == "auto" or is_count(x))
    ] = "auto"
    part_of: Annotated[str | None, nullable(accepting("seeds", lambda x: isinstance(x, str)))] = None
    """All seeds of the job of which this run trains some; written by us, never typed."""


@dataclass(frozen=True)
class Checkpointing:
    """The group ``checkpoint``."""

    every_n_epochs: Annotated[int, count()] = 1
    keep_last: Annotated[bool, SWITCH] = True
    """Whether ``last.ckpt`` of a finished run stays, so that a longer run can continue from its end."""
    keep: Annotated[Keep, Keep.read] = NOTHING
    """After which epochs the weights are kept for good."""
