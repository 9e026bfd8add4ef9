"""Interventions: changes of a site's output while a network runs (`Hooked.run`), and the hooks that make them.

Each names a site and a position, and changes the output there::

    Replace("dec.2", "r1", other["dec.2"])       replace it by a value: a patch, a mean, a sample from another run
    Steer("dec.2", "r1", 3 * direction)          move it along a direction
    Interchange("dec.2", "r1", subspace, source) replace it by another run's value, within a subspace
    Erase("dec.2", None, eraser)                 erase a concept

A position is an index among the positions that the site owns (`interp.sites`), a name such as ``a0`` or ``r1``, or None
or ``all`` for all of them. Answer position t predicts ``r_t``. `Replace` says which values fit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError, require_integer
from ..models.network import position_axis
from .sites import check_sites, layer_of, layers, num_own_positions

if TYPE_CHECKING:
    from .hooked import Hooked

Position = int | str | None


@dataclass(frozen=True, eq=False)
class Subspace:
    """Orthonormal directions (d, r) of activations, at one position (d = C) or all concatenated (d = k * C)."""

    directions: Tensor

    def __post_init__(self) -> None:
        columns = torch.as_tensor(self.directions)
        object.__setattr__(self, "directions", columns)  # NumPy arrays are accepted too
        exact = columns.detach().double()
        if exact.dim() != 2 or not torch.allclose(exact.mT @ exact, torch.eye(exact.shape[1]).to(exact), atol=1e-3):
            shape = tuple(exact.shape)
            raise UserError(f"Subspace: received directions of shape {shape}; expected orthonormal columns (d, r)")

    def __repr__(self) -> str:
        return f"Subspace(rank {self.rank} of {len(self.directions)})"

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    def interchange(self, base: Tensor, source: Tensor) -> Tensor:
        """``base + (source - base) @ directions @ directions.T``, (N, d), (N, d) -> (N, d)."""
        if base.shape[-1] != len(self.directions):
            raise UserError(f"{self}: does not fit activations of size {base.shape[-1]}")
        directions = self.directions.to(base)
        return base + (source - base) @ directions @ directions.T


@dataclass(frozen=True)
class InterventionContext:
    """The examples of a batch, ``rows`` of ``num_examples``, and the position to change."""

    rows: slice
    num_examples: int
    position: int | None = None  # index among the site's own positions, None for all
    num_prompt: int = 0  # positions of the prompt that precede the site's own
    num_own: int = 0

    def align(self, value: Tensor, x: Tensor) -> Tensor:
        """The part of a value that belongs to activations x, broadcastable to them; a `UserError` if none fits."""
        try:
            value = torch.as_tensor(value)  # NumPy arrays are accepted too
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"a value of type {type(value).__name__}: expected a tensor") from None
        if self.position is not None and value.dim() == x.dim() + 1:
            cached = value.shape[1]  # more than the site's own where a run is shorter than the one that was cached
            with_prompt = cached != self.num_own and cached >= self.num_prompt + self.num_own
            index = self.position + self.num_prompt * with_prompt
            if not 0 <= index < cached:
                accepted = "expected (N, C), that position alone"
                raise UserError(f"a value of {cached} positions does not have the position to change; {accepted}")
            value = value[:, index]
        per_example = value.dim() == x.dim() and value.shape[0] == self.num_examples
        value = value[self.rows] if per_example else value
        sizes = zip(reversed(value.shape), reversed(x.shape), strict=False)
        some_examples = value.dim() == x.dim() and not per_example and len(value) != 1
        if some_examples or value.dim() > x.dim() or any(size not in (1, wanted) for size, wanted in sizes):
            raise UserError(f"a value of shape {tuple(value.shape)} does not fit activations {tuple(x.shape)}")
        return value.to(x)


@dataclass(frozen=True, eq=False)
class Intervention:
    """Base class: changes the output of a site at one position, or at all that the site owns."""

    site: str
    position: Position

    def __post_init__(self) -> None:
        if self.position == "all":  # as tables of results call it
            object.__setattr__(self, "position", None)

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        """Activations (B, C) at one position, or (B, k, C) at all -> changed activations of the same shape."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Replace(Intervention):
    """Replace the output of a site by ``value``.

    Args:
        value: (N, C) at one position, (N, k, C) at all, or a whole cached site, of which its own position is taken.
            Without the axis of examples it is used for all of them.
    """

    value: Tensor

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        return context.align(self.value, x).expand_as(x)


@dataclass(frozen=True, eq=False)
class Steer(Intervention):
    """Add ``value`` to the output of a site; shapes as in `Replace`."""

    value: Tensor

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        return x + context.align(self.value, x)


