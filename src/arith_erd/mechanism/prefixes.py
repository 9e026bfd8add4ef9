"""Give a network a wrong prefix. Does its next token change?

The interventions run on examples of a task, teacher forced, at each position t >= 1, on answer tokens before t::

    flip            r_(t-1) inverted: is the network sensitive to it?
    mean_ablation   its embedding replaced by the mean of the embeddings of 0 and 1: does the network need it?
    far             one earlier token inverted, each in turn
    random          all tokens of the prefix drawn at random
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..bits import ONE, ZERO, Array, from_digits
from ..errors import UserError, bad_value
from ..interp.causal_model import CausalModel, CausalModelSpec, build_causal_model
from ..interp.hooked import Hooked
from ..interp.interventions import Intervention, Replace
from ..tasks import Examples, Task
from .card import USER_MODEL

BATCH = 256
PREFIX = "prefix"


@dataclass(frozen=True)
class Sample:
    """N examples with two operands in base 2, and their variables: (N,) or, bit by bit, (N, m); ``answer`` is one."""

    causal_model: CausalModel
    examples: Examples
    values: Mapping[str, Array]

    @classmethod
    def of(cls, causal_model: CausalModel, operands: Array) -> "Sample":
        values = causal_model.values(operands)
        return cls(
            causal_model, causal_model.task.examples(*operands.T), values | {"answer": causal_model.answers(values)}
        )

    @classmethod
    def without_replacement(cls, causal_model: CausalModel, count: int, rng: np.random.Generator) -> "Sample":
        """Different examples, or all of them if there are no more."""
        table = causal_model.examples.operands
        return cls.of(causal_model, table if count >= len(table) else table[rng.permutation(len(table))[:count]])

    @classmethod
    def with_replacement(cls, causal_model: CausalModel, count: int, rng: np.random.Generator) -> "Sample":
        return cls.of(causal_model, rng.integers(0, causal_model.task.limit, (2, count)).T)

    def __len__(self) -> int:
        return len(self.examples)


def require_binary(task: Task) -> None:
    """Refuse, with a `UserError`, tasks without two binary operands or whose answer is not written lowest bit first."""
    if task.base != 2 or task.shape != (2**task.bits,) * 2:
        operands = f"{task.num_operands} operand(s) below {task.limit} in base {task.base}"
        raise UserError(f"task={task.name}: has {operands}; expected two operands in base 2, of any value")
    if task.completion_order != "reverse":
        raise bad_value("task.completion_order", task.completion_order, "reverse, least significant bit first")


@dataclass(frozen=True)
class PrefixResponse:
    """The likeliest tokens (N,) at one position after an intervention.

    ``prefix`` (N, t) are the bits that the network got; None for ``mean_ablation``.
    """

    position: int
    intervention: str
    tokens: Array
    prefix: Array | None


@torch.no_grad()
def read_prefixes(
    model: Hooked, examples: Examples, draws: int = 2, seed: int = 0
) -> tuple[Array, list[PrefixResponse]]:
    """The tokens (N, m) after right prefixes, and the readings after each intervention; ``draws`` are random."""
    prompt, answer_in = model.inputs(examples)
    width = answer_in.shape[1]
    both = torch.tensor([[ZERO], [ONE]], device=prompt.device).expand(2, width)
    _, cache = model.run_with_cache((prompt[:1].expand(2, -1), both), ["dec.embed"])
    mean = cache["dec.embed"].mean(dim=0)  # (m, C)

    def tokens(given: Tensor, *interventions: Intervention) -> Array:
        likeliest: Array = model.run((prompt, given), interventions, batch_size=BATCH).argmax(dim=-1).cpu().numpy()
        return likeliest

    def read(first: int, given: Tensor, intervention: str, later: str) -> Iterator[PrefixResponse]:
        found, bits = tokens(given), (given[:, 1:] - ZERO).cpu().numpy()
        for t in range(first, width):
            yield PrefixResponse(t, intervention if t == first else later, found[:, t], bits[:, :t])

    readings: list[PrefixResponse] = []
    for t in range(1, width):
        flipped = answer_in.clone()
        flipped[:, t] = ZERO + ONE - flipped[:, t]
        ablated = tokens(answer_in[:, : t + 1], Replace("dec.embed", t, mean[t]))
        readings += read(t, flipped, "flip", "far")
        readings.append(PrefixResponse(t, "mean_ablation", ablated[:, t], None))
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same prefixes on every device
    for _ in range(draws):
        bits = torch.randint(ZERO, ONE + 1, (len(answer_in), width - 1), generator=generator)
        readings += read(1, torch.cat([answer_in[:, :1], bits.to(answer_in)], dim=1), "random", "random")
    return tokens(answer_in), readings


def prefix_error(sample: Sample, prefix: Array) -> np.ndarray:
    """Errors (N,) of prefixes (N, t): (right - given) / 2^t, in (-1, 1), the error of the remainder in units of 2^t.

    A machine that rounds the remainder gives the other bit above 1/2. A single inverted r_(t-1) gives 1/2: a tie.
    """
    t = prefix.shape[1]
    return (from_digits(sample.values["answer"][:, :t]) - from_digits(prefix)) / 2.0**t


def predicted_bits(sample: Sample, prefix: Array, user_model: CausalModel | None = None) -> dict[str, Array]:
    """Bit t (N,) that each hypothesis expects after the prefixes (N, t); -1 where it expects neither.

    ``prompt_only`` ignores the prefix. ``local_carry`` (addition only) reads r_(t-1): with the operand bits x, y at
    t - 1, the carry is [x + y + (1 - r_(t-1)) >= 2]. ``remainder`` takes the parity of round((S - p) / 2^t), with p the
    number that the prefix spells.

    Two more, for addition, put numbers in between. With c = (a mod 2^t + b mod 2^t - p) / 2^t, which is the carry if
    the prefix is right: ``graded_carry`` takes a_t xor b_t xor [c > 1/2]. ``local_remainder`` takes the parity of
    round(a_t + b_t + c), clipped to 0 to 3, in the last bit to 1: the numbers of a right prefix. ``user_model`` is
    what a user's causal model gives.
    """
    t = prefix.shape[1]
    answer, off = sample.values["answer"], prefix_error(sample, prefix)
    tie = np.abs(off) == 0.5
    expected = {"prompt_only": answer[:, t], "remainder": np.where(tie, -1, answer[:, t] ^ (np.abs(off) > 0.5))}
    if sample.causal_model.adds:
        a, b, xor, carry = (sample.values[name] for name in ("a_bit", "b_bit", "xor", "carry"))
        number = carry[:, t] + off
        total = np.round(a[:, t] + b[:, t] + number).clip(0, 1 if t == answer.shape[1] - 1 else 3).astype(np.int64)
        expected["local_carry"] = xor[:, t] ^ (a[:, t - 1] + b[:, t - 1] + 1 - prefix[:, t - 1] >= 2)
        expected["graded_carry"] = np.where(tie, -1, xor[:, t] ^ (number > 0.5))
        expected["local_remainder"] = np.where(tie, -1, total % 2)
    if user_model is not None:
        expected[USER_MODEL] = after_prefix(user_model, sample.examples, prefix)
    return expected


def after_prefix(causal_model: CausalModel, examples: Examples, prefix: Array) -> Array:
    """Bit t (N,) of a causal model's answers after the prefixes (N, t)."""
    values = causal_model.values(examples, {PREFIX: from_digits(prefix)})
    return causal_model.answers(values)[:, prefix.shape[1]]


