"""The tasks, those like addition in one file. The files in ``conf/task/`` name them in ``_target_``."""

from .add import Add, Add3, AddScratchpad, Sub
from .examples import Examples, Layout
from .mod_add import ModAdd
from .mul import Mul
from .random_output import RandomOutput
from .task import POSITION_ENCODINGS, SAMPLE_SIZE, Task

__all__ = ["POSITION_ENCODINGS", "SAMPLE_SIZE", "Add", "Add3", "AddScratchpad", "Examples", "Layout"]
__all__ += ["ModAdd", "Mul", "RandomOutput", "Sub", "Task"]
