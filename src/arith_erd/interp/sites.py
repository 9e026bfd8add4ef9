"""Sites: named places inside a network, such as the layers ``enc.3`` and ``dec.3``, or ``dec.3.attn.pattern``.

Names follow TransformerLens: ``dec.3.resid_mid``, ``dec.3.mlp.post``, ... ``logits``. A site is a module with an output
(B, T, ...), or (B, nh, T, S) for attention patterns. A site *owns* some of the T positions: in the encoder all P of the
prompt, elsewhere the m that predict the answer. In a decoder-only network the prompt precedes these in all layers but
the last.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Self

from ..errors import UserError, bad_value, did_you_mean, unknown_name

if TYPE_CHECKING:
    from ..tasks import Task

OWNED_BY_NAME = {"enc": "prompt", "dec": "answer", "logits": "answer"}  # the first part of a site's name


def layers(sites: Iterable[str], stack: str = "enc|dec") -> list[str]:
    """The sites that are whole layers, in the order in which they run: ``enc.1`` .. ``dec.6``."""
    return [site for site in sites if re.fullmatch(rf"({stack})\.[0-9]+", site)]


def residual_stream(sites: Iterable[str], stack: str = "enc|dec") -> list[str]:
    """The residual stream after each sublayer: ``enc.1.resid_mid``, ``enc.1``, .. ``dec.1.resid_mid_cross``, .."""
    return [site for site in sites if re.fullmatch(rf"({stack})\.[0-9]+(\.resid_mid(_cross)?)?", site)]


def enclosing_layer(sites: Iterable[str], site: str) -> str | None:
    """The layer that contains a site: ``dec.3`` for ``dec.3`` and ``dec.3.mlp.post``; None outside the layers."""
    layer = re.match(r"(enc|dec)\.[0-9]+(?![^.])", site)
    return layer[0] if layer and layer[0] in sites else None


def require_sites(available: Iterable[str], sites: Iterable[str], key: str = "site") -> None:
    """Raise a `UserError` that lists the network's sites, if it lacks one of these."""
    available = list(available)
    if unknown := [site for site in sites if not isinstance(site, str) or site not in available]:
        whole_layers, listed = layers(available), ", ".join(available) or "none"
        if whole_layers:
            names = {site.removeprefix(f"{enclosing_layer(available, site)}.") for site in available}
            inner = sorted(names - {*whole_layers})
            listed = f"{', '.join(whole_layers)}; in layers or outside them: {', '.join(inner) or 'none'}"
        hint = did_you_mean(our_site(str(unknown[0])), available)
        raise UserError(f"{key}={', '.join(map(str, unknown))}: this model has {listed}{hint}")


def expand_sites(available: Iterable[str], wanted: str | Iterable[str] | None, key: str = "site") -> list[str]:
    """The sites that names and patterns select.

    ``all``, or None, selects the layers, or every site of a network without layers. In a pattern ``*`` stands for any
    part between two dots. A name or a pattern that selects no site is a `UserError`.

    >>> expand_sites(["enc.1", "dec.1", "dec.1.attn.z", "dec.2", "dec.2.attn.z"], ["dec.*.attn.z", "enc.1"])
    ['dec.1.attn.z', 'dec.2.attn.z', 'enc.1']
    """
    available = list(available)
    if wanted in ("all", None):
        return layers(available) or available
    found: list[str] = []
    for name in wanted if isinstance(wanted, Iterable) and not isinstance(wanted, str) else [wanted]:
        pattern = re.escape(str(name)).replace(r"\*", "[^.]*")
        found += [site for site in available if re.fullmatch(pattern, site)] or [name]
    require_sites(available, found, key)
    return [*dict.fromkeys(found)]


