"""The authors' trained models: their state dict, under their names, as our `Transformer`.

``decoder_layers.0.cross_attn.W_q.weight`` is our ``decoder.0.cross_attention.sublayer.query.weight``.
Their buffers (positions and causal mask) have fixed values, which our network computes itself. Only the shapes of the
positions are used: they show the lengths of prompt and answer that a model was made for.
"""

from functools import partial
from pathlib import Path

import torch

from ..tasks import Task
from .transformer import Transformer
from .weights import checked_state, read_state, shapes_of

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


def authors_name(name: str) -> str:
    """The authors' name of a parameter of our `Transformer`."""
    for ours, theirs in RENAMINGS:
        name = name.replace(ours, theirs)
    return name.replace("feed_forward.norm", "norm2" if name.startswith("encoder") else "norm3")


def load_authors_network(path: str | Path, task: Task) -> Transformer:
    """A model of the authors, in evaluation mode on the CPU. Its width and depth follow from the shapes.

    The file is read as tensors only, so that no code in it can run. Of the task only the lengths of prompt and answer
    can be checked, so addition and random output are indistinguishable. Anything but such a state dict is a
    `UserError`, which names the keys that are missing, foreign or misshapen.
    """
    state = read_state(Path(path), "a PyTorch state dict")
    state.pop("nopeak_mask", None)
    width = [tensor.shape[-1] for name, tensor in state.items() if name == "fc.weight" and tensor.dim()]
    # A file without a width is taken for one of the default size, so that the error lists what is missing.
    d_model = width[0] if width and width[0] and width[0] % NUM_HEADS == 0 else 64
    stacks = ("encoder_layers.", "decoder_layers.")
    depth = max(len({key.split(".")[1] for key in state if key.startswith(stack)}) for stack in stacks)
    depth = min(max(1, depth), 64)  # an untrusted file can name any number of layers
    lengths = (task.prompt_length, task.width)
    make = partial(Transformer, *lengths, d_model, NUM_HEADS, depth, vocab_size=task.vocab_size)
    shapes = shapes_of(make)
    positions = {
        "enc_positional_encoding.pe": torch.Size((1, task.prompt_length, d_model)),
        "dec_positional_encoding.pe": torch.Size((1, task.width + 1, d_model)),
    }
    expected = {authors_name(name): shape for name, shape in shapes.items()} | positions
    wanted = f"the authors' state dict for task={task.name} at task.bits={task.bits}"
    state = checked_state(state, expected, f"checkpoint={path}", wanted)
    network = make()
    network.load_state_dict({name: state[authors_name(name)] for name in shapes})
    return network.eval()
