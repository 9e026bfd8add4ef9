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
from ..errors import bad_value
from ..interp.causal_model import CausalModel, CausalModelSpec, build_causal_model
from ..interp.hooked import Hooked
from ..interp.interventions import Intervention, Replace
from ..tasks import Examples, Task
from .card import USER_MODEL
from .place_value import ColumnSums, PrefixedExamples, rule

BATCH = 256
DRAWS = 2  # of random prefixes for each example
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
def read_prefixes(model: Hooked, examples: Examples, seed: int = 0) -> tuple[Array, list[PrefixResponse]]:
    """The tokens (N, m) after right prefixes, and the readings after each intervention."""
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
    for _ in range(DRAWS):
        bits = torch.randint(ZERO, ONE + 1, (len(answer_in), width - 1), generator=generator)
        readings += read(1, torch.cat([answer_in[:, :1], bits.to(answer_in)], dim=1), "random", "random")
    return tokens(answer_in), readings


def predicted_bits(
    columns: ColumnSums, sample: Sample, prefix: Array, user_model: CausalModel | None = None
) -> dict[str, Array]:
    """Bit t (N,) that each hypothesis expects after the prefixes (N, t); -1 where it expects neither.

    ``prompt_only`` ignores the prefix, ``local_carry`` is the `rule` ``prefix_carry``, and ``user_model`` is what a
    user's causal model gives. The others are rules that round a number: they tie where that is half-integral, as after
    a single inverted r_(t-1). A multiplication has ``prompt_only`` and ``remainder`` only.
    """
    t, examples = prefix.shape[1], sample.examples
    inputs = PrefixedExamples(columns, t, examples.a, examples.b, from_digits(prefix))
    names = ("remainder", "graded_carry", "local_remainder") if columns.adds else ("remainder",)
    expected = {name: np.where(inputs.c % 1 == 0.5, -1, rule(name, inputs)) for name in names}
    expected["prompt_only"] = sample.values["answer"][:, t]
    if columns.adds:
        expected["local_carry"] = rule("prefix_carry", inputs)
    if user_model is not None:
        values = user_model.values(examples, {PREFIX: inputs.prefix})
        expected[USER_MODEL] = user_model.answers(values)[:, t]
    return expected


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
