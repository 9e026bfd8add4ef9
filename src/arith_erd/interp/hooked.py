"""Run a network, read its activations and intervene on them.

All of this uses forward hooks, so the networks know nothing of interventions, and any `nn.Module` can be hooked.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..digits import ZERO, Array
from ..errors import UserError, bad_value, require_type
from ..models.network import (
    Network,
    greedy_decode,
    greedy_tokens,
    is_causal,
    keep_padding,
    sequence_accuracy,
    shift_right,
)
from ..splits import Split
from ..system.isolation import isolated
from ..tasks import Examples, Task
from .forward import ResumedRun, positions_in_run, resume_from_each, run_batch, run_batches, split_batches
from .hooks import cache_outputs
from .interventions import Intervention, as_interventions
from .sites import SitePositions, expand_sites, require_sites

BATCH_SIZE = 2048
Inputs = Examples | Sequence[Tensor]
Cache = dict[str, Tensor]


@dataclass(frozen=True)
class Provenance:
    """Where a network comes from; None for what is unknown.

    ``split`` says which examples were held out. ``make_network()`` makes the same network with fresh
    initial weights, from PyTorch's global generator (`models.weights.initialise` sets its seed).
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
        provenance: what is known of its training: an `interp.hooked.Provenance`.
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
    def answer_length(self) -> int:
        """Number of tokens of the answer; 0 if the task is unknown."""
        return self._task.answer_length if self._task else 0

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
        """Answers (N,) to operands, each (N,), or to examples, by greedy decoding with interventions at every step."""
        examples, length = self.task.as_examples(*operands), self.task.answer_length
        prompt, completion = self.inputs(examples)[0], torch.as_tensor(examples.completion, device=self.device)
        if interventions := as_interventions(interventions):
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

        By default it is measured on ``task.examples()``, those of training too: all, or a sample of 4,096 if there are
        too many. `held_out` has those that training never saw.
        """
        examples = self.task.examples() if examples is None else examples
        if not isinstance(examples, Examples):
            raise UserError(f"accuracy: received {type(examples).__name__}; expected examples, then interventions")
        self.require_causal(examples)
        return sequence_accuracy(self.run(examples, interventions).cpu(), torch.from_numpy(examples.completion))

    def held_out(self) -> Examples:
        """The examples that were held out from training, as in ``model.accuracy(model.held_out())``."""
        if self.provenance.split is None:
            raise UserError(
                f"{self.name}: its split is unknown; expected a network of `fit`, `load_run` or a checkpoint"
            )
        examples = self.task.examples()
        return examples[np.asarray(self.provenance.split(examples), dtype=bool)]

    def greedy_tokens(self, examples: Examples) -> Tensor:
        """The tokens (N, m) that greedy decoding gives for the prompts of examples."""
        self.require_causal(examples)
        completion = torch.as_tensor(examples.completion, device=self.device)
        with isolated(False, self.network):
            return greedy_tokens(self.network.eval(), self.inputs(examples)[0], completion)

    @isolated()
    def inputs(self, examples: Inputs) -> tuple[Tensor, ...]:
        """The network's inputs, on its device: for examples the prompt (N, P) and ``<start> r_0 ..`` (N, m)."""
        if isinstance(examples, Examples):
            if self._task is not None:
                self._task.require_own_examples(examples, self.name)
            examples = torch.as_tensor(examples.prompt), shift_right(torch.as_tensor(examples.completion))
        if not isinstance(examples, Sequence) or not all(isinstance(x, Tensor) for x in examples):
            raise UserError(f"{self.name}: received {type(examples).__name__}; expected task.examples(..), or tensors")
        if not all(x.numel() for x in examples) or not examples:
            raise UserError(f"{self.name}: received no examples; expected one or more")
        if isinstance(self.network, Network) and self._task is not None:
            longest = (self._task.prompt_length, self.answer_length)
            if [x.dim() for x in examples] != [2, 2] or any(map(operator.gt, (x.shape[1] for x in examples), longest)):
                received = ", ".join(str(tuple(x.shape)) for x in examples)
                accepted = f"tokens (N, {longest[0]}) and (N, t), t <= {longest[1]}"
                raise UserError(f"{self.name}: received {received}; expected {accepted}")
            if any(x.is_floating_point() or x.min() < 0 or x.max() >= self._task.vocab_size for x in examples):
                raise UserError(f"{self.name}: expected tokens from 0 to {self._task.vocab_size - 1}, as integers")
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
        return run_batches(self, interventions, split_batches(self.inputs(inputs), batch_size))

    def run_with_cache(
        self,
        inputs: Inputs,
        sites: str | Sequence[str] | None = None,
        interventions: Intervention | Sequence[Intervention] = (),
        *,
        include_prompt: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> tuple[Tensor, Cache]:
        """Logits (N, m, V), and the outputs of sites, site -> (N, k, ...); patterns are (N, T, nh, S), positions first.

        ``sites`` are names and patterns, such as ``dec.*.attn.z``; by default the layers, or all without layers.
        ``include_prompt`` caches all positions of a site, not only its own: P + m in a decoder-only network.
        """
        sites = expand_sites(self.sites, "all" if sites is None else sites)
        interventions = as_interventions(interventions)
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

    def resume_from(self, site: str, inputs: Inputs, batch_size: int = BATCH_SIZE) -> ResumedRun:
        """Run once up to a site. The result is a function that runs the rest of the network, with any interventions."""
        return self.resume_from_each([site], inputs, batch_size)[site]

    def resume_from_each(
        self, sites: Sequence[str], inputs: Inputs, batch_size: int = BATCH_SIZE
    ) -> dict[str, ResumedRun]:
        """`resume_from` for each of several sites, after one run for all."""
        return resume_from_each(self, sites, split_batches(self.inputs(inputs), batch_size))
