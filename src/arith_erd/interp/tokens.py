"""Names of the positions of a prompt and of an answer."""

from ..tasks import Task


def prompt_names(task: Task) -> list[str]:
    """``a0 a1 + b0 b1`` for two digits in reverse order, ``a1 a0 + b1 b0`` in plain order; index 0 is the lowest.

    Names are unique: with three operands the operators are ``+1`` and ``+2``.
    """
    places = range(task.bits) if task.prompt_order == "reverse" else range(task.bits - 1, -1, -1)
    names = []
    for i, operand in enumerate(task.operand_names):
        if i:
            names.append(task.operator if task.operands == 2 else f"{task.operator}{i}")
        names += [f"{operand}{place}" for place in places]
    return names


def answer_names(task: Task) -> list[str]:
    """``r0 r1 r2`` for an answer of three digits in reverse order: position t predicts ``r_t``."""
    places = range(task.width) if task.completion_order == "reverse" else range(task.width - 1, -1, -1)
    return [f"r{i}" for i in places]


def input_names(task: Task) -> list[str]:
    """The decoder's input at each of `answer_names`: ``<s> r0 r1``."""
    return ["<s>", *answer_names(task)[:-1]]