def our_site(name: str) -> str:
    """Translate a site name of TransformerLens or PyTorch, whose layers count from 0, into ours.

    >>> our_site("blocks.2.hook_resid_post"), our_site("blocks.0.attn.hook_pattern"), our_site("hook_embed")
    ('dec.3', 'dec.1.attn.pattern', 'dec.embed')
    """
    layer = r"^(?:.*\.)?(?:blocks|layers|h|encoder|decoder)\.(\d{1,4})(?![^.])"
    name = re.sub(layer, lambda found: f"{'enc' if 'enc' in found[0] else 'dec'}.{int(found[1]) + 1}", name)
    name = re.sub(r"^(embed|ln_final)\b.*", r"dec.\1", name.replace("hook_", ""))
    name = re.sub(r"\b(attn|mlp)\.out$", r"\1_out", re.sub(r"^unembed\b.*", "logits", name))
    return re.sub(r"(?<=\d)\.(resid_post|out)$", "", name)


@dataclass(frozen=True)
class SitePositions:
    """The T positions of a site's output (B, T, ...): ``num_prompt`` of the prompt, then ``num_own`` that it owns.

    ``owned`` says whether it owns positions of the ``prompt`` or of the ``answer``; empty if T alone decides.
    """

    site: str
    num_prompt: int
    num_own: int
    owned: str = ""

    @classmethod
    def from_lengths(cls, site: str, length: int, prompt: int, answer: int, owned: str = "") -> Self:
        """``length`` is T. The network has read ``prompt`` = P prompt tokens, then ``answer`` <= m answer tokens."""
        owned_or_usual = owned or OWNED_BY_NAME.get(site.partition(".")[0], "")
        owns_all = owned_or_usual == "prompt" or length < answer or (length == prompt and owned != "answer")
        own = length if owns_all else answer
        return cls(site, length - own, own, owned_or_usual)

    def hold_only_prompt(self, task: "Task") -> bool:
        """Whether all positions belong to the prompt, as in an encoder."""
        as_many = self.num_own == task.prompt_length and self.num_own != task.answer_length
        return self.owned == "prompt" or (as_many and not self.owned)

    def by_name(self, task: "Task") -> dict[int | str, int]:
        """Name -> index among all T. Names are those of the prompt (encoder), the answer, or both (decoder-only).

        If T is some other number, the last m positions are the answer's. If T < m, the tokens are unknown, and the
        names are numbers.
        """
        length = self.num_prompt + self.num_own
        names: list[int | str] = [*(task.prompt_names if self.hold_only_prompt(task) else task.answer_names)]
        if length == task.prompt_length + task.answer_length:
            names = [*task.prompt_names, *task.answer_names]
        if len(names) > length or (self.owned == "prompt" and len(names) < length):
            names = [*range(length)]
        return {name: length - len(names) + i for i, name in enumerate(names)}

    def index(self, position: int | str, task: "Task | None" = None) -> int:
        """The index of a position among the site's own: 2 for ``r2`` at ``dec.*``, 0 for ``a0`` at ``enc.*``.

        Prompt positions before them are negative: -1 is the last prompt token. A name needs the task. Other positions
        raise a `UserError`.
        """
        if isinstance(position, Integral) and not isinstance(position, bool):  # numpy's too
            if position < 0:
                raise bad_value("position", position, "0 or more, or a name such as r0")
            index = int(position)
        elif task is None:
            raise bad_value("position", position, "a number, since the network has no task")
        else:
            task.require_token_names()
            before, own = task.prompt_names, task.answer_names
            if self.hold_only_prompt(task):
                before, own = [], before
            if position not in (names := [*before, *own]):
                raise unknown_name("position", position, names, f"one of {', '.join(names)} at {self.site}")
            index = own.index(position) if position in own else before.index(position) - len(before)
        if not -self.num_prompt <= index < self.num_own:
            others = f" or of the {self.num_prompt} of the prompt before them" * bool(self.num_prompt)
            holds = ", which does not hold the prompt" if index < 0 else ""
            raise bad_value("position", position, f"one of the {self.num_own} positions of {self.site}{others}{holds}")
        return index

    def scored(self, position: int | str | None, task: "Task") -> list[int]:
        """The answer positions whose tokens score an interchange at a position (None: at all positions)."""
        task.require_token_names()
        every = list(range(task.width))
        if position is None or self.hold_only_prompt(task) or self.num_own != task.width:
            return every
        index = self.index(position, task)
        return [index] if index >= 0 else every
