"""Ask a network for the next digit after every prefix of the answer, right or wrong, without sampling.

The prefixes form a tree: the root, then ``0`` and ``1``, then ``00``, ``10``, .. A forward pass runs a tree in place of
a sequence: a node stands at the position of its last token, and attends to the prompt, its ancestors and itself. So the
keys and values of a prefix serve all longer ones. Attention within a large tree costs more than it saves. The first
digits are therefore written out, and a tree of `LEVELS` levels follows each choice of them: seven-bit addition has 16
trees with 15 nodes, and 4 nodes before each, for each pair of operands.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..digits import START, ZERO, Array, decoder_tokens, to_digits
from ..errors import UserError
from ..models import NanoGPT, Transformer
from ..models.positions import DigitPlaceEmbedding, IndexEmbedding, Rotary
from ..system.isolation import isolated
from ..tasks import Examples, Task
from .hooked import Hooked
from .hooks import PURE_PARTS

LEVELS = 4
MAX_PREFIXES = 2**22  # for all examples together: 16,384 pairs of seven-bit operands have 4.2 million
PATHS_PER_BATCH = 128
Digits = npt.NDArray[np.uint8]


def answers_after_prefixes(model: Hooked, examples: Examples) -> list[Digits]:
    """The digit t that a network writes after each prefix of t digits, for t = 0, 1, ..: arrays (N, base^t).

    Columns are the numbers that the prefixes spell, first digit lowest: ``1 0`` is 1 and ``0 1`` is 2. We take the most
    likely digit, even if another token is likelier.

    Raises:
        UserError: for a network other than our Transformer and nanoGPT, or one with other modules inside; a task whose
            answers have several lengths or other tokens than digits; and more than `MAX_PREFIXES` prefixes.
    """
    task, network = model.task, model.network
    # Any other part may compute from a token's index, which is not its place in a tree.
    parts = [part for part in network.modules() if not type(part).__module__.startswith(PURE_PARTS)]
    if other := [*parts, *([] if type(network) in (NanoGPT, Transformer) else [network])]:
        accepted = "our Transformer or nanoGPT as it is, or num_completions=, which asks any network"
        raise UserError(f"{model.name}: has a {type(other[0]).__name__}; expected {accepted}")
    _require_digits_only(task)
    base, width = task.base, task.width
    count = len(examples) * sum(base**t for t in range(width))
    if count > MAX_PREFIXES:
        accepted = f"at most {MAX_PREFIXES:,}, or num_completions=2, which takes some of them"
        raise UserError(f"task={task.name}: has {count:,} prefixes of its answers; expected {accepted}")
    before = max(0, width - LEVELS)  # digits before each tree
    lengths, last, ancestors = _tree(base, before, width)
    with isolated(False, network):
        digits = np.concatenate([*_run(model, examples, before, lengths, last, ancestors)])  # (N, base^before, K)
    answers = [digits[:, : base**t, t] for t in range(before)]
    for t in range(before, width):
        level = digits[:, :, lengths == t]  # (N, first digits, further digits)
        answers.append(level.swapaxes(1, 2).reshape(len(examples), -1))
    return answers


def answers_along(model: Hooked, examples: Examples, numbers: Array) -> list[Digits]:
    """The digit t that a network writes after the first t digits of numbers (N, K), for t = 0, 1, ..: arrays (N, K).

    The k-th forward pass reads the k-th number of each example as its answer. So this works for any network.
    """
    task = model.task
    _require_digits_only(task)
    found = []
    for column in numbers.T:
        answer_in = decoder_tokens(column, task.width - 1, task.base)
        inputs = [torch.as_tensor(x, device=model.device) for x in (examples.prompt, answer_in)]
        with torch.no_grad():
            found.append(model.run(inputs)[..., ZERO : ZERO + task.base].argmax(-1).to(torch.uint8).cpu().numpy())
    return list(np.stack(found, axis=-1).swapaxes(0, 1))


def _require_digits_only(task: Task) -> None:
    if task.layout.padded or task.answer_length != task.width:
        raise UserError(f"task={task.name}: expected answers of one length, with a token for each digit")


def _tree(base: int, before: int, width: int) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Each node's prefix length (K,) and last digit (K,), and whether node j is node i or its ancestor, (K, K).

    The last digits of the nodes before the tree are 0 here: `_run` fills in the first ``before`` digits.
    """
    levels = [np.arange(base ** max(0, t - before)) for t in range(width)]  # numbers that the further digits spell
    lengths, numbers = np.repeat(np.arange(width), [*map(len, levels)]), np.concatenate(levels)
    further = np.maximum(lengths - before, 0)
    ancestors = (lengths <= lengths[:, None]) & (numbers[:, None] % base**further == numbers)
    return lengths, numbers // base ** np.maximum(further - 1, 0), ancestors


def _run(
    model: Hooked, examples: Examples, before: int, lengths: Array, last: Array, ancestors: npt.NDArray[np.bool_]
) -> Iterator[Digits]:
    """The digits (B, base^before, K) of a batch of examples at each node of their trees."""
    network, base, device = model.network.eval(), model.task.base, model.device
    paths = base**before
    tokens = torch.as_tensor(np.tile(last + ZERO, (paths, 1)), device=device)  # (paths, K)
    tokens[:, 0] = START
    tokens[:, 1 : before + 1] = torch.as_tensor(to_digits(np.arange(paths), before, base) + ZERO)
    tables, decoder = _tables(model, lengths, ancestors), _Decoder(network)
    for prompt in torch.as_tensor(examples.prompt, device=device).split(max(1, PATHS_PER_BATCH // paths)):
        memory = network.encode(prompt).repeat_interleave(paths, 0)
        logits = functional_call(decoder, tables, (memory, tokens.repeat(len(prompt), 1)))  # (B paths, K, V)
        digits = logits[..., ZERO : ZERO + base].argmax(-1).to(torch.uint8)
        yield digits.unflatten(0, (len(prompt), paths)).cpu().numpy()


class _Decoder(nn.Module):
    """A decoder as a separate module, since `functional_call` calls ``forward``."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        return self.network.decode(memory, answer_in)


def _tables(model: Hooked, lengths: Array, ancestors: npt.NDArray[np.bool_]) -> dict[str, Tensor]:
    """The decoder's mask and its tables of positions, with a row for each node in place of one for each position."""
    network, device = model.network, model.device
    num_prompt = len(network.causal_mask) - model.task.answer_length  # prompt positions in the decoder's own sequence
    own, whole = (
        torch.cat([torch.arange(n), n + torch.as_tensor(lengths)]).to(device)
        for n in (num_prompt, model.task.prompt_length)
    )
    mask = torch.zeros(len(own), len(own), dtype=torch.bool, device=device)
    mask[:num_prompt] = True
    mask[:num_prompt, :num_prompt] = network.causal_mask[:num_prompt, :num_prompt]
    mask[num_prompt:, num_prompt:] = torch.as_tensor(~ancestors, device=device)
    tables = {"network.causal_mask": mask}
    for name, module in network.named_modules(prefix="network"):
        if isinstance(module, Rotary):
            tables |= {f"{name}.cos": module.cos[own], f"{name}.sin": module.sin[own]}
        elif isinstance(module, IndexEmbedding):
            tables[f"{name}.weight"] = module.weight[own]
        elif isinstance(module, DigitPlaceEmbedding):
            tables[f"{name}.places"] = module.places[whole]
    return tables
