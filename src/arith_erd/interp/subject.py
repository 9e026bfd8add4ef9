"""A trained network with all that a probe needs to question it."""

from dataclasses import dataclass

from ..models.network import Network
from ..splits import Split
from ..tasks import Task


@dataclass(frozen=True)
class Subject:
    """One trained replica."""

    name: str
    """Of the run, or of the file that the weights came from."""
    seed: int
    task: Task
    network: Network
    """In evaluation mode."""
    split: Split | None
    """None where it is not known which examples were held out: weights without a run."""
