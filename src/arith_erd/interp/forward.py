"""Forward passes with interventions, in batches: the whole network, or the rest of it from a site on."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import UserError, require_integer
from ..models.network import require_logits
from ..system.isolation import isolated
from .hooks import edit_outputs, record_outputs, replay_outputs
from .interventions import Intervention, InterventionContext, Subspace, as_interventions
from .sites import SitePositions, layer_of, layers, require_sites

if TYPE_CHECKING:
    from .hooked import Hooked


class Batch(NamedTuple):
    """A part of the inputs, and outputs of layers that need not run, by layer."""

    context: InterventionContext
    inputs: Sequence[Tensor]
    stored: Mapping[str, Any] = MappingProxyType({})


def split_batches(inputs: Sequence[Tensor], batch_size: int) -> Iterator[Batch]:
    """Split inputs (N, ...) into batches."""
    require_integer("batch_size", batch_size, 1)
    count = len(inputs[0])
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        yield Batch(InterventionContext(rows, count), [x[rows] for x in inputs])


def run_batches(
    model: "Hooked", interventions: Intervention | Sequence[Intervention], batches: Iterable[Batch]
) -> Tensor:
    """Logits (N, m, V) of all batches, with interventions in order. Gradients pass to values that require them."""
    interventions = as_interventions(interventions)
    fields = [field for intervention in interventions for field in vars(intervention).values()]
    values = [field.directions if isinstance(field, Subspace) else field for field in fields]
    values += [parameter for field in fields if isinstance(field, nn.Module) for parameter in field.parameters()]
    differentiable = any(isinstance(value, Tensor) and value.requires_grad for value in values)
    with isolated(torch.is_grad_enabled() and differentiable, model.network):
        return torch.cat([run_batch(model, interventions, batch) for batch in batches])


def run_batch(model: "Hooked", interventions: Sequence[Intervention], batch: Batch) -> Tensor:
    """Run one batch with the interventions, in order, and return its logits (B, m, V)."""
    require_sites(model.sites, [intervention.site for intervention in interventions])
    by_module: dict[nn.Module, list[Intervention]] = defaultdict(list)  # which several sites may name
    for intervention in interventions:
        by_module[model.sites[intervention.site]].append(intervention)

    def edit(interventions: Sequence[Intervention], x: Tensor) -> Tensor:
        for intervention in interventions:
            site, position, m = intervention.site, intervention.position, model.answer_length
            positions = positions_in_run(model, site, x, batch.inputs)
            prompt, own = positions.num_prompt, positions.num_own
            index = None if position is None else positions.index(position, model.task if m else None)
            place = slice(prompt, None) if index is None else prompt + index
            at_position = replace(batch.context, position=index, num_prompt=prompt, num_own=own, num_answer=m)
            edited = x.clone()
            try:
                edited[:, place] = intervention.apply(x[:, place], at_position)
            except UserError as error:
                raise UserError(f"{type(intervention).__name__} at {site}: {error}") from error
            x = edited
        return x

    edits = {several[0].site: partial(edit, several) for several in by_module.values()}
    stored = {model.sites[layer]: output for layer, output in batch.stored.items()}
    with replay_outputs(stored), edit_outputs(model.sites, edits), eager():
        logits: Any = model.network.eval()(*batch.inputs)
    if isinstance(logits, Tensor) and not (model.answer_length and len(batch.inputs) == 2):  # of any other module
        return logits
    return require_logits(model.name, logits, batch.inputs[-1])


def eager() -> AbstractContextManager[Any]:
    """Within the context modules of `torch.compile` run as they are written: compiled code ignores new hooks."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def positions_in_run(model: "Hooked", site: str, x: Tensor, inputs: Sequence[Tensor]) -> SitePositions:
    """The positions of an output x of a forward pass, with inputs prompt (B, P) and decoder's (B, t), or others.

    A `UserError` unless examples are on its axis 0 and positions on axis 1, or if t < m and T does not tell what the
    positions are.
    """
    if x.dim() < 3 or len(x) != len(inputs[0]):
        accepted = f"expected {len(inputs[0])} examples on axis 0, positions on axis 1 (1 if it has none), and channels"
        raise UserError(f"site={site}: its output has the shape {tuple(x.shape)}; {accepted}")
    length, prompt, told = x.shape[1], inputs[0].shape[1], model.positions.get(site, "")
    answer = inputs[-1].shape[1] if len(inputs) == 2 and inputs[-1].dim() > 1 else length
    unknown = answer < length < model.answer_length and length not in (prompt, prompt + answer)
    if unknown and not told and not site.startswith("enc."):  # in a whole run it owns them all, or the last
        received = f"{length} positions in a run of {answer} of the {model.answer_length} answer tokens"
        raise UserError(f"site={site}: has {received}; expected a run of all, which tells what the positions are")
    return SitePositions.from_lengths(site, length, prompt, answer, told)


class ResumedRun:
    """The forward pass from ``site`` on; see `Hooked.resume_from`.

    Layers that finish before the site, and the site itself if it is a layer, run once: their outputs are stored and
    used again. A layer that runs more than once in a forward pass is run every time.
    """

    def __init__(self, model: "Hooked", site: str, recorded: Sequence[tuple[Batch, dict[str, list[Any]]]]) -> None:
        self.model, self.site = model, site
        outputs = recorded[0][1]
        names = [*outputs]
        before = names[: names.index(site) + 1] if site in names else []
        replayed = [name for name in before if name in replayable(model) and len(outputs[name]) == 1]
        last = max(map(names.index, replayed), default=0)
        self.finished = {*replayed, *(name for name in outside_layers(model) if name in names[:last])}
        self.batches = [batch._replace(stored={name: x[name][0] for name in replayed}) for batch, x in recorded]

    def __call__(
        self, interventions: Intervention | Sequence[Intervention] = (), answer_in: Tensor | None = None
    ) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        ``answer_in`` are other decoder inputs (N, t), for a site before which no layer reads them.
        """
        interventions, batches = as_interventions(interventions), self.batches
        for site in (intervention.site for intervention in interventions):
            if site != self.site and (layer_of(self.model.sites, site) or site) in self.finished:
                raise UserError(f"site={site}: runs before {self.site}, where the network resumes")
        if answer_in is not None:
            batches = [batch._replace(inputs=(batch.inputs[0], answer_in[batch.context.rows])) for batch in batches]
        return run_batches(self.model, interventions, batches)


def resume_from_each(model: "Hooked", sites: Sequence[str], batches: Iterable[Batch]) -> dict[str, ResumedRun]:
    """Run once, and keep the outputs with which the network can go on from each of the sites."""
    require_sites(model.sites, sites)
    recorded = []
    with isolated(False, model.network):
        for batch in batches:
            wanted = {*replayable(model), *outside_layers(model), *sites}
            with record_outputs(model.sites, wanted) as outputs, eager():
                model.network.eval()(*batch.inputs)
            recorded.append((batch, outputs))
    return {site: ResumedRun(model, site, recorded) for site in sites}


def replayable(model: "Hooked") -> list[str]:
    """The layers, or every site of a network without layers."""
    return layers(model.sites) or [*model.sites]


def outside_layers(model: "Hooked") -> list[str]:
    return [name for name in model.sites if layer_of(model.sites, name) is None]
