"""Names of positions: what stands at each place of a prompt and of an answer."""

from ..tasks import Task


def prompt_names(task: Task) -> list[str]:
    """``a0 a1 + b0 b1`` for two bits in reverse order, ``a1 a0 + b1 b0`` in plain order; index 0 is the lowest bit."""
    places = range(task.bits) if task.prompt_order == "reverse" else range(task.bits - 1, -1, -1)
    return [*(f"a{i}" for i in places), task.operator, *(f"b{i}" for i in places)]


def answer_names(task: Task) -> list[str]:
    """``r0 r1 r2`` for an answer of three bits in reverse order: position t predicts ``r_t``."""
    places = range(task.width) if task.completion_order == "reverse" else range(task.width - 1, -1, -1)
    return [f"r{i}" for i in places]


def input_names(task: Task) -> list[str]:
    """What the decoder reads where it predicts `answer_names`: ``<s> r0 r1``."""
    return ["<s>", *answer_names(task)[:-1]]
