"""Build the causal model that an option names. An option may also be a causal model itself."""

from collections.abc import Callable

import numpy as np

from ..errors import bad_value, unknown_name
from ..interp.algorithms import ALGORITHMS, PREFIX
from ..interp.causal_model import CausalModel
from ..tasks import Task
from .class_spec import ClassSpec

CausalModelSpec = str | CausalModel | Callable[[Task], CausalModel] | None


def build_causal_model(task: Task, spec: CausalModelSpec, key: str) -> CausalModel:
    """Build the causal model of the option ``key``; None stands for the task's own model.

    Args:
        spec: a causal model; the name of an algorithm of `interp.algorithms`; a function or class that makes one from
            the task; or its dotted name in a trusted package.
    """
    if spec is None:
        return CausalModel(task)
    if isinstance(spec, CausalModel):
        if not spec.task.same_as(task):
            raise bad_value(key, spec.task, f"a causal model of the network's task, {task}")
        return spec
    if isinstance(spec, str) and "." not in spec:
        if spec not in ALGORITHMS:
            raise unknown_name(key, spec, ALGORITHMS)
        return ALGORITHMS[spec].causal_model(task)
    model: object = ClassSpec.from_name(key, spec).build(CausalModel, task) if isinstance(spec, str) else spec(task)
    if not isinstance(model, CausalModel) or model.task is not task:
        raise bad_value(key, spec, "a function or class that makes a CausalModel of the given task")
    return model


def build_prefix_model(task: Task, spec: CausalModelSpec, key: str) -> CausalModel | None:
    """Build the causal model of a key (None for None), or raise a `UserError` if it lacks the variable ``prefix``."""
    if spec is None:
        return None
    model = build_causal_model(task, spec, key)
    if not np.array_equal(model.table.get(PREFIX, []), model.examples.answer):
        accepted = f"a causal model with the variable {PREFIX}, the number that the answer's tokens spell"
        raise bad_value(key, spec, accepted)
    return model
