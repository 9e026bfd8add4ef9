"""A network seen from outside: read its activations, intervene, run.

Forward hooks do all of it, so the networks know nothing of interventions and any `nn.Module` can be hooked.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..bits import Array
from ..errors import UserError
from ..models.decoding import greedy, shift_right
from ..models.network import Network, position_axis
from ..splits import Split
from ..tasks import Examples, Task
from .interventions import Intervention, Rows
from .sites import check_sites, layer_of, layers, owned

if TYPE_CHECKING:
    from .explorer.page import Page

BATCH = 2048
CHECKED = 16  # examples
Inputs = Examples | Sequence[Tensor]
Cache = dict[str, Tensor]


class Hooked:
    """A network with named sites, the task that it was trained on, and where it comes from.

    >>> from arith_erd import load_pretrained
    >>> model = load_pretrained("add-transformer")
    >>> model.predict([100], [27]), model.task.name, model.seed
    (array([127]), 'add', 0)
    >>> logits, cache = model.run_with_cache(model.task.examples([3, 4], [5, 6]), ["enc.6", "dec.2"])
    >>> logits.shape, cache["enc.6"].shape, cache["dec.2"].shape  # (N, m, V), (N, P, C), (N, m, C)
    (torch.Size([2, 8, 5]), torch.Size([2, 15, 64]), torch.Size([2, 8, 64]))

    Args:
        network: any module; one with ``sites()`` needs no ``sites``. It is put into evaluation mode.
        sites: name -> submodule whose output is read and replaced. Positions are axis 1 of the output.
        task: that the network answers; needed for `Examples`, names of positions and `predict`.
        name: of the run, or of the file that the weights came from.
        seed: of the replica.
        split: None if it is not known which examples were held out.
        untrained: makes the same network with fresh initial weights; None if that is not known.
        epoch: after which the weights were kept; None for the last ones that there are.
    """

    def __init__(
        self,
        network: nn.Module,
        sites: Mapping[str, nn.Module] | None = None,
        *,
        task: Task | None = None,
        name: str = "",
        seed: int = 0,
        split: Split | None = None,
        untrained: Callable[[], Network] | None = None,
        epoch: int | None = None,
    ) -> None:
        if sites is None and not callable(getattr(network, "sites", None)):
            raise UserError(f"Hooked: {type(network).__name__} names no sites; give sites={{name: module}}")
        self.network: Any = network.eval()
        self.sites: dict[str, nn.Module] = dict(network.sites() if sites is None else sites)  # type: ignore[operator]
        self._task = task
        self.name = name or type(network).__name__
        self.seed, self.epoch = seed, epoch
        self.split, self.untrained = split, untrained

    def __repr__(self) -> str:
        of = f", {self._task.name}" if self._task else ""
        return f"Hooked({self.name}, seed {self.seed}{of})"

    @property
    def task(self) -> Task:
        """The task that the network answers; a `UserError` if it is not known."""
        if self._task is None:
            raise UserError(f"Hooked: {self.name} has no task; give task=, such as task=Add(bits=7)")
        return self._task

    @property
    def device(self) -> torch.device:
        """Where the network's weights are."""
        return next((p.device for p in self.network.parameters()), torch.device("cpu"))

    def predict(self, *operands: npt.ArrayLike) -> Array:
        """Answers (N,) to operands, each (N,), by greedy decoding."""
        prompt = torch.as_tensor(self.task.examples(*operands).prompt, device=self.device)
        return self.task.decode(greedy(self.network, prompt, self.task.width).cpu().numpy())

    def accuracy(self, examples: Examples | None = None) -> float:
        """The share of examples, by default of all, whose answer is right in every token."""
        examples = self.task.examples() if examples is None else examples
        right = self.run(examples).argmax(-1).cpu() == torch.as_tensor(examples.completion)
        return float(right.all(-1).double().mean())

    def show(self) -> "Page":
        """A page in which the network computes and can be intervened on; a notebook shows it, kernel or not.

        Raises:
            UserError: for a network of another class than Transformer and NanoGPT.
        """
        from .explorer.page import Page, explorer_page  # which import this module

        return Page(explorer_page([self]))

    def inputs(self, examples: Inputs) -> tuple[Tensor, ...]:
        """The network's inputs, on its device: of examples the prompt (N, P) and ``<start> r_0 ..`` (N, m)."""
        if isinstance(examples, Examples):
            prompt, completion = torch.as_tensor(examples.prompt), torch.as_tensor(examples.completion)
            examples = (prompt, shift_right(completion))
        return tuple(x.to(self.device) for x in examples)

    def index(self, site: str, position: int | str) -> int:
        """The index of a position among those that a site owns: 2 for ``r2`` at ``dec.*``, 0 for ``a0`` at ``enc.*``.

        For a prompt position of a decoder-only network it is negative: -1 for the last token of the prompt.
        """
        if isinstance(position, int):
            if position < 0:
                raise UserError(f"position {position}: expected 0 or more, or a name such as r0")
            return position
        prompt, answer = self.task.prompt_names, self.task.answer_names
        if site.startswith("enc."):
            prompt, answer = [], prompt
        if position in answer:
            return answer.index(position)
        if position in prompt:
            return prompt.index(position) - len(prompt)
        raise UserError(f"position {position}: {site} has {', '.join([*prompt, *answer])}")

    def run(self, inputs: Inputs, interventions: Sequence[Intervention] = (), batch_size: int = BATCH) -> Tensor:
        """Logits (N, m, V), with interventions applied in order. Gradients pass to values that require them.

        Args:
            inputs: examples, teacher forced with their own right answers; or tensors as the network takes them: a
                prompt (N, P) and decoder inputs (N, t), t <= m.

        Raises:
            UserError: if the network lacks a site or a position.
            ValueError: for a value that does not fit.
        """
        tensors = self.inputs(inputs)
        with _gradients(interventions):
            batches = _split(tensors, batch_size)
            return torch.cat([self._forward(batch, interventions, rows, n) for rows, n, batch in batches])

    @torch.no_grad()
    def run_with_cache(
        self,
        inputs: Inputs,
        sites: Sequence[str],
        interventions: Sequence[Intervention] = (),
        *,
        prompt_too: bool = False,
        batch_size: int = BATCH,
    ) -> tuple[Tensor, Cache]:
        """Logits (N, m, V), and what each site gives, site -> (N, k, ...); patterns are (N, T, nh, S), positions first.

        ``prompt_too`` gives all positions of a site and not only its own, in a decoder-only network P + m.
        """
        check_sites(self.sites, sites, "sites")
        tensors = self.inputs(inputs)
        logits: list[Tensor] = []
        parts: dict[str, list[Tensor]] = {site: [] for site in sites}
        for rows, count, batch in _split(tensors, batch_size):
            with self._reading(sites) as outputs:
                logits.append(self._forward(batch, interventions, rows, count))
            for site, output in outputs.items():
                own = output.shape[1] if prompt_too else owned(site, output.shape[1], batch)
                parts[site].append(output[:, -own:].clone())  # a clone frees the rest
        return torch.cat(logits), {site: torch.cat(batches) for site, batches in parts.items()}

    def resume_from(self, site: str, inputs: Inputs, batch_size: int = BATCH) -> "Resumed":
        """Run once up to a site. The result runs on from there, with any interventions, at the cost of the rest."""
        return Resumed(self, site, self.inputs(inputs), batch_size)

    def _forward(
        self, batch: Sequence[Tensor], interventions: Sequence[Intervention], rows: Rows, count: int
    ) -> Tensor:
        with self.intervening(interventions, batch, rows, count):
            return self.network(*batch)

    @contextmanager
    def _reading(self, sites: Sequence[str]) -> Iterator[dict[str, Tensor]]:
        """Within the context a forward pass stores what the sites give, positions on axis 1, after interventions."""
        outputs: dict[str, Tensor] = {}

        def keep(site: str) -> Callable[..., None]:
            def hook(module: nn.Module, given: object, output: Any) -> None:
                outputs[site] = _tensor(output).movedim(position_axis(module), 1)

            return hook

        with ExitStack() as stack:
            for site in sites:
                stack.callback(self.sites[site].register_forward_hook(keep(site)).remove)
            yield outputs

    @contextmanager
    def intervening(
        self, interventions: Sequence[Intervention], inputs: Sequence[Tensor], rows: Rows, count: int
    ) -> Iterator[None]:
        """Within the context forward passes of a batch, ``rows`` of ``count`` examples, are intervened on, in order."""
        check_sites(self.sites, [one.site for one in interventions], "the intervention's site")
        at_site: dict[str, list[Intervention]] = defaultdict(list)
        for one in interventions:
            at_site[one.site].append(one)
        with ExitStack() as stack:
            for site, several in at_site.items():
                hook = self._changing(site, several, inputs, rows, count)
                # In front of the hooks that read.
                stack.callback(self.sites[site].register_forward_hook(hook, prepend=True).remove)
            yield

    def _changing(
        self, site: str, interventions: Sequence[Intervention], inputs: Sequence[Tensor], rows: Rows, count: int
    ) -> Callable[..., Any]:
        def hook(module: nn.Module, given: object, output: Any) -> Any:
            axis = position_axis(module)
            x = _tensor(output).movedim(axis, 1)  # (B, T, ...)
            own = owned(site, x.shape[1], inputs)
            for one in interventions:
                x = self._changed(one, x, own, rows, count)
            x = x.movedim(1, axis)
            return x if isinstance(output, Tensor) else (x, *output[1:])

        return hook

    def _changed(self, one: Intervention, x: Tensor, own: int, rows: Rows, count: int) -> Tensor:
        lead = x.shape[1] - own
        if one.position is None:
            return torch.cat([x[:, :lead], one.change(x[:, lead:], None, rows, count)], dim=1)
        at = self.index(one.site, one.position)
        if not -lead <= at < own:
            held = f"{own} positions and {lead} of the prompt before them"
            raise UserError(f"position {one.position}: {one.site} has {held}")
        place = lead + at
        new = one.change(x[:, place], at, rows, count)
        return torch.cat([x[:, :place], new[:, None], x[:, place + 1 :]], dim=1)


