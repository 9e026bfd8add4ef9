"""Responses of a network's answer to wrong prefixes, and the answers that algorithms predict after them.

For each position t >= 1 the answer tokens before t are changed, under teacher forcing::

    flip            r_(t-1) inverted: is the network sensitive to it?
    mean_ablation   its embedding replaced by the mean of the embeddings of 0 and 1: does the network need it?
    far             one earlier token inverted, each in turn
    random          all tokens of the prefix drawn at random
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..digits import ONE, ZERO, Array, from_digits
from ..interp.algorithms import ALGORITHMS, PREFIX, ColumnSums
from ..interp.causal_model import CausalModel
from ..interp.hooked import Hooked
from ..interp.interventions import Intervention, Replace
from ..interp.sites import layers
from ..models.network import Network
from ..tasks import Examples, Task

USER_MODEL = "user_model"  # name of a user's causal model among the algorithms
PREFIX_BATCH_SIZE = 256
PREFIXES_PER_EXAMPLE = 2  # random prefixes for each example


@dataclass(frozen=True)
class PrefixedExamples:
    """N pairs of operands, each with a prefix of t bits as a number: arrays (N,).

    ``c`` is the carry into bit t under the hypothesis that position t computes it by subtraction: it subtracts the
    prefix from the operand bits below t. Some algorithms in `interp.algorithms` round ``c``.
    """

    column_sums: ColumnSums
    t: int
    a: Array
    b: Array
    prefix: Array

    @property
    def operands(self) -> Array:
        return np.stack([self.a, self.b], axis=1)

    @cached_property
    def _sums(self) -> Array:
        return self.column_sums(self.operands)

    @property
    def lower_sum(self) -> Array:
        """The sum (N,) of the columns below t, each at its place value."""
        return from_digits(self._sums[:, : self.t])

    @property
    def column_sum(self) -> Array:
        """The sum (N,) of column t without a carry."""
        return self._sums[:, self.t]

    @property
    def c(self) -> npt.NDArray[np.float64]:
        """``(lower_sum - prefix) / 2^t`` (N,): the carry into bit t if the prefix is right."""
        return (self.lower_sum - self.prefix) / 2**self.t

    @property
    def fraction(self) -> Array:
        """The fraction of c (N,), in units of 2^-t."""
        return (self.lower_sum - self.prefix) % 2**self.t

    def predict_by(self, model: CausalModel) -> Array:
        """Bit t (N,) of the answers that a causal model gives if its variable ``prefix`` is set."""
        return model.answers(model.values(self.operands, {PREFIX: self.prefix}))[:, self.t]


class PrefixResponse(NamedTuple):
    """The most likely tokens at a position after a change of its prefix."""

    position: int
    change: str
    tokens: Array  # (N,)
    prefix: Array | None  # bits (N, t); None for ``mean_ablation``


def run_with_prefixes(model: Hooked, examples: Examples, seed: int = 0) -> tuple[Array, list[PrefixResponse]]:
    """The most likely tokens (N, m) after right prefixes, and each position's responses to changes of its prefix."""
    prompt, answer_in = model.inputs(examples)
    width = answer_in.shape[1]
    bit_tokens = torch.tensor([[ZERO], [ONE]], device=prompt.device).expand(2, width)
    _, cache = model.run_with_cache((prompt[:1].expand(2, -1), bit_tokens), ["dec.embed"])
    mean = cache["dec.embed"].mean(dim=0)  # (m, C)

    encoder = layers(model.sites, "enc")[-1:] if isinstance(model.network, Network) else []  # reads the prompt alone
    resumed = model.resume_from(encoder[0], (prompt, answer_in), PREFIX_BATCH_SIZE) if encoder else None

    def run(answer_in: Tensor, *interventions: Intervention) -> Array:
        if resumed is not None:
            return np.asarray(resumed(interventions, answer_in).argmax(dim=-1).cpu())
        return np.asarray(model.run((prompt, answer_in), interventions, PREFIX_BATCH_SIZE).argmax(dim=-1).cpu())

    def read(first_position: int, answer_in: Tensor, change: str, change_of_later: str) -> Iterator[PrefixResponse]:
        tokens, bits = run(answer_in), (answer_in[:, 1:] - ZERO).cpu().numpy()
        for t in range(first_position, width):
            yield PrefixResponse(t, change if t == first_position else change_of_later, tokens[:, t], bits[:, :t])

    responses: list[PrefixResponse] = []
    for t in range(1, width):
        flipped = answer_in.clone()
        flipped[:, t] = ZERO + ONE - flipped[:, t]
        ablated = run(answer_in[:, : t + 1], Replace("dec.embed", t, mean[t]))
        responses += read(t, flipped, "flip", "far")
        responses.append(PrefixResponse(t, "mean_ablation", ablated[:, t], None))
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same prefixes on every device
    for _ in range(PREFIXES_PER_EXAMPLE):
        bits = torch.randint(ZERO, ONE + 1, (len(answer_in), width - 1), generator=generator)
        responses += read(1, torch.cat([answer_in[:, :1], bits.to(answer_in)], dim=1), "random", "random")
    return run(answer_in), responses


def causal_models(task: Task, names: Iterable[str], causal_model: CausalModel | None = None) -> dict[str, CausalModel]:
    """The models of the algorithms of these names, and your own ``causal_model`` as `USER_MODEL`."""
    models = {name: ALGORITHMS[name].causal_model(task) for name in names}
    return models if causal_model is None else models | {USER_MODEL: causal_model}


def predict_bits(models: Mapping[str, CausalModel], inputs: PrefixedExamples) -> dict[str, Array]:
    """Algorithm -> bit t (N,) that it predicts; -1 for a tie, where it rounds a half-integral c.

    If only r_(t-1) is inverted, c is always half-integral.
    """
    ties = inputs.c % 1 == 0.5
    return {
        name: np.where(ties & (name in ALGORITHMS and ALGORITHMS[name].rounds), -1, inputs.predict_by(model))
        for name, model in models.items()
    }
