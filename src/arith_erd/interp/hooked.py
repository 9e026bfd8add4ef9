"""Run a network, read its activations and intervene on them.

All of this uses forward hooks, so the networks know nothing of interventions, and any `nn.Module` can be hooked.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..checks import require_integer, require_type
from ..digits import ZERO, Array
from ..errors import UserError, bad_value
from ..models.network import (
    Network,
    greedy_decode,
    greedy_tokens,
    is_causal,
    keep_padding,
    require_logits,
    sequence_accuracy,
    shift_right,
)
from ..splits import Split
from ..system.isolation import isolated
from ..tasks import Examples, Task
from .hooks import PURE_PARTS, cache_outputs, edit_outputs, record_outputs, replay_outputs
from .interventions import Intervention, InterventionContext, Position, as_interventions
from .sites import OWNED_BY_NAME, SitePositions, enclosing_layer, expand_sites, layers, require_sites

BATCH_SIZE = 2048
Inputs = Examples | Sequence[Tensor]
Cache = dict[str, Tensor]


@dataclass(frozen=True)
class Provenance:
    """Where a network comes from; None for what is unknown.

    ``split`` says which examples were held out. ``make_network()`` makes the same network with fresh
    initial weights, from PyTorch's global generator (`models.network.initialise` sets its seed).
    ``epoch`` is the one after which the weights were kept, None for the last weights. ``job`` is the run's
    `config.job.Job`.
    """

    split: Split | None = None
    make_network: Callable[[], Network] | None = field(default=None, repr=False)
    epoch: int | None = None
    job: Any = field(default=None, repr=False)  # pages of settings


class Hooked:
    """A network with named sites, and the task that it was trained on.

    >>> from arith_erd import load_pretrained
    >>> model = load_pretrained("add-transformer")
    >>> model.predict([100], [27]), model.task.name, model.seed
    (array([127]), 'add', 0)
    >>> logits, cache = model.run_with_cache(model.task.examples([3, 4], [5, 6]), ["enc.6", "dec.2"])
    >>> logits.shape, cache["enc.6"].shape, cache["dec.2"].shape  # (N, m, V), (N, P, C), (N, m, C)
    (torch.Size([2, 8, 5]), torch.Size([2, 15, 64]), torch.Size([2, 8, 64]))

    Args:
        network: any module that returns logits (N, t, V) for a prompt (N, P) and decoder inputs (N, t), the tokens
            ``<start> r_0 .. r_(t-2)``. Logits must depend on no later token (`require_causal`). `run` calls it once,
            with t = m; `predict` with t = 1, 2, .. m, or with t = m under interventions. It is put into evaluation
            mode, here and at every run.
        sites: name -> submodule whose output is read and replaced: examples on axis 0, positions on axis 1; of a tuple
            only the first element (a warning says so if others are tensors). By default ``network.sites()``.
        task: the task of the network; needed for `Examples`, names of positions and `predict`.
        name: name of the run, or of the file of weights.
        positions: site -> whether its own positions are those of the ``prompt``, all T then, or of the ``answer``, the
            last m of them; by default the site's name and T tell (`docs/how-to/sites.md`).
        seed: seed of the replica.
        provenance: what is known of its training: a `Provenance`.
    """

    def __init__(
        self,
        network: nn.Module,
        sites: Mapping[str, nn.Module] | None = None,
        *,
        task: Task | None = None,
        name: str = "",
        positions: Mapping[str, Literal["prompt", "answer"]] | None = None,
        seed: int = 0,
        provenance: Provenance = Provenance(),
    ) -> None:
        require_type("Hooked: network", network, nn.Module)
        network = getattr(network, "_orig_mod", network)  # of torch.compile
        if task is not None:
            _require_fitting_task(network, task)
        if sites is None and not callable(getattr(network, "sites", None)):
            raise UserError(f"Hooked: {type(network).__name__} has no sites(); expected sites={{name: module}}")
        self.network: Any = network.eval()
        modules = network.sites() if sites is None else sites  # type: ignore[operator]
        if not isinstance(modules, Mapping) or not all(isinstance(name, str) for name in modules):
            raise bad_value("sites", modules, "{name: submodule}")
        require_type("positions", positions or {}, Mapping)
        submodules = {id(module) for module in network.modules()}
        if outside := [site for site, module in modules.items() if id(module) not in submodules]:
            raise UserError(f"sites: {outside[0]}: expected a submodule of {type(network).__name__}")
        if scripted := [site for site, module in modules.items() if isinstance(module, torch.jit.ScriptModule)]:
            raise UserError(
                f"sites: {scripted[0]}: a module of torch.jit takes no hooks; expected the module before that"
            )
        self.sites: dict[str, nn.Module] = dict(modules)
        self.positions = dict(positions or {})
        require_sites(self.sites, self.positions, "positions")
        for site, owned in self.positions.items():
            if owned not in ("prompt", "answer"):
                raise bad_value(f"positions[{site!r}]", owned, "prompt or answer")
        self.name, self.seed, self.provenance = name or type(network).__name__, seed, provenance
        self._task, self._is_causal = task, False  # until it is checked

    def __repr__(self) -> str:
        task = f", {self._task.name}" if self._task else ""
        epoch = "" if self.provenance.epoch is None else f", epoch {self.provenance.epoch}"
        return f"Hooked({self.name}, seed {self.seed}{task}{epoch})"

    @property
    def task(self) -> Task:
        """The task of the network; a `UserError` if it is unknown."""
        if self._task is None:
            raise UserError(f"Hooked: {self.name} has no task; expected task=, such as task=Add(bits=7)")
        return self._task

    @property
    def answer_length(self) -> int | None:
        """Number of tokens of the answer; None if the task is unknown."""
        return self._task.answer_length if self._task else None

    def site_positions(self, site: str, x: Tensor) -> SitePositions:
        """The positions of activations x, cached while the network read all tokens of its task's prompts and answers.

        They are those of the argument ``positions``, if it has the site.
        """
        lengths = x.shape[1], self.task.prompt_length, self.task.answer_length
        return SitePositions.from_lengths(site, *lengths, self.positions.get(site, ""))

    @property
    def device(self) -> torch.device:
        """The device of the network's weights."""
        return next((p.device for p in self.network.parameters()), torch.device("cpu"))

    def predict(
        self, *operands: npt.ArrayLike | Examples, interventions: Intervention | Sequence[Intervention] = ()
    ) -> Array:
        """Answers (N,) to operands, each (N,), or to examples, by greedy decoding with interventions at every step.

        A token that is no digit counts as 0. `greedy_tokens` has the tokens, without interventions.
        """
        examples, length = self.task.as_examples(*operands), self.task.answer_length
        prompt, completion = self.inputs(examples)[0], self.target_tokens(examples)
        if interventions := as_interventions(interventions, self.sites):
            self.require_causal(examples)
            tokens = prompt.new_full((len(prompt), length), ZERO)  # those not yet decoded change none before them
            for t in range(length):
                tokens[:, t] = self.run((prompt, shift_right(tokens)), interventions)[:, t].argmax(-1)
        else:
            with isolated(False, self.network):
                tokens = greedy_decode(self.network.eval(), prompt, length)
        return self.task.decode(keep_padding(tokens, completion).cpu().numpy())

    def accuracy(
        self, examples: Examples | None = None, interventions: Intervention | Sequence[Intervention] = ()
    ) -> float:
        """The share of examples whose answer is right in every token, with interventions applied.

        By default it is measured on ``task.examples()``, those of training too: all, or a sample of at most 4,096 if
        there are too many. `held_out` has those that training never saw.
        """
        examples = self.task.examples() if examples is None else examples
        if not isinstance(examples, Examples):
            raise UserError(f"accuracy: received {type(examples).__name__}; expected examples, then interventions")
        self.require_causal(examples)
        return sequence_accuracy(self.run(examples, interventions).cpu(), torch.from_numpy(examples.completion))

    def held_out(self) -> Examples:
        """The examples that were held out from training, as in ``model.accuracy(model.held_out())``."""
        if self.provenance.split is None:
            drawn = "examples of its run are drawn, and those held out are not kept; expected a run on a whole table"
            unknown = "its split is unknown; expected a network of `fit`, `load_run` or a checkpoint"
            raise UserError(f"{self.name}: {unknown if self.provenance.job is None else drawn}")
        examples = self.task.examples()
        return examples[np.asarray(self.provenance.split(examples), dtype=bool)]

    def greedy_tokens(self, examples: Examples) -> Tensor:
        """The tokens (N, m) that greedy decoding gives for the prompts of examples."""
        require_type("greedy_tokens: examples", examples, Examples)
        self.require_causal(examples)
        with isolated(False, self.network):
            return greedy_tokens(self.network.eval(), self.inputs(examples)[0], self.target_tokens(examples))

    def target_tokens(self, examples: Examples) -> Tensor:
        """The tokens (N, m) of the right answers, on the network's device."""
        return torch.as_tensor(examples.completion, device=self.device)

    @isolated()
    def inputs(self, examples: Inputs) -> tuple[Tensor, ...]:
        """The network's inputs, on its device: for examples the prompt (N, P) and ``<start> r_0 ..`` (N, m)."""
        task = self._task
        if isinstance(examples, Examples):
            if task is not None:
                task.require_own_examples(examples, self.name)
            examples = torch.as_tensor(examples.prompt), shift_right(torch.as_tensor(examples.completion))
        if not isinstance(examples, Sequence) or not all(isinstance(x, Tensor) for x in examples):
            raise UserError(f"{self.name}: received {type(examples).__name__}; expected task.examples(..), or tensors")
        if not all(x.numel() for x in examples) or not examples:
            raise UserError(f"{self.name}: received no examples; expected one or more")
        if isinstance(self.network, Network) and task is not None:
            fits = [x.dim() for x in examples] == [2, 2] and examples[0].shape[1] == task.prompt_length
            if not fits or examples[1].shape[1] > task.answer_length:
                received = ", ".join(str(tuple(x.shape)) for x in examples)
                accepted = f"tokens (N, {task.prompt_length}) and (N, t), t <= {task.answer_length}"
                raise UserError(f"{self.name}: received {received}; expected {accepted}")
            if any(x.is_floating_point() or x.min() < 0 or x.max() >= task.vocab_size for x in examples):
                raise UserError(f"{self.name}: expected tokens from 0 to {task.vocab_size - 1}, as integers")
            examples = [x.long() for x in examples]
        if len(counts := {len(x) if x.dim() else 0 for x in examples}) > 1:
            raise UserError(f"{self.name}: received inputs of {sorted(counts)} examples; expected equal numbers")
        return tuple(x.to(self.device) for x in examples)

    def require_causal(self, examples: Examples | None = None) -> None:
        """Raise a `UserError` if logits depend on later tokens of the answer, which teacher forcing gives away.

        The first call runs the network on up to eight examples, twice. Everything that takes a right token for a right
        answer calls it: `accuracy`, `greedy_tokens`, `predict` under interventions, interchanges and probes.
        """
        if self._is_causal:
            return
        examples = self.task.examples(*[0] * self.task.num_operands) if examples is None else examples
        prompt, answer_in = (x[:8] for x in self.inputs(examples))
        if not is_causal(lambda x: self.run((prompt, x)), answer_in):
            raise UserError(f"{self.name}: its logits depend on later tokens of the answer; expected a causal network")
        self._is_causal = True

    def run(
        self, inputs: Inputs, interventions: Intervention | Sequence[Intervention] = (), batch_size: int = BATCH_SIZE
    ) -> Tensor:
        """Logits (N, m, V), with interventions applied in order. Gradients pass to values that require them.

        Inputs are examples, teacher forced with their own right answers, or the network's input tensors: a prompt
        (N, P) and decoder inputs (N, t), t <= m.

        Raises:
            UserError: if the network lacks a site or a position, or a value does not fit.
        """
        interventions = as_interventions(interventions, self.sites)
        return run_batches(self, interventions, split_batches(self.inputs(inputs), batch_size))

    def run_with_cache(
        self,
        inputs: Inputs,
        sites: str | Sequence[str] | None = "all",
        interventions: Intervention | Sequence[Intervention] = (),
        *,
        include_prompt: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> tuple[Tensor, Cache]:
        """Logits (N, m, V), and the outputs of sites, site -> (N, k, ...); patterns are (N, T, nh, S), positions first.

        ``sites`` are names and patterns, such as ``dec.*.attn.z``; ``all`` stands for the layers.
        ``include_prompt`` caches all positions of a site, not only its own: P + m in a decoder-only network.
        """
        sites = expand_sites(self.sites, sites)
        interventions = as_interventions(interventions, self.sites)
        logits: list[Tensor] = []
        cached: dict[str, list[Tensor]] = {site: [] for site in sites}
        with isolated(False, self.network):
            for batch in split_batches(self.inputs(inputs), batch_size):
                with cache_outputs(self.sites, sites) as outputs:
                    logits.append(run_batch(self, interventions, batch))
                for site, x in outputs.items():
                    positions = positions_in_run(self, site, x, batch.inputs)
                    own = x.shape[1] if include_prompt else positions.num_own
                    cached[site].append(x[:, -own:].clone())  # a view would keep the rest in memory
            return torch.cat(logits), {site: torch.cat(batches) for site, batches in cached.items()}

    def resume_from(self, site: str, inputs: Inputs, batch_size: int = BATCH_SIZE) -> "ResumedRun":
        """Run once up to a site. The result is a function that runs the rest of the network, with any interventions."""
        return self.resume_from_each([site], inputs, batch_size)[site]

    def resume_from_each(
        self, sites: Sequence[str], inputs: Inputs, batch_size: int = BATCH_SIZE
    ) -> "dict[str, ResumedRun]":
        """`resume_from` for each of several sites, after one run for all."""
        require_sites(self.sites, sites)
        recorded = []
        wanted = [name for name in self.sites if name in sites or enclosing_layer(self.sites, name) in (None, name)]
        with isolated(False, self.network):
            for batch in split_batches(self.inputs(inputs), batch_size):
                with record_outputs(self.sites, wanted) as outputs, eager():
                    self.network.eval()(*batch.inputs)
                recorded.append((batch, outputs))
        return {site: ResumedRun(self, site, recorded) for site in sites}


def _require_fitting_task(network: nn.Module, task: Task) -> None:
    require_type("Hooked: task", task, Task)
    sizes = (task.prompt_length, task.answer_length, task.vocab_size)
    made_for = getattr(network, "task_sizes", sizes)
    fits = isinstance(made_for, tuple) and len(made_for) == len(sizes)
    if not fits or any(made not in (None, size) for made, size in zip(made_for, sizes, strict=True)):
        received = f"{type(network).__name__} with tokens {made_for} of prompt, answer and vocabulary"
        raise UserError(f"Hooked: {received} does not fit the task {task!r}, which has {sizes}")


def finite_cache(model: Hooked, examples: Examples, sites: Sequence[str], include_prompt: bool = False) -> Cache:
    """Activations (n, k, ...) by site; a `UserError` if one of them is not finite."""
    _, cache = model.run_with_cache(examples, sites, include_prompt=include_prompt)
    for site, x in cache.items():
        if not x.isfinite().all():
            raise UserError(f"site={site}: its activations contain NaN or infinity; expected finite numbers")
    return cache


def select_position(model: Hooked, x: Tensor, site: str, position: Position) -> Tensor:
    """Activations x (n, T, ...) of a site at one position, or at all that it owns, as vectors (n, d)."""
    positions = model.site_positions(site, x)
    own = x[:, positions.num_prompt :]
    return (own if position is None else x[:, positions.num_prompt + positions.index(position, model.task)]).flatten(1)


# Forward passes with interventions, in batches: the whole network, or the rest of it from a site on


class InputBatch(NamedTuple):
    """A part of the inputs, ``rows`` of ``num_examples``, and outputs of layers that need not run, by layer."""

    rows: slice
    num_examples: int
    inputs: Sequence[Tensor]
    stored: Mapping[str, Any] = MappingProxyType({})


def split_batches(inputs: Sequence[Tensor], batch_size: int) -> Iterator[InputBatch]:
    """Split inputs (N, ...) into batches."""
    require_integer("batch_size", batch_size, 1)
    count = len(inputs[0])
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        yield InputBatch(rows, count, [x[rows] for x in inputs])


def run_batches(model: Hooked, interventions: Sequence[Intervention], batches: Iterable[InputBatch]) -> Tensor:
    """Logits (N, m, V) of all batches, with interventions in order. Gradients pass to values that require them."""
    differentiable = any(map(requires_grad, interventions))
    with isolated(torch.is_grad_enabled() and differentiable, model.network):
        return torch.cat([run_batch(model, interventions, batch) for batch in batches])


def requires_grad(value: object) -> bool:
    """Whether a tensor requires a gradient, or one within a module or a dataclass, such as an intervention."""
    if isinstance(value, nn.Module):
        return any(parameter.requires_grad for parameter in value.parameters())
    if is_dataclass(value):
        return any(map(requires_grad, vars(value).values()))
    return isinstance(value, Tensor) and value.requires_grad


def run_batch(model: Hooked, interventions: Sequence[Intervention], batch: InputBatch) -> Tensor:
    """Run one batch with the interventions, in order, and return its logits (B, m, V)."""
    by_module: dict[nn.Module, list[Intervention]] = defaultdict(list)  # which several sites may name
    for intervention in interventions:
        by_module[model.sites[intervention.site]].append(intervention)

    def edit(interventions: Sequence[Intervention], x: Tensor) -> Tensor:
        for intervention in interventions:
            x = edit_positions(model, intervention, x, batch)
        return x

    edits = {several[0].site: partial(edit, several) for several in by_module.values()}
    stored = {model.sites[layer]: output for layer, output in batch.stored.items()}
    with replay_outputs(stored), edit_outputs(model.sites, edits), eager():
        logits: Any = model.network.eval()(*batch.inputs)
    task = model._task
    if isinstance(logits, Tensor) and (task is None or len(batch.inputs) != 2):  # of any other module
        return logits
    return require_logits(model.name, logits, batch.inputs[-1], task.vocab_size if task else 0)


def edit_positions(model: Hooked, intervention: Intervention, x: Tensor, batch: InputBatch) -> Tensor:
    """A copy of a site's output x (B, T, ...), changed at the positions of one intervention."""
    site, position = intervention.site, intervention.position
    positions = positions_in_run(model, site, x, batch.inputs)
    index = None if position is None else positions.index(position, model._task)
    place = slice(positions.num_prompt, None) if index is None else positions.num_prompt + index
    context = InterventionContext(batch.rows, batch.num_examples, index, positions, model.answer_length)
    edited = x.clone()
    try:
        edited[:, place] = intervention.apply(x[:, place], context)
    except UserError as error:
        raise UserError(f"{type(intervention).__name__} at {site}: {error}") from error
    return edited


def eager() -> AbstractContextManager[Any]:
    """Within the context modules of `torch.compile` run as they are written: compiled code ignores new hooks."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def positions_in_run(model: Hooked, site: str, x: Tensor, inputs: Sequence[Tensor]) -> SitePositions:
    """The positions of an output x of a forward pass, with inputs prompt (B, P) and decoder's (B, t), or others.

    A `UserError` unless examples are on its axis 0 and positions on axis 1, or if t < m and T does not tell what the
    positions are.
    """
    if x.dim() < 3 or len(x) != len(inputs[0]):
        accepted = f"expected {len(inputs[0])} examples on axis 0, positions on axis 1 (1 if it has none), and channels"
        raise UserError(f"site={site}: its output has the shape {tuple(x.shape)}; {accepted}")
    length, prompt, declared = x.shape[1], inputs[0].shape[1], model.positions.get(site, "")
    answer = inputs[-1].shape[1] if len(inputs) == 2 and inputs[-1].dim() > 1 else length
    whole = model.answer_length or 0  # in a run of the whole answer a site owns all its positions, or the last
    fits_neither = answer < length < whole and length not in (prompt, prompt + answer)
    fits_both = length == prompt == answer < whole and site.partition(".")[0] not in OWNED_BY_NAME
    if (fits_neither or fits_both) and not declared and not site.startswith("enc."):
        received = f"{length} positions in a run of {answer} of the {whole} answer tokens"
        raise UserError(f"site={site}: has {received}; expected a run of all, which tells what the positions are")
    return SitePositions.from_lengths(site, length, prompt, answer, declared)


def replays_exactly(model: Hooked, stored: Sequence[str], batch: InputBatch) -> bool:
    """Whether stored outputs of layers give the logits of a whole run, up to rounding.

    They do not if a layer also acts in another way, as on a cache that is handed on or an attribute that another layer
    reads. So eight examples run whole, then other inputs, and then from the stored outputs, twice.
    """
    if all(type(part).__module__.startswith(PURE_PARTS) for part in model.network.modules()):
        return True
    few = batch._replace(inputs=[x[:8] for x in batch.inputs])
    with isolated(False, model.network):
        try:
            with record_outputs(model.sites, stored) as outputs:
                logits = run_batch(model, (), few)
            run_batch(model, (), few._replace(inputs=[torch.zeros_like(x) for x in few.inputs]))
            replay = few._replace(stored={layer: outputs[layer][0] for layer in stored})
            found = [run_batch(model, (), replay) for _ in range(2)]
            rounding = torch.finfo(logits.dtype).eps ** 0.5 * float(logits[logits.isfinite()].abs().max())
        except Exception:  # whatever a network raises if a part of it has not run; or no logit is finite
            return False
    return all(torch.allclose(x, logits, rtol=0.0, atol=rounding, equal_nan=True) for x in found)


class ResumedRun:
    """The forward pass from ``site`` on; see `Hooked.resume_from`.

    Layers that finish before the site, and the site itself if it is a layer, run once: their outputs are stored and
    used again. A layer that runs more than once in a forward pass is run every time, and so are all layers if the
    stored outputs do not give the logits of a whole run (`replays_exactly`).
    """

    def __init__(self, model: Hooked, site: str, recorded: Sequence[tuple[InputBatch, dict[str, list[Any]]]]) -> None:
        self.model, self.site = model, site
        names, replayable = [*recorded[0][1]], layers(model.sites) or [*model.sites]
        before = names[: names.index(site) + 1] if site in names else []
        replayed = [x for x in before if x in replayable and all(len(ran.get(x, ())) == 1 for _, ran in recorded)]
        if replayed and not replays_exactly(model, replayed, recorded[0][0]):
            replayed = []
        last = max(map(names.index, replayed), default=0)
        self.finished = {*replayed, *(name for name in names[:last] if enclosing_layer(model.sites, name) is None)}
        self.batches = [batch._replace(stored={name: x[name][0] for name in replayed}) for batch, x in recorded]

    def __call__(
        self, interventions: Intervention | Sequence[Intervention] = (), answer_in: Tensor | None = None
    ) -> Tensor:
        """Logits (N, m, V) with interventions at the site or after it. Gradients pass to values that require them.

        ``answer_in`` are other decoder inputs (N, t), for a site before which no layer reads them.
        """
        batches, sites = self.batches, self.model.sites
        interventions = as_interventions(interventions, sites)
        for site in (intervention.site for intervention in interventions):
            is_finished = (enclosing_layer(sites, site) or site) in self.finished
            if is_finished and sites[site] is not sites[self.site]:
                raise UserError(f"site={site}: runs before {self.site}, where the network resumes")
        if answer_in is not None:
            batches = [batch._replace(inputs=(batch.inputs[0], answer_in[batch.rows])) for batch in batches]
        return run_batches(self.model, interventions, batches)
