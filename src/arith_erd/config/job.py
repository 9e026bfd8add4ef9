"""Jobs: configurations as typed objects. The module `read` makes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError, bad_value
from ..runs import Run, find_run, matching
from ..runs.plan import plan_packs
from ..seeds import format_seeds
from ..splits import Split
from ..tasks import Task
from .build import Factory
from .groups import Ablation, Checkpointing, Data, Model, Packing, Training

if TYPE_CHECKING:
    from ..models.network import Network


@dataclass(frozen=True)
class Job:
    """One run, or the several that its seeds become (`packs`)."""

    seeds: tuple[int, ...]
    task: Task = field(compare=False)
    split: Split = field(compare=False)
    model: Model
    ablation: Ablation
    data: Data
    trainer: Training
    pack: Packing
    checkpoint: Checkpointing
    names: Mapping[str, str]
    """Of the chosen task and split."""
    logger: Factory
    runs_dir: Path
    resolved: dict[str, Any] = field(repr=False)
    """The configuration itself: what ``config.yaml`` holds and the name of the run directory hashes."""
    overwrite: bool = False
    """Train anew what has been trained; the old run is kept until the new one has finished."""
    at: Run | None = None
    """Where it is trained, if not in the directory of its name."""

    @cached_property
    def run(self) -> Run:
        """The directory of the run, whether it is there or not."""
        return self.at or find_run(self.runs_dir, self.resolved)

    @property
    def name(self) -> str:
        """Of the run, wherever it is trained."""
        return find_run(self.runs_dir, self.resolved).name

    @property
    def title(self) -> str:
        """``add, random, transformer``."""
        return ", ".join((*self.names.values(), self.model.name))

    def network(self) -> "Network":
        """A new network, with initial weights from PyTorch's global generator. Loads torch."""
        from ..models.network import Network

        return self.model.net.build(Network, **_sizes(self.task))

    def packs(self, capacity: "Callable[[Job], int] | None" = None) -> "list[Job]":
        """A job for each pack that the seeds are trained in, at most ``pack.max_replicas`` seeds in each.

        Args:
            capacity: how many replicas the device holds; asked only where ``max_replicas`` is ``auto`` and no run
                that began earlier decides. Without it, the device is taken to hold all of them.
        """
        asked = None if capacity is None else partial(capacity, self)
        return [self._part(seeds) for seeds in plan_packs(self.seeds, self.pack.max_replicas, self._begun, asked)]

    def runs(self) -> list[Run]:
        """The directories of all packs, as far as that can be told without asking the device."""
        return [pack.run for pack in self.packs()]

    def with_seeds(self, seeds: tuple[int, ...]) -> "Job":
        """The same job for other seeds."""
        return replace(self, seeds=seeds, resolved=self.resolved | {"seed": format_seeds(seeds)})

    def _part(self, seeds: tuple[int, ...]) -> "Job":
        if seeds == self.seeds:
            return self
        pack = replace(self.pack, part_of=format_seeds(self.seeds))
        part = self.with_seeds(seeds)
        return replace(
            part, pack=pack, resolved=part.resolved | {"pack": self.resolved["pack"] | {"part_of": pack.part_of}}
        )

    def _begun(self, seeds: tuple[int, ...]) -> bool:
        """Whether these seeds, as a part of ours, have an epoch behind them."""
        part = self._part(seeds)
        if not (part.run.finished or part.run.checkpoint.is_file()):
            return False
        try:
            return bool(part.run.config().get("pack", {}).get("part_of") == part.pack.part_of)
        except (UserError, AttributeError):  # a configuration that cannot be read is refused later
            return False


@dataclass(frozen=True)
class ProbeJob:
    """One question: a probe, and the task or the networks it is about."""

    probe: Factory
    needs: tuple[str, ...]
    """Of `NEEDS`: what the probe is built with."""
    task: Task = field(compare=False)
    split: Split = field(compare=False)
    names: Mapping[str, str]
    """Of the chosen task and split."""
    typed: tuple[str, ...]
    """Overrides of ``task``, ``split``, ``model`` and ``seed`` that were typed: ``("task=mul", "task.bits=5")``."""
    run: str | None
    """A run directory, or a glob."""
    epochs: Literal["all"] | tuple[int, ...] | None
    """Of the run whose weights were kept: None for the last ones."""
    checkpoint: str | None
    reference: str | None
    """The name of a network written by hand."""
    seeds: tuple[int, ...]
    """Seeds of the reference networks."""
    model: Model | None
    """The model of a checkpoint with our parameter names."""
    out: Path | None
    runs_dir: Path
    logger: Factory
    resolved: dict[str, Any] = field(repr=False)

    def network(self) -> "Network":
        """A new network of ``model``, for the task. Loads torch."""
        from ..models.network import Network

        assert self.model is not None
        return self.model.net.build(Network, **_sizes(self.task))

    def runs(self) -> list[Run]:
        """No runs: a probe trains nothing."""
        return []

    def answer_name(self, epochs: Sequence[int] | Literal["all"]) -> str:
        """``errors``, ``errors-epoch=3`` or ``errors-epochs``: of an answer about the weights after these epochs."""
        one = f"-epoch={epochs[0]}" if epochs else ""
        return f"{self.probe.name}{'-epochs' if len(epochs) > 1 else one}"

    def take_folders(self, taken: set[Path]) -> None:
        """Add the folders of the answers to those that other jobs of a sweep have taken.

        Raises:
            UserError: if one of them is taken already, since the answers would overwrite one another.
        """
        own = self._folders()
        if clashes := sorted(own & taken):
            accepted = "a folder for each job, as out='answers/${probe.name}'"
            raise bad_value("out", self.out or "null", f"{accepted}; {clashes[0]} would get the answers of several")
        taken |= own

    def _folders(self) -> set[Path]:
        """Where the answers go. Empty if no run is named: then the folder's name follows from the weights."""
        runs = (matching(self.run) or [Path(self.run)]) if self.run else []
        if self.out:  # the answer of one run goes straight there, those of several side by side
            return {self.out / path.name for path in runs} if len(runs) > 1 else {self.out}
        return {path / "probes" / self.answer_name(self.epochs or ()) for path in runs}


def _sizes(task: Task) -> dict[str, int]:
    """The arguments that every network takes from its task."""
    return {"prompt_length": task.prompt_length, "answer_length": task.width, "vocab_size": task.vocab_size}
