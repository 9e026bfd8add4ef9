"""The tasks, one file each. The files in ``conf/task/`` name them in ``_target_``."""

from .add import Add
from .mul import Mul
from .random_output import RandomOutput
from .task import Examples, Task

__all__ = ["Add", "Examples", "Mul", "RandomOutput", "Task"]
