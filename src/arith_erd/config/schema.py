"""The groups of a configuration as typed objects, and the values that each key accepts.

A dataclass lists all keys of its group and refuses others. A ``_target_``'s class refuses arguments; the tables below
check arguments that several classes share. An error quotes the type's description of the accepted values.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, StrictBool
from pydantic.dataclasses import dataclass as validated_dataclass

from ..errors import UserError
from ..runs.identity import NAME_DESCRIPTION, NAME_PATTERN
from ..tasks import POSITION_ENCODINGS
from ..tasks.task import MAX_ROWS
from .class_spec import ClassSpec

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True, defer_build=True)  # --help needs no validators
MAX_COUNT = 2**31 - 1  # the largest int32
MAX_NETWORK_SIZE = 4096  # channels, heads or layers: more than any machine holds
MAX_FLOAT = 1e38  # about what a 32-bit number holds


def parsed_by(read: Callable[[Any], Any]) -> PlainValidator:
    """A validator that applies ``read`` to plain YAML values and does not change objects."""
    return PlainValidator(lambda x: read(x) if x is None or isinstance(x, dict | list | str | int | float) else x)


def accepts(description: str, strict: bool | None = True, **limits: Any) -> Any:
    """Metadata of a type: the accepted values in words and as limits. A strict type does not parse text as a number."""
    return Field(description=description, strict=strict, **limits)


Count = Annotated[int, accepts(f"an integer of at least 1 and at most {MAX_COUNT}", ge=1, le=MAX_COUNT)]
Size = Annotated[int, accepts(f"an integer of at least 1 and at most {MAX_NETWORK_SIZE}", ge=1, le=MAX_NETWORK_SIZE)]
Switch = Annotated[bool, accepts("true or false")]
Positive = Annotated[float, accepts("a number above 0, at most 1e38", gt=0, le=MAX_FLOAT)]
NonNegative = Annotated[float, accepts("a number of at least 0, at most 1e38", ge=0, le=MAX_FLOAT)]
Fraction = Annotated[float, accepts("a number from 0 to below 1", ge=0, lt=1)]
KEEP_PATTERN = r"^(none|all|log|every:[1-9]\d{0,8})$"
Keep = Annotated[str, accepts("none, all, log, or every:K with K from 1, as every:10", pattern=KEEP_PATTERN)]
Name = Annotated[str, accepts(NAME_DESCRIPTION, pattern=f"^(?:{NAME_PATTERN})$")]

# Arguments of classes

TWO_FRACTIONS = accepts("two numbers from 0 to below 1, such as [0.9,0.98]", min_length=2, max_length=2)
NETWORK_ARGUMENTS: Mapping[str, Any] = {
    **dict.fromkeys(("d_model", "num_heads", "num_layers"), Size),
    **dict.fromkeys(("encoder", "attention", "feed_forward", "positional_encoding"), Switch),
    "dropout": Fraction,
    "positions": Annotated[Literal[POSITION_ENCODINGS], accepts(" or ".join(POSITION_ENCODINGS), None)],
}
OPTIMIZER_ARGUMENTS: Mapping[str, Any] = {
    "lr": Positive,
    "betas": Annotated[list[Fraction], TWO_FRACTIONS],
    "eps": Positive,
    "weight_decay": NonNegative,
    "momentum": Fraction,
}
SCHEDULER_ARGUMENTS: Mapping[str, Any] = {  # `checked_scheduler` tries the others
    "interval": Annotated[Literal["step", "epoch"], accepts("step or epoch", None)],
    "step_size": Count,
    "gamma": Positive,
}
LOSS_ARGUMENTS: Mapping[str, Any] = {
    "label_smoothing": Fraction,
    "weight": Positive,
    "strict": NonNegative,
    "site": Annotated[str, accepts("the name of a site, such as dec.1", min_length=1)],
    "target": Annotated[str, accepts("the name of a concept of the task, or of a variable", min_length=1)],
    "causal_model": Annotated[
        str | None, accepts("the name of an algorithm, a function or class of your own package, or null", min_length=1)
    ],
}
DIGITS_TOO: Mapping[str, Any] = {"strict": None, "coerce_numbers_to_str": True}  # in YAML such a name is a number
LOGGER_ARGUMENTS: Mapping[str, Any] = {  # W&B is slow to import, and its own check comes late
    "project": Annotated[
        str,
        accepts(
            r"a W&B project, text of 1 to 128 letters without / \ # ? % :",
            pattern=r"^[^/\\#?%:\n]{1,128}$",
            **DIGITS_TOO,
        ),
    ],
    "entity": Annotated[
        str | None, accepts("a W&B user or team, text without /, or null", pattern="^[^/]+$", **DIGITS_TOO)
    ],
    "mode": Annotated[Literal["offline", "online", "disabled"], accepts("offline or online or disabled", None)],
    "artifacts": Switch,
    "timeout": Annotated[float, accepts("seconds above 0", gt=0, le=MAX_FLOAT)],
}


def class_group(key: str, arguments: Mapping[str, Any]) -> PlainValidator:
    """A validator of a group of keys with a ``_target_``, some of whose arguments have types."""
    return parsed_by(lambda group: ClassSpec.from_group(key, group, arguments))


# Groups


@validated_dataclass(frozen=True, config=STRICT)
class AblationConfig:
    name: Name  # the model's options have its effect


def _parse_scheduler(group: Any) -> ClassSpec | None:
    if isinstance(group, Mapping) and "interval" not in group:
        raise UserError("model.scheduler.interval: missing; expected step or epoch")
    return None if group is None else ClassSpec.from_group("model.scheduler", group, SCHEDULER_ARGUMENTS)


@validated_dataclass(frozen=True, config=STRICT)
class ModelConfig:
    name: Name
    net: Annotated[ClassSpec, class_group("model.net", NETWORK_ARGUMENTS)]
    optimizer: Annotated[ClassSpec, class_group("model.optimizer", OPTIMIZER_ARGUMENTS)]
    gradient_clip: Annotated[float | None, accepts("a number above 0, at most 1e38, or null", gt=0, le=MAX_FLOAT)]
    """Largest norm of one replica's gradient."""
    scheduler: Annotated[ClassSpec | None, parsed_by(_parse_scheduler)] = None
    loss: Annotated[ClassSpec, class_group("model.loss", LOSS_ARGUMENTS)] = ClassSpec(
        "arith_erd.losses.CrossEntropy", key="model.loss._target_"
    )


