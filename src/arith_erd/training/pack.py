"""Packs: R replicas of one network, trained and evaluated together, and their compilation.

A network of 0.7M parameters leaves a GPU idle. So each parameter of a pack is the stack of its replicas' parameters,
``(R, ...)``, and one `torch.func.vmap` evaluates them all. On a CPU one replica is enough work: a compiled pack runs
its replicas one after another. Replicas are independent: each has its own initial weights and dropout masks, and Adam
on stacked parameters is R Adams (see `build_module`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch.func import stack_module_state, vmap

from ..config.job import Job
from ..digits import Array
from ..errors import bad_value
from ..interp.sites import layers
from ..losses import CrossEntropy, Loss
from ..models.dropout import dropout_keys, dropout_sites
from ..models.network import Network, initialise, shift_right
from ..seeds import RandomStream, derive_seed
from ..system.isolation import own_generator
from ..tasks import Examples, Task

DropoutKeys = tuple[Tensor, ...]  # the dropout keys of one step: one for each site of the network

MIN_OPERATIONS_TO_COMPILE = 20e12  # with fewer operations compiling does not pay on a CPU; see benchmarks/README.md
LARGE_NETWORK = 100_000  # a replica with this many parameters keeps two CPU cores busy by itself
RECOMPILE_LIMIT = 64
"""How many compiled versions of a function PyTorch keeps, one for each batch size and kind of layer.

