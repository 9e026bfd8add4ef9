"""Forward hooks that read and change what sites give, and networks that resume at a site."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UserError, require_integer
from ..models.network import position_axis
from .interventions import BatchSlice, Intervention, Subspace
from .sites import check_sites, layer_of, layers, num_positions

if TYPE_CHECKING:
    from .hooked import Hooked

Hook = Callable[[nn.Module, Any, Any], Any]


def batches_of(inputs: Sequence[Tensor], batch_size: int) -> Iterator[tuple[BatchSlice, tuple[Tensor, ...]]]:
    """Inputs (N, ...) in batches, each with the rows that it holds."""
    require_integer("batch_size", batch_size, 1)
    count = len(inputs[0])
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        yield BatchSlice(rows, count), tuple(x[rows] for x in inputs)


@contextmanager
def caching(modules: Mapping[str, nn.Module], sites: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Within the context a forward pass stores what the sites give (B, T, ...), after interventions."""
    outputs: dict[str, Tensor] = {}

    def keep(site: str) -> Hook:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            _require_first(site, site in outputs)
            outputs[site] = _by_position(module, output)

        return hook

    with ExitStack() as stack:
        for site in sites:
            stack.callback(modules[site].register_forward_hook(keep(site)).remove)
        yield outputs


@contextmanager
def intervening(
    model: "Hooked", interventions: Sequence[Intervention], batch: BatchSlice, inputs: Sequence[Tensor]
) -> Iterator[None]:
    """Within the context a forward pass of the batch is intervened on, in order."""
    sites = [intervention.site for intervention in interventions]
    check_sites(model.sites, sites)
    ran = set[Hook]()
    hooks = [_changing(model, intervention, batch, inputs, ran) for intervention in interventions]
    with ExitStack() as stack:
        for site, hook in reversed([*zip(sites, hooks, strict=True)]):  # each in front of those there, also of reading
            stack.callback(model.sites[site].register_forward_hook(hook, prepend=True).remove)
        yield
    require_ran(sites, [site for site, hook in zip(sites, hooks, strict=True) if hook in ran])


def _changing(
    model: "Hooked", intervention: Intervention, batch: BatchSlice, inputs: Sequence[Tensor], ran: set[Hook]
) -> Hook:
    site, position = intervention.site, intervention.position

    def hook(module: nn.Module, given: Any, output: Any) -> Any:
        x = _by_position(module, output)
        _require_first(site, hook in ran)
        require_layout(site, x, inputs)
        own = num_positions(site, x.shape[1], inputs)
        lead = x.shape[1] - own
        at = None if position is None else model.index(site, position, own)
        if at is not None and not -lead <= at < own:
            held = f"{own} positions and {lead} of the prompt before them"
            raise UserError(f"position {position}: {site} has {held}")
        place = slice(lead, None) if at is None else lead + at
        changed = x.clone()
        changed[:, place] = intervention.change(x[:, place], replace(batch, at=at, before=lead, own=own))
        ran.add(hook)
        changed = changed.movedim(1, position_axis(module))
        return changed if isinstance(output, Tensor) else (changed, *output[1:])

    return hook


def _by_position(module: nn.Module, output: Any) -> Tensor:
    """What a module gives, or the first of what it gives, with positions on axis 1."""
    x: Tensor = output if isinstance(output, Tensor) else output[0]
    return x.movedim(position_axis(module), 1) if x.dim() > 1 else x


def logits_of(model: "Hooked", inputs: Sequence[Tensor]) -> Tensor:
    """What the network gives, which must be one tensor."""
    logits: Any = model.network(*inputs)
    if not isinstance(logits, Tensor):
        raise UserError(f"{model.name}: gives a {type(logits).__name__}; expected logits, one tensor (N, m, V)")
    return logits


def _require_first(site: str, ran: bool) -> None:
    if ran:
        raise UserError(f"site {site}: ran twice in this forward pass; expected a submodule that runs once")