@validated_dataclass(frozen=True, config=STRICT)
class DataConfig:
    batch_size: Count
    """Examples that one replica sees in a step."""
    examples: Annotated[int | None, accepts(f"an integer from 2 to {MAX_ROWS}, or null", ge=2, le=MAX_ROWS)] = None
    """Number of examples to draw from a task that is too large to list; None for the whole table."""


@validated_dataclass(frozen=True, config=STRICT)
class TrainerConfig:
    max_epochs: Count
    stop_at: Annotated[float | None, accepts("an accuracy from 0 to 1, or null", ge=0, le=1)]
    """Validation sequence accuracy of every replica that ends the run early."""
    precision: Annotated[Literal["32-true", "64-true", "bf16-mixed"], accepts("32-true or 64-true or bf16-mixed", None)]
    accelerator: Annotated[Literal["auto", "cpu", "gpu", "cuda"], accepts("auto or cpu or gpu or cuda", None)] = "auto"
    compile: Annotated[Literal["auto"] | StrictBool, accepts("auto, true or false", None)] = "auto"
    cuda_graphs: Switch = False


@validated_dataclass(frozen=True, config=STRICT)
class PackConfig:
    max_replicas: Annotated[Literal["auto"] | Count, accepts("auto, or an integer of at least 1", None)] = "auto"
    part_of: Annotated[str | None, accepts("seeds, or null")] = None
    """All seeds of the job, if this run trains only some of them; written by us, never typed."""


@validated_dataclass(frozen=True, config=STRICT)
class CheckpointConfig:
    every_n_epochs: Count = 1
    keep_last: Switch = True
    """Whether ``last.ckpt`` of a finished run stays, so that a longer run can continue from its end."""
    keep: Keep = "none"
    """The epochs whose weights are kept for good."""
