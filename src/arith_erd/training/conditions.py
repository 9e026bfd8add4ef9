"""Under which conditions each part of a run was computed: device, threads, compilation, versions.

A run that is resumed under other conditions is correct, but equals an uninterrupted one only up to rounding.
"""

import json
from typing import Any

import lightning as L

from ..errors import printable
from ..system.machine import device_name, versions
from .module import LitPack

Part = dict[str, Any]
"""``{"from_step": 41, "compiled": False, "device": "AMD EPYC, 2 threads", "torch": "2.13.0", "commit": ...}``."""


class Conditions(L.Callback):
    """Keeps in every checkpoint the parts in which a run was computed.

    Attributes:
        now: the conditions of this process: all that can change the last digits, beside the configuration.
        parts: in order, each with the step that it began at.
    """

    def __init__(self) -> None:
        self.device = ""
        self.versions: dict[str, str | None] = {}
        self.now: dict[str, Any] = {}
        self.parts: list[Part] = []

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, LitPack)
        self.device, self.versions = device_name(trainer.strategy.root_device), versions()
        self.now = {"compiled": pl_module.pack.compiled, "device": self.device, **self.versions}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        step = trainer.global_step
        if not self.parts and step:  # a checkpoint of a version that kept no conditions
            self.parts.append({"from_step": 0})
        if not self.parts or {**self.parts[-1], "from_step": None} != {**self.now, "from_step": None}:
            self.parts.append({"from_step": step, **self.now})

    def state_dict(self) -> dict[str, Any]:
        return {"parts": self.parts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises TypeError or ValueError for a state that cannot go into ``summary.json``."""
        self.parts = [dict(part) for part in json.loads(json.dumps(state_dict["parts"]))]

    @property
    def varied(self) -> list[str]:
        """The names of the conditions that changed between two parts, as far as they were recorded."""
        return [name for name in self.now if len({str(part[name]) for part in self.parts if name in part}) > 1]

    def describe(self) -> str:
        """One line for people: what changed."""
        changes = [f"{name} " + ", then ".join(str(part.get(name, "?")) for part in self.parts) for name in self.varied]
        parts = printable(f"{len(self.parts)} parts ({'; '.join(changes)})")
        return f"trained in {parts}: equal to a run in one part up to rounding only"
