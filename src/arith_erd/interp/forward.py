"""Forward passes with interventions, in batches: the whole network, or the rest of it from a site on."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import UserError, bad_value, require_integer, require_type
from ..models.network import require_logits
from ..system.isolation import isolated
from ..tasks import Task
from .hooks import edit_outputs, record_outputs, replay_outputs
from .interventions import Intervention, InterventionContext, Subspace, as_interventions
from .sites import SitePositions, layer_of, layers, require_sites


class SiteNetwork:
    """A network with named sites, and its task, if one is known; the arguments are those of `interp.hooked.Hooked`."""

    def __init__(
        self,
        network: nn.Module,
        sites: Mapping[str, nn.Module] | None,
        task: Task | None,
        name: str = "",
        positions: Mapping[str, Literal["prompt", "answer"]] | None = None,
    ) -> None:
        require_type("Hooked: network", network, nn.Module)
        network = getattr(network, "_orig_mod", network)  # of torch.compile
        if task is not None:
            require_type("Hooked: task", task, Task)
        if sites is None and not callable(getattr(network, "sites", None)):
            raise UserError(f"Hooked: {type(network).__name__} has no sites(); expected sites={{name: module}}")
        self.network: Any = network.eval()
        modules = network.sites() if sites is None else sites  # type: ignore[operator]
        if not isinstance(modules, Mapping):
            raise bad_value("sites", modules, "{name: submodule}")
        submodules = {id(module) for module in network.modules()}
        if outside := [site for site, module in modules.items() if id(module) not in submodules]:
            raise UserError(f"sites: {outside[0]}: expected a submodule of {type(network).__name__}")
        self.sites: dict[str, nn.Module] = dict(modules)
        require_sites(self.sites, positions := dict(positions or {}), "positions")
        for site, owned in positions.items():
            if owned not in ("prompt", "answer"):
                raise bad_value(f"positions[{site!r}]", owned, "prompt or answer")
        self.positions = positions
        self._task = task
        self.name = name or type(network).__name__

    @property
    def task(self) -> Task:
        """The task of the network; a `UserError` if it is unknown."""
        if self._task is None:
            raise UserError(f"Hooked: {self.name} has no task; expected task=, such as task=Add(bits=7)")
        return self._task

    def site_positions(self, site: str, x: Tensor) -> SitePositions:
        """The positions of activations x, cached while the network read all tokens of its task's prompts and answers.

        They are those of the argument ``positions``, if it has the site.
        """
        lengths = x.shape[1], self.task.prompt_length, self.task.answer_length
        return SitePositions.from_lengths(site, *lengths, self.positions.get(site, ""))

    @property
    def answer_length(self) -> int:
        """Number of tokens of the answer; 0 if the task is unknown."""
        return self._task.answer_length if self._task else 0


def split_batches(
    inputs: Sequence[Tensor], batch_size: int
) -> Iterator[tuple[InterventionContext, tuple[Tensor, ...]]]:
    """Split inputs (N, ...) into batches, each with its `InterventionContext`."""
    require_integer("batch_size", batch_size, 1)
    count = len(inputs[0])
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        yield InterventionContext(rows, count), tuple(x[rows] for x in inputs)


def run_batch(
    model: SiteNetwork, interventions: Sequence[Intervention], batch: InterventionContext, inputs: Sequence[Tensor]
) -> Tensor:
    """Run one batch with the interventions, in order, and return its logits (B, m, V)."""
    require_sites(model.sites, [intervention.site for intervention in interventions])
    by_module: dict[nn.Module, list[Intervention]] = defaultdict(list)  # which several sites may name
    for intervention in interventions:
        by_module[model.sites[intervention.site]].append(intervention)

    def edit(interventions: Sequence[Intervention], x: Tensor) -> Tensor:
        require_layout(interventions[0].site, x, inputs)
        for intervention in interventions:
            site, position = intervention.site, intervention.position
            m = model.answer_length
            positions = SitePositions.in_run(site, x, inputs, m, model.positions.get(site, ""))
            prompt, own = positions.num_prompt, positions.num_own
            index = None if position is None else positions.index(position, model.task if m else None)
            place = slice(prompt, None) if index is None else prompt + index
            at_position = replace(batch, position=index, num_prompt=prompt, num_own=own, num_answer=m)
            edited = x.clone()
            try:
                edited[:, place] = intervention.apply(x[:, place], at_position)
            except UserError as error:
                raise UserError(f"{type(intervention).__name__} at {site}: {error}") from error
            x = edited
        return x

    edits = {several[0].site: partial(edit, several) for several in by_module.values()}
    with edit_outputs(model.sites, edits), eager():
        logits: Any = model.network.eval()(*inputs)
    if isinstance(logits, Tensor) and not (model.answer_length and len(inputs) == 2):  # a module of any other kind
        return logits
    return require_logits(model.name, logits, inputs[-1])


def eager() -> AbstractContextManager[Any]:
    """Within the context modules of `torch.compile` run as they are written: compiled code ignores new hooks."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def require_layout(site: str, x: Tensor, inputs: Sequence[Tensor]) -> None:
    """Raise a `UserError` unless an output has examples on axis 0 and positions on axis 1."""
    if x.dim() < 3 or len(x) != len(inputs[0]):
        accepted = f"expected {len(inputs[0])} examples on axis 0, positions on axis 1 (1 if it has none), and channels"
        raise UserError(f"site={site}: its output has the shape {tuple(x.shape)}; {accepted}")


