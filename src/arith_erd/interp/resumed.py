"""Run a network once up to a site, then from there on as often as wanted, with other interventions each time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.network import Network
from .hooks import gradients, intervening, reading, split
from .interventions import Intervention
from .sites import check_sites, layer_of, layers

if TYPE_CHECKING:
    from .hooked import Hooked

CHECKED = 16  # examples
Known = tuple[Tensor, Tensor]
"""The input of `encode` or of `decode`, and the output of the last layer that has run."""


class Resumed:
    """The forward pass from a site on; see `Hooked.resume_from`.

    What lies below the site runs once. The logits without an intervention are those of the whole network; where they
    are not, since layers do not run in the order of their names, every call runs the whole network.
    """

    @torch.no_grad()
    def __init__(self, model: "Hooked", site: str, inputs: Sequence[Tensor], batch_size: int) -> None:
        check_sites(model.sites, [site], "the site to resume from")
        self.model, self.site, self.encoder = model, site, site.startswith("enc.")
        self.batches = list(split(inputs, batch_size))
        layer = layer_of(model.sites, site)
        stack = [name for name in layers(model.sites) if layer and name[:4] == layer[:4]]
        self.below = stack[: stack.index(layer) + (site == layer)] if layer else []  # layers whose output is known
        self.above = stack[len(self.below) :]
        whole = not self.below or not isinstance(model.network, Network) or not self._runs_in_a_row()
        self.known = [None if whole else self._before(tensors) for _, tensors in self.batches]

    def __call__(self, interventions: Sequence[Intervention] = ()) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        Raises:
            UserError: for a site that has run already.
        """
        for one in interventions:
            if one.site != self.site and layer_of(self.model.sites, one.site) in self.below:
                raise UserError(f"site {one.site}: has run already where the network resumes from {self.site}")
        logits = []
        with gradients(interventions):
            for (batch, tensors), known in zip(self.batches, self.known, strict=True):
                with intervening(self.model, interventions, batch, tensors):
                    logits.append(self.model.network(*tensors) if known is None else self._after(tensors, known))
        return torch.cat(logits)

    def _runs_in_a_row(self) -> bool:
        """Whether the last known layer is enough to go on from there, tried on a few examples."""
        tensors = [x[:CHECKED] for x in self.batches[0][1]]
        logits: Tensor = self.model.network(*tensors)
        return torch.allclose(self._after(tensors, self._before(tensors)), logits, rtol=1e-4, atol=1e-4)

    def _before(self, tensors: Sequence[Tensor]) -> Known:
        network, (prompt, answer_in), last = self.model.network, tensors, self.below[-1]
        with reading(self.model, [last]) as outputs, _stand_in({self.model.sites[name]: _skip for name in self.above}):
            memory = network.encode(prompt)
            if not self.encoder:
                network.decode(memory, answer_in)
        return (prompt if self.encoder else memory), outputs[last]

    def _after(self, tensors: Sequence[Tensor], known: Known) -> Tensor:
        network, (memory, output) = self.model.network, known
        forwards: dict[nn.Module, Callable[..., Tensor]] = {self.model.sites[name]: _skip for name in self.below}
        forwards[self.model.sites[self.below[-1]]] = lambda *context, **options: output
        with _stand_in(forwards):
            logits: Tensor = network.decode(network.encode(memory) if self.encoder else memory, tensors[1])
        return logits


def _skip(x: Tensor, *context: Any, **options: Any) -> Tensor:
    return x


@contextmanager
def _stand_in(forwards: Mapping[nn.Module, Callable[..., Tensor]]) -> Iterator[None]:
    """Within the context these functions replace the forwards of modules: a hook would not skip the computation."""
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module in forwards:
            vars(module).pop("forward", None)