@dataclass(frozen=True, eq=False)
class Interchange(Intervention):
    """Replace the output of a site, or its part in a subspace, by that of another run (Geiger et al., 2021).

    Without a source it only says where to intervene; `of` adds the activations of the source runs.
    """

    subspace: Subspace | None = None
    source: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.subspace, Tensor | np.ndarray):
            object.__setattr__(self, "subspace", Subspace(self.subspace))
        if not isinstance(self.subspace, Subspace | None):
            raise UserError(
                f"Interchange: received a {type(self.subspace).__name__}; expected a Subspace, or directions"
            )

    def of(self, cache: Mapping[str, Tensor]) -> Self:
        """A copy with the source runs' activations at the site."""
        if self.site not in cache:
            raise UserError(f"Interchange at {self.site}: the cache lacks this site; it has {', '.join(cache)}")
        return replace(self, source=cache[self.site])

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        if self.source is None:
            raise UserError(f"Interchange at {self.site}: has no source; add one with .of(cache)")
        source = context.align(self.source, x).expand_as(x)
        if self.subspace is None:
            return source
        return self.subspace.interchange(x.flatten(1), source.flatten(1)).view_as(x)


@dataclass(frozen=True, eq=False)
class Erase(Intervention):
    """Apply ``eraser``, such as one of `leace`, to the output of a site, with positions concatenated to (N, k * C)."""

    eraser: Callable[[Tensor], Tensor]

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        erased = self.eraser(x.flatten(1))
        if not isinstance(erased, Tensor) or erased.shape != (len(x), x[0].numel()):
            returned = tuple(erased.shape) if isinstance(erased, Tensor) else f"a {type(erased).__name__}"
            raise UserError(f"Erase at {self.site}: the eraser returned {returned}; expected {(len(x), x[0].numel())}")
        return erased.view_as(x)


def as_interventions(interventions: Intervention | Sequence[Intervention]) -> Sequence[Intervention]:
    """One or several interventions as a list; a `UserError` for anything else."""
    interventions = [*interventions] if isinstance(interventions, Iterable) else [interventions]
    for other in interventions:
        if not isinstance(other, Intervention):
            accepted = "an intervention, such as Replace(site, position, value)"
            raise UserError(f"interventions: received {other!r}; expected {accepted}")
    return interventions


def split_batches(
    inputs: Sequence[Tensor], batch_size: int
) -> Iterator[tuple[InterventionContext, tuple[Tensor, ...]]]:
    """Split inputs (N, ...) into batches, each with its `InterventionContext`."""
    require_integer("batch_size", batch_size, 1)
    count = len(inputs[0])
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        yield InterventionContext(rows, count), tuple(x[rows] for x in inputs)


@contextmanager
def edit_outputs(
    modules: Mapping[str, nn.Module], edits: Mapping[str, Callable[[Tensor], Tensor | None]], prepend: bool = True
) -> Iterator[None]:
    """Within the context a forward pass continues with edited outputs (B, T, ...) of sites; None leaves one as it is.

    Edits that are prepended are seen by hooks that are already there.
    """
    ran = set[str]()

    def hook(site: str, module: nn.Module, inputs: Any, output: Any) -> Any:
        if site in ran:
            raise UserError(f"site {site}: ran twice in this forward pass; expected a submodule that runs once")
        ran.add(site)
        x, axis = output if isinstance(output, Tensor) else output[0], position_axis(module)
        if (x := edits[site](x.movedim(axis, 1) if x.dim() > 1 else x)) is None:
            return None
        return x.movedim(1, axis) if isinstance(output, Tensor) else (x.movedim(1, axis), *output[1:])

    with ExitStack() as stack:
        for site in edits:
            stack.callback(modules[site].register_forward_hook(partial(hook, site), prepend=prepend).remove)
        yield
    if missed := [site for site in edits if site not in ran]:
        raise UserError(f"site {missed[0]}: did not run in this forward pass; expected a submodule that does")


