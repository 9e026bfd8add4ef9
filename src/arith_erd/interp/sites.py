"""Sites: named places inside a network, such as the layers ``enc.3`` and ``dec.3``, or ``dec.3.attn.pattern``.

Names follow TransformerLens: ``dec.3.resid_mid``, ``dec.3.mlp.post``, ... ``logits``. A site is a module with an output
(B, T, ...), or (B, nh, T, S) for attention patterns. A site *owns* some of the T positions: in the encoder all P of the
prompt, elsewhere the m that predict the answer. In a decoder-only network the prompt precedes these in all layers but
the last.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from torch import Tensor  # loads torch, which a probe of a task does not need

    from ..tasks import Task


def layers(sites: Iterable[str], stack: str = "enc|dec") -> list[str]:
    """The sites that are whole layers, in the order in which they run: ``enc.1`` .. ``dec.6``."""
    return [site for site in sites if re.fullmatch(rf"({stack})\.[0-9]+", site)]


def residual_stream(sites: Iterable[str], stack: str = "enc|dec") -> list[str]:
    """The residual stream after each sublayer: ``enc.1.resid_mid``, ``enc.1``, .. ``dec.1.resid_mid_cross``, .."""
    return [site for site in sites if re.fullmatch(rf"({stack})\.[0-9]+(\.resid_mid(_cross)?)?", site)]


def layer_of(sites: Iterable[str], site: str) -> str | None:
    """The layer that contains a site: ``dec.3`` for ``dec.3`` and ``dec.3.mlp.post``; None outside the layers."""
    layer = re.match(r"(enc|dec)\.[0-9]+(?![^.])", site)
    return layer[0] if layer and layer[0] in sites else None


def require_sites(available: Iterable[str], sites: Iterable[str], key: str = "site") -> None:
    """Raise a `UserError`, with a list of the network's sites, if it lacks one of the wanted."""
    available = list(available)
    if unknown := [site for site in sites if not isinstance(site, str) or site not in available]:
        whole_layers = layers(available)
        inner = sorted({site.removeprefix(f"{layer_of(available, site)}.") for site in available} - {*whole_layers})
        listed = ", ".join(available) or "none"
        if whole_layers:
            listed = f"{', '.join(whole_layers)}; in layers and beside them: {', '.join(inner) or 'none'}"
        raise UserError(f"{key}={', '.join(map(str, unknown))}: this model has {listed}")


def holds_only_prompt(site: str, length: int | None, task: "Task") -> bool:
    """Whether the ``length`` positions of a site are those of the prompt alone, as in an encoder."""
    as_long = len(task.answer_names) != length == len(task.prompt_names)
    return site.startswith("enc.") or (as_long and not site.startswith("dec."))


def site_positions(site: str, length: int, task: "Task") -> dict[int | str, int]:
    """Each position of a site -> its place among the ``length`` positions T of the output.

    They are those of the prompt (in an encoder), of the answer, or of both (in a decoder-only network), by name. If T
    is another number, the last m are the answer's; fewer than m have no known token, and are numbered.
    """
    names: list[int | str] = [*task.prompt_names] if holds_only_prompt(site, length, task) else [*task.answer_names]
    if length == len(task.prompt_names) + len(task.answer_names):
        names = [*task.prompt_names, *task.answer_names]
    if len(names) > length or (site.startswith("enc.") and len(names) < length):
        names = [*range(length)]
    return {name: length - len(names) + i for i, name in enumerate(names)}


def num_prompt_positions(site: str, length: int, task: "Task") -> int:
    """How many of the ``length`` positions T of a site's output precede its own."""
    return length - _num_own(site, length, task.prompt_length, task.answer_length)


def num_own_positions(site: str, length: int, inputs: "Sequence[Tensor]") -> int:
    """How many of the ``length`` positions T of a site's output are its own: they are the last ones.

    ``inputs`` are those of the forward pass: prompt (B, P) and decoder's input (B, t), or those of another module.
    """
    answer = inputs[-1].shape[1] if len(inputs) == 2 and inputs[-1].dim() > 1 else length
    return _num_own(site, length, inputs[0].shape[1], answer)


def _num_own(site: str, length: int, prompt: int, answer: int) -> int:
    return length if site.startswith("enc.") or length < answer or length == prompt else answer
