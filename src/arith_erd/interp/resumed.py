"""Run a network once up to a site, then from there on as often as wanted, with other interventions each time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .hooks import gradients, intervening, split
from .interventions import Intervention
from .sites import check_sites, layer_of, layers

if TYPE_CHECKING:
    from .hooked import Hooked


class Resumed:
    """The forward pass from a site on; see `Hooked.resume_from`.

    The layers that end before the site gives its output run once, and so does the site if it is a layer. Afterwards
    their outputs stand in for them. A layer that runs more than once in a forward pass is run every time.
    """

    @torch.no_grad()
    def __init__(self, model: "Hooked", site: str, inputs: Sequence[Tensor], batch_size: int) -> None:
        check_sites(model.sites, [site], "the site to resume from")
        self.model, self.site = model, site
        self.done: set[str] = set()  # layers that do not run again, and sites outside the layers that precede them
        self.batches = [(batch, tensors, self._known(tensors)) for batch, tensors in split(inputs, batch_size)]

    def __call__(self, interventions: Sequence[Intervention] = ()) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        Raises:
            UserError: for a site that has run already.
        """
        done = self.done
        for one in interventions:
            if one.site != self.site and (layer_of(self.model.sites, one.site) or one.site) in done:
                raise UserError(f"site {one.site}: has run already where the network resumes from {self.site}")
        logits = []
        with gradients(interventions):
            for batch, tensors, known in self.batches:
                outputs = {self.model.sites[layer]: output for layer, output in known.items()}
                with _standing_in(outputs), intervening(self.model, interventions, batch, tensors):
                    logits.append(self.model.network(*tensors))
        return torch.cat(logits)

    def _known(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """What the layers give that end before the site, or with it: layer -> output."""
        whole, ended = layers(self.model.sites), list[tuple[str, Any]]()
        outside = [name for name in self.model.sites if layer_of(self.model.sites, name) is None]

        def ends(name: str) -> Callable[..., None]:
            return lambda module, given, output: ended.append((name, output))

        with ExitStack() as stack:
            for name in {*whole, *outside, self.site}:
                stack.callback(self.model.sites[name].register_forward_hook(ends(name)).remove)
            self.model.network(*tensors)
        names = [name for name, _ in ended]
        before = ended[: names.index(self.site) + 1] if self.site in names else []
        known = {name: output for name, output in before if name in whole and names.count(name) == 1}
        last = max(map(names.index, known), default=-1)
        self.done = {*known, *(name for name in outside if name in names[:last])}
        return known


@contextmanager
def _standing_in(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Within the context modules give these outputs: a hook would not skip the computation."""
    try:
        for module, output in outputs.items():
            vars(module)["forward"] = lambda *given, output=output, **named: output
        yield
    finally:
        for module in outputs:
            vars(module).pop("forward", None)