@contextmanager
def cache_outputs(modules: Mapping[str, nn.Module], sites: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Within the context a forward pass stores the outputs of sites (B, T, ...), after interventions."""
    outputs: dict[str, Tensor] = {}
    with edit_outputs(modules, {site: partial(outputs.__setitem__, site) for site in sites}, prepend=False):
        yield outputs


@contextmanager
def recorded_outputs(modules: Mapping[str, nn.Module], sites: Iterable[str]) -> Iterator[dict[str, list[Any]]]:
    """Within the context: site -> its outputs, one for each time that it runs; sites in the order in which they end."""
    outputs: dict[str, list[Any]] = defaultdict(list)

    def hook(site: str, module: nn.Module, inputs: Any, output: Any) -> None:
        outputs[site].append(output)

    with ExitStack() as stack:
        for site in sites:
            stack.callback(modules[site].register_forward_hook(partial(hook, site)).remove)
        yield outputs


@contextmanager
def stored_outputs(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Within the context these modules return stored outputs and compute nothing; hooks on them still run."""
    with ExitStack() as stack:
        for module, output in outputs.items():
            stack.enter_context(patch.object(module, "forward", lambda *_, output=output, **__: output))
        yield


def run_batch(
    model: "Hooked", interventions: Sequence[Intervention], batch: InterventionContext, inputs: Sequence[Tensor]
) -> Tensor:
    """Run one batch with the interventions, in order, and return its logits (B, m, V)."""
    check_sites(model.sites, [intervention.site for intervention in interventions])
    by_module: dict[nn.Module, list[Intervention]] = defaultdict(list)  # which several sites may name
    for intervention in interventions:
        by_module[model.sites[intervention.site]].append(intervention)

    def edit(interventions: Sequence[Intervention], x: Tensor) -> Tensor:
        require_layout(interventions[0].site, x, inputs)
        for intervention in interventions:
            site, position = intervention.site, intervention.position
            own = num_own_positions(site, x.shape[1], inputs)
            prompt = x.shape[1] - own
            index = None if position is None else model.index(site, position, own)
            if index is not None and not -prompt <= index < own:
                positions = f"{own} positions and {prompt} of the prompt before them"
                raise UserError(f"position {position}: {site} has {positions}")
            place = slice(prompt, None) if index is None else prompt + index
            at_position = replace(batch, position=index, num_prompt=prompt, num_own=own)
            edited = x.clone()
            edited[:, place] = intervention.change(x[:, place], at_position)
            x = edited
        return x

    with edit_outputs(model.sites, {several[0].site: partial(edit, several) for several in by_module.values()}):
        logits: Any = model.network(*inputs)
    if not isinstance(logits, Tensor):
        raise UserError(f"{model.name}: returned a {type(logits).__name__}; expected logits, one tensor (N, m, V)")
    return logits


def require_layout(site: str, x: Tensor, inputs: Sequence[Tensor]) -> None:
    """Raise a `UserError` unless an output has examples on axis 0 and positions on axis 1."""
    if x.dim() < 3 or len(x) != len(inputs[0]):
        accepted = f"expected {len(inputs[0])} examples on axis 0, positions on axis 1, and channels"
        raise UserError(f"site {site}: its output has the shape {tuple(x.shape)}; {accepted}")


class PartialForward:
    """The forward pass from a site on, or the whole pass for None; see `Hooked.resume_from`.

    Layers that finish before the site, and the site itself if it is a layer, run once: their outputs are stored and
    used again. A layer that runs more than once in a forward pass is run every time.
    """

    @torch.no_grad()
    def __init__(self, model: "Hooked", site: str | None, inputs: Sequence[Tensor], batch_size: int) -> None:
        check_sites(model.sites, [site] if site else [])
        self.model, self.site = model, site
        self.finished: set[str] = set()  # layers that do not run again, and sites outside the layers that precede them
        batches = split_batches(inputs, batch_size)
        self.batches = [(batch, tensors, self._run_up_to(site, tensors) if site else {}) for batch, tensors in batches]

    def __call__(self, interventions: Intervention | Sequence[Intervention] = ()) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them."""
        interventions = as_interventions(interventions)
        for site in (intervention.site for intervention in interventions):
            if site != self.site and (layer_of(self.model.sites, site) or site) in self.finished:
                raise UserError(f"site {site}: runs before {self.site}, where the network resumes")
        fields = [field for intervention in interventions for field in vars(intervention).values()]
        values = [field.directions if isinstance(field, Subspace) else field for field in fields]
        differentiable = any(isinstance(value, Tensor) and value.requires_grad for value in values)
        logits = []
        with torch.set_grad_enabled(torch.is_grad_enabled() and differentiable):
            for batch, tensors, outputs in self.batches:
                with stored_outputs({self.model.sites[layer]: output for layer, output in outputs.items()}):
                    logits.append(run_batch(self.model, interventions, batch, tensors))
        return torch.cat(logits)

    def _run_up_to(self, site: str, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """Layer -> output, for the layers that end before the site or with it."""
        sites = self.model.sites
        stored = layers(sites) or [*sites]  # every site of a network without layers
        outside = [name for name in sites if layer_of(sites, name) is None]
        with recorded_outputs(sites, {*stored, *outside, site}) as outputs:
            self.model.network(*tensors)
        names = [*outputs]
        before = names[: names.index(site) + 1] if site in names else []
        ran_once = [name for name in before if name in stored and len(outputs[name]) == 1]
        last = max(map(names.index, ran_once), default=0)
        self.finished = {*ran_once, *(name for name in outside if name in names[:last])}
        return {name: outputs[name][0] for name in ran_once}