Recorded = list[tuple[InterventionContext, tuple[Tensor, ...], dict[str, list[Any]]]]
"""Of each batch: its inputs, and the outputs of layers and sites, in the order in which they ended."""


def record_run(model: SiteNetwork, sites: Sequence[str], inputs: Sequence[Tensor], batch_size: int) -> Recorded:
    """Run once and record the layers, whatever lies outside of them, and ``sites``. Without sites nothing runs."""
    require_sites(model.sites, sites)
    recorded: Recorded = []
    with isolated(False, model.network):
        for batch, tensors in split_batches(inputs, batch_size):
            wanted = {*_stored(model), *_outside(model), *sites} if sites else set()
            with record_outputs(model.sites, wanted) as outputs, eager():
                if sites:
                    model.network.eval()(*tensors)
            recorded.append((batch, tensors, outputs))
    return recorded


def _stored(model: SiteNetwork) -> list[str]:
    return layers(model.sites) or [*model.sites]  # every site of a network without layers


def _outside(model: SiteNetwork) -> list[str]:
    return [name for name in model.sites if layer_of(model.sites, name) is None]


class ResumedRun:
    """The forward pass from ``site`` on, the whole pass if it is None; see `Hooked.resume_from`.

    Layers that finish before the site, and the site itself if it is a layer, run once: their outputs are stored and
    used again. A layer that runs more than once in a forward pass is run every time.
    """

    def __init__(self, model: SiteNetwork, site: str | None, recorded: Recorded) -> None:
        self.model, self.site = model, site
        self.finished: set[str] = set()  # stored layers, and sites outside the layers that end before the last of them
        self.batches = [(batch, x, self._finish(site, outputs) if site else {}) for batch, x, outputs in recorded]

    def __call__(
        self, interventions: Intervention | Sequence[Intervention] = (), answer_in: Tensor | None = None
    ) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        ``answer_in`` are other decoder inputs (N, t), for a site before which no layer reads them.
        """
        interventions = as_interventions(interventions)
        for site in (intervention.site for intervention in interventions):
            if site != self.site and (layer_of(self.model.sites, site) or site) in self.finished:
                raise UserError(f"site={site}: runs before {self.site}, where the network resumes")
        fields = [field for intervention in interventions for field in vars(intervention).values()]
        values = [field.directions if isinstance(field, Subspace) else field for field in fields]
        values += [parameter for field in fields if isinstance(field, nn.Module) for parameter in field.parameters()]
        differentiable = any(isinstance(value, Tensor) and value.requires_grad for value in values)
        logits = []
        with isolated(torch.is_grad_enabled() and differentiable, self.model.network):
            for batch, tensors, outputs in self.batches:
                if answer_in is not None:
                    tensors = (tensors[0], answer_in[batch.rows])
                with replay_outputs({self.model.sites[layer]: output for layer, output in outputs.items()}):
                    logits.append(run_batch(self.model, interventions, batch, tensors))
            return torch.cat(logits)

    def _finish(self, site: str, outputs: dict[str, list[Any]]) -> dict[str, Any]:
        """Layer -> output, for the layers that end before the site or with it."""
        names = [*outputs]
        before = names[: names.index(site) + 1] if site in names else []
        stored, outside = _stored(self.model), _outside(self.model)
        ran_once = [name for name in before if name in stored and len(outputs[name]) == 1]
        last = max(map(names.index, ran_once), default=0)
        self.finished = {*ran_once, *(name for name in outside if name in names[:last])}
        return {name: outputs[name][0] for name in ran_once}
