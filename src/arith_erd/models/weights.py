"""Weights from untrusted files, ours or the authors', read as tensors only."""

import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from ..errors import UserError, first_line
from ..tasks import Task
from .network import Network, initialise
from .transformer import Transformer

NUM_HEADS = 8  # table 2 of the paper; shapes do not show it

RENAMINGS = (  # parts of our names -> theirs, each applied in turn
    ("prompt_embedding", "encoder_embedding"),
    ("answer_embedding", "decoder_embedding"),
    ("encoder.", "encoder_layers."),
    ("decoder.", "decoder_layers."),
    ("head.", "fc."),
    ("self_attention.norm", "norm1"),
    ("cross_attention.norm", "norm2"),
    ("self_attention.sublayer", "self_attn"),
    ("cross_attention.sublayer", "cross_attn"),
    ("feed_forward.sublayer", "feed_forward"),
    (".query.", ".W_q."),
    (".key.", ".W_k."),
    (".value.", ".W_v."),
    (".out.", ".W_o."),
    (".expand.", ".fc1."),
    (".contract.", ".fc2."),
)


def load_tensors(path: Path) -> Any:
    """Load tensors and plain values from a file of safetensors or PyTorch, on the CPU. No code in it is run.

    It raises any exception if the file is damaged or contains anything else.
    """
    if path.suffix == ".safetensors":
        return load(path.read_bytes())  # `load_file` says that a file does not exist if it may not be read
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size or archive.testzip():
                raise ValueError("a wrong checksum, or compressed")  # `torch.load` ignores both
    with warnings.catch_warnings(action="ignore"):  # our own error is enough
        return torch.load(path, map_location="cpu", weights_only=True)


def read_state(path: Path, source: str) -> dict[str, Tensor]:
    """Read a state dict, name -> tensor, by `load_tensors`; a `UserError` names ``source`` if the file holds none."""
    try:
        state: dict[str, Tensor] = dict(load_tensors(path))
        if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()):
            raise TypeError("more than tensors by name")
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        damaged = "damaged, or more than tensors (none of it was run)"
        what = error.strerror or first_line(error) if isinstance(error, OSError) else damaged
        raise UserError(f"{source}: {what}; expected a state dict, tensors by name") from error
    return state


def checked_state(
    state: Mapping[Any, Any], shapes: Mapping[str, torch.Size], source: str, wanted: str = "its config.yaml"
) -> dict[str, Tensor]:
    """Check that a state dict has a network's names and shapes, with floating-point numbers in memory, and return it.

    Otherwise a `UserError` names the tensors of ``source`` that do not fit the network that ``wanted`` defines.
    """
    expected_shapes = {name: tuple(shape) for name, shape in shapes.items()}
    found_shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if is_float_tensor(tensor)}
    names = expected_shapes.keys() | state.keys()
    wrong = sorted(str(x) for x in names if expected_shapes.get(x) != found_shapes.get(x, "no tensor"))
    if wrong:
        raise UserError(f"{source}: weights do not fit {wanted}: {', '.join(wrong[:5])}")
    return dict(state)


def network_from_file(make: Callable[[], Network], path: Path, source: str, wanted: str) -> Network:
    """Make a network and load a state dict after `checked_state`, in the precision of the file."""
    state = checked_state(read_state(path, source), state_shapes(make), source, wanted)
    network = initialise(make, 0)
    network.load_state_dict(state, assign=True)
    return network


def load_authors_network(path: Path, task: Task, source: str = "the file") -> Transformer:
    """Load a model of the authors, in evaluation mode on the CPU. Its width and depth follow from the shapes.

    Their buffers (positions and causal mask) have fixed values, which our network computes itself. Only the shapes of
    the positions are used: they show the model's lengths of prompt and answer. Nothing else about the task can be
    checked, so addition and random output are indistinguishable. The file is read as tensors only, so no code in it can
    run. A `UserError` names ``source``, and the keys that are missing, unknown or of the wrong shape.
    """
    state = read_state(path, source)
    state.pop("nopeak_mask", None)
    width = [tensor.shape[-1] for name, tensor in state.items() if name == "fc.weight" and tensor.dim()]
    # A file without a width is taken for one of the default size, so that the error lists what is missing.
    d_model = width[0] if width and width[0] and width[0] % NUM_HEADS == 0 else 64
    stacks = ("encoder_layers.", "decoder_layers.")
    depth = max(len({key.split(".")[1] for key in state if key.startswith(stack)}) for stack in stacks)
    depth = min(max(1, depth), 64)  # an untrusted file can name any number of layers
    make = partial(Transformer, task.prompt_length, task.width, d_model, NUM_HEADS, depth, vocab_size=task.vocab_size)
    shapes = state_shapes(make)
    positions = {
        "enc_positional_encoding.pe": torch.Size((1, task.prompt_length, d_model)),
        "dec_positional_encoding.pe": torch.Size((1, task.width + 1, d_model)),
    }
    expected = {authors_name(name): shape for name, shape in shapes.items()} | positions
    wanted = f"the authors' state dict for task={task.name} at task.bits={task.bits}"
    state = checked_state(state, expected, source, wanted)
    network = initialise(make, 0)
    network.load_state_dict({name: state[authors_name(name)] for name in shapes})
    return network.eval()


def authors_name(name: str) -> str:
    """The authors' name of a parameter of our `Transformer`.

    Our ``decoder.0.cross_attention.sublayer.query.weight`` is their ``decoder_layers.0.cross_attn.W_q.weight``.
    """
    for ours, theirs in RENAMINGS:
        name = name.replace(ours, theirs)
    return name.replace("feed_forward.norm", "norm2" if name.startswith("encoder") else "norm3")


def state_shapes(make: Callable[[], Network]) -> dict[str, torch.Size]:
    """The shapes of a network's weights, without allocating it: an untrusted file may ask for any size."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in make().state_dict().items()}


def epochs_done(checkpoint: Any) -> int:
    return int(checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"])


def is_float_tensor(tensor: Any) -> bool:
    """Whether it is a dense tensor of real floating-point numbers in memory (not on ``meta``)."""
    dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_nested
    return dense and tensor.is_floating_point() and not tensor.is_meta
