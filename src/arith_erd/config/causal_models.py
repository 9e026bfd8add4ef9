"""Build the causal model that an option names; an option that is one is returned."""

from collections.abc import Callable

from ..errors import bad_value
from ..interp.causal_model import CausalModel
from ..tasks import Task
from .class_spec import ClassSpec

CausalModelSpec = str | CausalModel | Callable[[Task], CausalModel] | None


def build_causal_model(task: Task, spec: CausalModelSpec, key: str) -> CausalModel:
    """Build the causal model of the option ``key``; None stands for the task's own.

    Args:
        spec: a causal model; a function or class that makes one from the task; or its dotted name in a trusted
            package.
    """
    if spec is None:
        return CausalModel(task)
    if isinstance(spec, CausalModel):
        if not spec.task.same_as(task):
            raise bad_value(key, spec.task, f"a causal model of the network's task, {task}")
        return spec
    model: object = ClassSpec.from_name(key, spec).build(CausalModel, task) if isinstance(spec, str) else spec(task)
    if not isinstance(model, CausalModel) or model.task is not task:
        raise bad_value(key, spec, "a function or class that makes a CausalModel of the given task")
    return model