With PyTorch's limit of eight, an interruption would decide which version runs eagerly.
"""


class Pack(nn.Module):
    """R replicas of one network, one for each seed, with the parameters of their loss."""

    replica_keys: Tensor  # (R, 2) int32; they determine every dropout mask

    def __init__(
        self,
        make_network: Callable[[], Network],
        seeds: Sequence[int],
        compile: bool = False,
        cuda_graphs: bool = False,
        loss: Loss | None = None,
    ) -> None:
        super().__init__()
        self.make_network = make_network
        self.seeds = tuple(seeds)
        networks = [initialise(make_network, seed) for seed in seeds]
        stacks, _ = stack_module_state(networks)
        self.stacked = networks[0]  # a network's own module tree, so that each stack has the plain parameter's name
        self._stack_slots = {name: _slot(self.stacked, name) for name in stacks}
        for name, (registry, leaf) in self._stack_slots.items():
            registry[leaf] = nn.Parameter(stacks[name].detach(), stacks[name].requires_grad)
        self._constant_slots = {name: _slot(self.stacked, name) for name, _ in self.stacked.named_buffers()}
        with torch.device("meta"):
            # A tuple hides it from the module registry: Lightning would try to move its meta tensors.
            self._skeleton = (make_network(),)
        self.loss = loss or CrossEntropy()
        self._key_names = [f"{site}.key" for site in dropout_sites(self.stacked)]
        names = [*self._stack_slots, *self._constant_slots, *self._key_names]
        self._slots = {name: _slot(self._skeleton[0], name) for name in names}
        keys = [[derive_seed(seed, RandomStream.DROPOUT, half) & 0x7FFFFFFF for half in (0, 1)] for seed in seeds]
        self.register_buffer("replica_keys", torch.tensor(keys, dtype=torch.int32), persistent=False)
        self._evaluate, self._train = self._logits, self._losses
        self._sequential = len(seeds) == 1  # without vmap, whose batched products are slower on a CPU
        self.compiled = self._compile_pending = compile
        self._graphs = compile and cuda_graphs

    def _compile(self) -> None:
        """Set up compilation at the first run, once the device is known.

        On a CPU layers are compiled one by one, and replicas run in turn. Equal layers share compiled code. So a layer
        stays eager if the loss has hooks inside it (torch 2.13). Elsewhere the whole pack is one graph.
        """
        self._compile_pending = False
        dynamo_config.recompile_limit = RECOMPILE_LIMIT
        inductor_config.triton.cudagraph_or_error = self._graphs  # the default silently skips what it cannot capture
        device = self.replica_keys.device
        chosen = compile_options(device, self._graphs)
        (skeleton,) = self._skeleton
        if compiles_layers(skeleton, len(self.seeds), device):
            self._sequential, sites = True, skeleton.sites()
            hooked_later = [sites[layer] for layer in layers(sites)] if self.loss.compiles == "layers" else []
            stacks = [module for module in skeleton.children() if isinstance(module, nn.ModuleList)]
            for region in [layer for stack in stacks for layer in stack] or [skeleton]:
                inside = [module for module in region.modules() if module is not region]
                if not any(module._forward_hooks or module in hooked_later for module in inside):
                    # Not `Module.compile`, so that hooks on the region itself run outside the compiled code.
                    region.forward = torch.compile(region.forward, dynamic=False, options=chosen)
        else:  # one compilation for each batch size: linear layers under vmap need a fixed one (torch 2.13)
            self._evaluate = torch.compile(self._evaluate, dynamic=False, options=chosen)
            self._train = torch.compile(self._train, dynamic=False, options=chosen)

    def forward(self, prompt: Tensor, answer_in: Tensor, step: int | None = None) -> Tensor:
        """Prompt (R, B, P) and answer_in (R, B, m), or both (B, ..) for all replicas -> logits (R, B, m, V).

        ``step`` is the optimizer step, which determines the dropout masks; None evaluates without dropout.
        """
        keys = self._prepare(step)  # first, since it may compile
        return self._evaluate(self._stacks(), keys, prompt, answer_in)

    def losses(self, prompt: Tensor, completion: Tensor, step: int, *targets: Tensor) -> Tensor:
        """The losses (R,) of an optimizer step, from prompt (R, B, P), completion (R, B, m) and targets (R, B, k)."""
        keys = self._prepare(step)
        # Inductor would keep dropout masks and the signs before each ReLU as booleans for the backward pass. On a CPU
        # it writes these one by one: 90 of the 220 ms of a compiled step. Recomputing them costs next to nothing.
        with functorch_config.patch(aggressive_recomputation=self.replica_keys.device.type == "cpu"):
            return self._train(self._stacks(), keys, prompt, completion, *targets)

    def clip_gradients(self, max_norm: float) -> None:
        """Clip each replica's gradient by its own norm, as `torch.nn.utils.clip_grad_norm_` would."""
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        norms = torch.stack([g.reshape(len(g), -1).norm(dim=1) for g in gradients]).norm(dim=0)  # (R,)
        scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))

    def dry_run(self, prompt: Tensor, completion: Tensor, *targets: Tensor, loss: bool = False) -> Tensor:
        """Logits (R, B, m, V) or losses (R,) of the first step, always by vmap and without compilation."""
        self._skeleton[0].train()
        sequential, self._sequential = self._sequential, False
        try:
            if loss:
                return self._losses(self._stacks(), self._dropout_keys(0), prompt, completion, *targets)
            return self._logits(self._stacks(), self._dropout_keys(0), prompt, shift_right(completion))
        finally:
            self._sequential = sequential

    def prepare_loss(self, task: Task, examples: Examples) -> Array | None:
        """Call `Loss.prepare`, and return its targets. Each replica gets a copy of the loss's parameters.

        Their random values are the same for every seed, so that a replica of a pack equals its solo run.
        """
        with own_generator(0):
            targets = self.loss.prepare(self._skeleton[0].eval(), task, examples)
        for name, parameter in [*self.loss.named_parameters()]:
            registry, leaf = slot = _slot(self.loss, name)
            registry[leaf] = nn.Parameter(parameter.detach().expand(len(self.seeds), *parameter.shape).clone())
            self._stack_slots[f"loss:{name}"] = self._slots[f"loss:{name}"] = slot
        return targets

    def _stacks(self) -> dict[str, Tensor]:
        """The result of ``stacked.named_parameters()``, without a walk through all modules (1% of a step on a CPU)."""
        return {name: registry[leaf] for name, (registry, leaf) in self._stack_slots.items()}

    def _swap(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Set values in the skeleton and return the old ones; on a CPU 4% of a step faster than `functional_call`."""
        before = {}
        for name, value in values.items():
            registry, leaf = self._slots[name]
            before[name], registry[leaf] = registry[leaf], value
        return before

    def _dropout_keys(self, step: int) -> DropoutKeys:
        """The dropout keys of a step, a tensor (R, 2) for each site, so that equal layers share kernels."""
        return dropout_keys(self.replica_keys, step, len(self._key_names)).unbind(1)

    def _prepare(self, step: int | None) -> DropoutKeys:
        """The dropout keys of a step; compiles before the first one, and sets the mode, training or evaluation."""
        if self._compile_pending:
            self._compile()
        (skeleton,) = self._skeleton
        if skeleton.training != (step is not None):  # `train` walks through all modules: a millisecond
            skeleton.train(step is not None)
        if self._graphs:  # they may overwrite their outputs of the previous step
            torch.compiler.cudagraph_mark_step_begin()
        return self._dropout_keys(step or 0)

    def _logits(self, parameters: dict[str, Tensor], keys: DropoutKeys, prompt: Tensor, answer_in: Tensor) -> Tensor:
        return self._map_replicas(lambda network, *tokens: network(*tokens), parameters, keys, prompt, answer_in)

    def _losses(self, parameters: dict[str, Tensor], keys: DropoutKeys, *batch: Tensor) -> Tensor:
        return self._map_replicas(self.loss, parameters, keys, *batch)

    def _map_replicas(
        self, function: Callable[..., Tensor], parameters: dict[str, Tensor], keys: DropoutKeys, *batch: Tensor
    ) -> Tensor:
        """Apply a function of a network and its part of a batch to each replica -> (R, ...)."""

        def of_replica(weights: dict[str, Tensor], own_keys: DropoutKeys, *own_batch: Tensor) -> Tensor:
            (skeleton,) = self._skeleton
            constants = {name: registry[leaf] for name, (registry, leaf) in self._constant_slots.items()}
            before = self._swap(weights | constants | dict(zip(self._key_names, own_keys, strict=True)))
            try:
                return function(skeleton, *own_batch)
            finally:
                self._swap(before)

        if not self._sequential:
            in_dims = (0, 0, *(0 if x.dim() == 3 else None for x in batch))  # None: the same batch for all replicas
            return vmap(of_replica, in_dims)(parameters, keys, *batch)
        number = len(self.seeds)
        # ``squeeze`` for one replica: ``unbind`` would copy every gradient.
        single = [[stack.squeeze(0)] if number == 1 else stack.unbind() for stack in parameters.values()]
        weights = [dict(zip(parameters, values, strict=True)) for values in zip(*single, strict=True)]
        each = (x.unbind() if x.dim() == 3 else [x] * number for x in batch)
        own_keys = zip(*(key.unbind() for key in keys), strict=True) if keys else [()] * number
        return torch.stack([of_replica(*arguments) for arguments in zip(weights, own_keys, *each, strict=True)])

    @property
    def num_parameters_each(self) -> int:
        """The number of learnable parameters of one replica."""
        return self.stacked.num_parameters // len(self.seeds)

    def replica_state(self, index: int) -> dict[str, Tensor]:
        """The weights of one replica, loadable into the plain network: a copy on the CPU."""
        return {name: stack[index].detach().cpu().clone() for name, stack in self.stacked.named_parameters()}

    def replica(self, index: int) -> Network:
        """One replica as a plain network in evaluation mode, on the pack's device."""
        network = initialise(self.make_network, self.seeds[index])
        network.load_state_dict(self.replica_state(index))
        return network.to(self.replica_keys.device).eval()


def _slot(network: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """The slot of a parameter or a buffer: the registry of its module, and its key there."""
    path, _, leaf = name.rpartition(".")
    module = network.get_submodule(path)
    return (module._parameters if leaf in module._parameters else module._buffers), leaf


# Compiling


def should_compile(job: Job, device: torch.device, steps_per_epoch: int, loss: Loss) -> bool:
    """Whether to compile. ``auto`` compiles on CUDA, and on a CPU if the run is long enough."""
    with torch.device("meta"):
        network = job.network()
    by_layer = compiles_layers(network, len(job.seeds), device)
    possible, option = loss.compiles is True or (loss.compiles == "layers" and by_layer), job.trainer.compile
    if option is True and not possible:
        raise bad_value("trainer.compile", "true", "auto or false, since this pack with this loss cannot be compiled")
    tokens = min(job.data.batch_size, job.task.size) * (job.task.prompt_length + job.task.answer_length)
    steps = steps_per_epoch * job.trainer.max_epochs
    operations = 6 * len(job.seeds) * network.num_parameters * tokens * steps  # 6 N T, the usual estimate
    pays = device.type == "cuda" or (by_layer and operations >= MIN_OPERATIONS_TO_COMPILE)
    return possible and option is not False and (option is True or pays)


def compiles_layers(network: Network, replicas: int, device: torch.device) -> bool:
    """Whether a pack is compiled as one graph per kind of layer, used by replicas in turn, not as a single graph."""
    return device.type == "cpu" and (replicas == 1 or network.num_parameters >= LARGE_NETWORK)


def compile_options(device: torch.device, cuda_graphs: bool) -> dict[str, Any]:
    # Inductor stores a result that is used twice if it takes more operations than this; else it computes it again. At
    # the default for CPUs, 50 (torch 2.13), each loop of a layer norm would hash the preceding dropout mask again.
    chosen: dict[str, Any] = {"realize_opcount_threshold": 30}
    if cuda_graphs:
        chosen["triton.cudagraphs"] = True
    if device.type == "cpu" and inductor_config.cpp.vec_isa_ok is None:  # unless TORCHINDUCTOR_VEC_ISA_OK says
        # By default Inductor compiles and loads a program for each kind of vector: 4 s.
        chosen["cpp.vec_isa_ok"] = True
    return chosen