class Resumed:
    """The forward pass from a site on; see `Hooked.resume_from`.

    What lies below the site runs once. The logits without an intervention are those of the whole network; where they
    are not, since layers do not run in the order of their names, every call runs the whole network.
    """

    @torch.no_grad()
    def __init__(self, model: Hooked, site: str, inputs: Sequence[Tensor], batch_size: int = BATCH) -> None:
        check_sites(model.sites, [site], "the site to resume from")
        self.model, self.site, self.encoder = model, site, site.startswith("enc.")
        self.batches = list(_split(inputs, batch_size))
        layer = layer_of(model.sites, site)
        stack = [name for name in layers(model.sites) if layer and name[:4] == layer[:4]]
        self.below = stack[: stack.index(layer) + (site == layer)] if layer else []  # layers whose output is known
        self.above = stack[len(self.below) :]
        whole = not self.below or not isinstance(model.network, Network) or not self._runs_in_a_row()
        self.known = [None if whole else self._before(batch) for _, _, batch in self.batches]

    def _runs_in_a_row(self) -> bool:
        """Whether the last known layer is enough to go on from there, tried on a few examples."""
        batch = [x[:CHECKED] for x in self.batches[0][2]]
        logits: Tensor = self.model.network(*batch)
        return torch.allclose(self._on(batch, self._before(batch)), logits, rtol=1e-4, atol=1e-4)

    def _before(self, batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The input of `decode` and the output of the last known layer."""
        network, last = self.model.network, self.below[-1]
        with self.model._reading([last]) as outputs, _stand_in({self.model.sites[name]: _skip for name in self.above}):
            memory = network.encode(batch[0])
            if not self.encoder:
                network.decode(memory, batch[1])
        return (batch[0] if self.encoder else memory), outputs[last]

    def _on(self, batch: Sequence[Tensor], known: tuple[Tensor, Tensor]) -> Tensor:
        network = self.model.network
        memory, output = known
        stand_ins: dict[nn.Module, Callable[..., Tensor]] = {self.model.sites[name]: _skip for name in self.below[:-1]}
        stand_ins[self.model.sites[self.below[-1]]] = lambda *context, **options: output
        with _stand_in(stand_ins):
            return network.decode(network.encode(memory) if self.encoder else memory, batch[1])

    def __call__(self, interventions: Sequence[Intervention] = ()) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        Raises:
            UserError: for a site that has run already.
        """
        for one in interventions:
            if one.site != self.site and layer_of(self.model.sites, one.site) in self.below:
                raise UserError(f"site {one.site}: has run already where the network resumes from {self.site}")
        logits = []
        with _gradients(interventions):
            for (rows, count, batch), known in zip(self.batches, self.known, strict=True):
                if known is None:
                    logits.append(self.model._forward(batch, interventions, rows, count))
                    continue
                with self.model.intervening(interventions, batch, rows, count):
                    logits.append(self._on(batch, known))
        return torch.cat(logits)


def _tensor(output: Any) -> Tensor:
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found


def _split(inputs: Sequence[Tensor], batch_size: int) -> Iterator[tuple[Rows, int, tuple[Tensor, ...]]]:
    """The rows of each batch, their number in all, and the batch."""
    count = len(inputs[0])
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        yield rows, count, tuple(x[rows] for x in inputs)


@contextmanager
def _gradients(interventions: Sequence[Intervention]) -> Iterator[None]:
    wanted = any(x.requires_grad for one in interventions for x in one.tensors)
    with torch.set_grad_enabled(torch.is_grad_enabled() and wanted):
        yield


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
