"""Whether a pack is compiled, in which pieces, and with which options of Inductor, the compiler of `torch.compile`."""

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from ..config.job import Job
from ..models.network import Network

LONG = 20e12  # operations from which compiling pays on a CPU; see benchmarks/README.md
LARGE = 100_000  # parameters from which a replica keeps two CPU cores busy by itself


def wants_compile(job: Job, device: torch.device, steps_per_epoch: int) -> bool:
    """Whether to compile; ``auto`` does so on CUDA, and on a CPU with a C++ compiler if a run is long enough."""
    option = job.trainer.compile
    if option != "auto":
        return bool(option)
    if device.type == "cuda":
        return True
    with torch.device("meta"):
        network = job.network()
    parameters = len(job.seeds) * sum(p.numel() for p in network.parameters())
    tokens = min(job.data.batch_size, job.task.size) * (job.task.prompt_length + job.task.answer_length)
    long = 6 * parameters * tokens * steps_per_epoch * job.trainer.max_epochs >= LONG  # 6 N T, the usual estimate
    return long and compiles_layers(network, len(job.seeds), device) and _has_compiler()


def _has_compiler() -> bool:
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    return headers and shutil.which(os.environ.get("CXX", "g++")) is not None


def compiles_layers(network: nn.Module, replicas: int, device: torch.device) -> bool:
    """Whether a compiled pack is a graph for each kind of layer, used by replicas in turn, or one graph of all."""
    large = sum(parameter.numel() for parameter in network.parameters()) >= LARGE
    return device.type == "cpu" and (replicas == 1 or large)


def regions(network: Network) -> list[nn.Module]:
    """The modules to compile: the layers that a network repeats, or the whole network if it has none."""
    stacks = [module for module in network.children() if isinstance(module, nn.ModuleList)]
    return [layer for stack in stacks for layer in stack] or [network]


class AddBiasLater(CustomGraphPass):
    """Leave a bias out of the matrix product, for the loop that reads the product to add: 3% of a step on a CPU.

    In 16 bits the product would be rounded once more, so there the bias stays. On GPUs Inductor does this by itself.
    """

    def __call__(self, graph: torch.fx.Graph) -> None:
        aten = torch.ops.aten
        for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
            if node.kwargs or node.meta["val"].dtype.itemsize < 4:  # scaled, or rounded
                continue
            bias, *factors = node.args
            with graph.inserting_before(node):
                product = graph.call_function(aten.mm.default, tuple(factors))
                total = graph.call_function(aten.add.Tensor, (product, bias))
            product.meta, total.meta = node.meta.copy(), node.meta.copy()
            node.replace_all_uses_with(total)
            graph.erase_node(node)

    def uuid(self) -> bytes:
        """Changes with this file, so that code compiled before a change is not reused."""
        return get_hash_for_files((__file__,))


ADD_BIAS_LATER = AddBiasLater()  # the only one: packs share compiled code if their options are equal


def options(device: torch.device, cuda_graphs: bool) -> dict[str, Any]:
    """The options of `torch.compile`."""
    # Inductor keeps a result of more operations than this that is used twice, and computes others again. At the default
    # for CPUs, 50 (torch 2.13), each loop of a layer norm would hash the dropout mask before it anew.
    chosen: dict[str, Any] = {"realize_opcount_threshold": 30}
    if cuda_graphs:
        chosen["triton.cudagraphs"] = True
    if device.type == "cpu":
        chosen["post_grad_custom_post_pass"] = ADD_BIAS_LATER
        if inductor_config.cpp.vec_isa_ok is None:  # unless TORCHINDUCTOR_VEC_ISA_OK says
            # By default Inductor compiles and loads a program for each kind of vector: 4 s.
            chosen["cpp.vec_isa_ok"] = True
    return chosen
