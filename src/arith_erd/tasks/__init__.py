"""The tasks. The files in ``conf/task/`` name them in ``_target_``."""

from .arithmetic import Add, Add3, AddScratchpad, ModAdd, Mul, RandomOutput, Sub
from .examples import Examples, Layout
from .task import POSITION_ENCODINGS, SAMPLE_SIZE, Task

__all__ = ["POSITION_ENCODINGS", "SAMPLE_SIZE", "Add", "Add3", "AddScratchpad", "Examples", "Layout"]
__all__ += ["ModAdd", "Mul", "RandomOutput", "Sub", "Task"]