def require_ran(sites: Iterable[str], ran: Collection[str]) -> None:
    """Refuse, with a `UserError`, a site whose module did not run in a forward pass."""
    if missing := [site for site in sites if site not in ran]:
        raise UserError(f"site {missing[0]}: did not run in this forward pass; expected a submodule that does")


def require_layout(site: str, x: Tensor, inputs: Sequence[Tensor]) -> None:
    """Refuse, with a `UserError`, an output that has no axis of positions, or not the examples on axis 0."""
    if x.dim() < 3 or len(x) != len(inputs[0]):
        accepted = f"expected {len(inputs[0])} examples on axis 0, positions on axis 1, and channels"
        raise UserError(f"site {site}: its output has the shape {tuple(x.shape)}; {accepted}")


class PartialForward:
    """The forward pass from a site on, or the whole one for None; see `Hooked.resume_from`.

    Layers that finish before the site run once, and so does the site if it is a layer; their outputs are stored and
    used again. A layer that runs more than once in a forward pass is run every time.
    """

    @torch.no_grad()
    def __init__(self, model: "Hooked", site: str | None, inputs: Sequence[Tensor], batch_size: int) -> None:
        check_sites(model.sites, [site] if site else [])
        self.model, self.site = model, site
        self.done: set[str] = set()  # layers that do not run again, and sites outside the layers that precede them
        batches = batches_of(inputs, batch_size)
        self.batches = [(batch, x, self._known(site, x) if site else {}) for batch, x in batches]

    def __call__(self, interventions: Intervention | Sequence[Intervention] = ()) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        Raises:
            UserError: for a site that has run already.
        """
        done = self.done
        interventions = [interventions] if isinstance(interventions, Intervention) else interventions
        for site in (intervention.site for intervention in interventions):
            if site != self.site and (layer_of(self.model.sites, site) or site) in done:
                raise UserError(f"site {site}: has run already where the network resumes from {self.site}")
        fields = [x for intervention in interventions for x in vars(intervention).values()]
        values = [x.directions if isinstance(x, Subspace) else x for x in fields]
        wanted = any(isinstance(x, Tensor) and x.requires_grad for x in values)
        logits = []
        with torch.set_grad_enabled(torch.is_grad_enabled() and wanted):
            for batch, tensors, known in self.batches:
                outputs = {self.model.sites[layer]: output for layer, output in known.items()}
                with _forward_replaced(outputs), intervening(self.model, interventions, batch, tensors):
                    logits.append(logits_of(self.model, tensors))
        return torch.cat(logits)

    def _known(self, site: str, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """What the layers give that end before the site, or with it: layer -> output."""
        whole = layers(self.model.sites) or list(self.model.sites)  # every site of a network without layers
        ended = list[tuple[str, Any]]()
        outside = [name for name in self.model.sites if layer_of(self.model.sites, name) is None]

        def ends(name: str) -> Callable[..., None]:
            return lambda module, given, output: ended.append((name, output))

        with ExitStack() as stack:
            for name in {*whole, *outside, site}:
                stack.callback(self.model.sites[name].register_forward_hook(ends(name)).remove)
            self.model.network(*tensors)
        names = [name for name, _ in ended]
        before = ended[: names.index(site) + 1] if site in names else []
        known = {name: output for name, output in before if name in whole and names.count(name) == 1}
        last = max(map(names.index, known), default=0)
        self.done = {*known, *(name for name in outside if name in names[:last])}
        return known


@contextmanager
def _forward_replaced(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Within the context modules give these outputs: a hook would not skip the computation."""
    own = {module: vars(module)["forward"] for module in outputs if "forward" in vars(module)}
    try:
        for module, output in outputs.items():
            vars(module)["forward"] = lambda *given, output=output, **named: output
        yield
    finally:
        for module in outputs:
            vars(module).pop("forward", None)
        for module, forward in own.items():
            vars(module)["forward"] = forward