def with_prefix(task: Task, given: CausalModelSpec, key: str) -> CausalModel | None:
    """The causal model that a key gives, None for None; a `UserError` if no ``prefix`` can be set in it."""
    if given is None:
        return None
    model = build_causal_model(task, given, key)
    if not np.array_equal(model.table.get(PREFIX, []), model.examples.answer):
        accepted = f"a causal model with the variable {PREFIX}, the number that the answer's tokens spell"
        raise bad_value(key, given, accepted)
    return model


def no_ties(expected: Mapping[str, Array]) -> Array:
    """Where (N,) every hypothesis expects a bit."""
    clear: Array = np.all([bits >= 0 for bits in expected.values()], axis=0)
    return clear


def agreement(bits: Array, expected: Array) -> np.ndarray:
    """1 where bits (N,) are the expected ones, 0 where they are not, 1/2 where a hypothesis ties (-1)."""
    return np.where(expected < 0, 0.5, bits == expected)


def strata(sample: Sample, t: int) -> dict[str, Array]:
    """Masks (N,) of the strata: ``all``; for addition also ``propagate`` (a_(t-1) != b_(t-1)) and ``settled``."""
    masks = {"all": np.ones(len(sample), dtype=bool)}
    if sample.causal_model.adds:
        propagate = sample.values["xor"][:, t - 1] == 1
        masks |= {"propagate": propagate, "settled": ~propagate}
    return masks
