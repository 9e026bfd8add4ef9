"""Hooks on the modules of sites: edit, cache, record or store their outputs during a forward pass."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from ..errors import UserError
from ..models.network import position_axis

PURE_PARTS = ("arith_erd.models.", "torch.nn.")  # packages of modules that do nothing but return their output


@contextmanager
def edit_outputs(
    modules: Mapping[str, nn.Module], edits: Mapping[str, Callable[[Tensor], Tensor | None]], prepend: bool = True
) -> Iterator[None]:
    """Within the context, a forward pass continues with the edited outputs of sites. Edits take outputs (B, T, ...).

    An edit that returns None changes nothing. With ``prepend``, hooks registered earlier see the edited output.
    """
    ran = set[str]()

    def hook(site: str, module: nn.Module, inputs: Any, output: Any) -> Any:
        if site in ran:
            raise UserError(f"site={site}: ran twice in this forward pass; expected a submodule that runs once")
        ran.add(site)
        x = output[0] if isinstance(output, tuple | list) and output else output
        if not isinstance(x, Tensor):
            raise UserError(
                f"site={site}: returned a {type(x).__name__}; expected a tensor, or a tuple that begins with one"
            )
        axis = position_axis(module)
        if (x := edits[site](x.movedim(axis, 1) if x.dim() > 1 else x)) is None:
            return None
        if isinstance(output, Tensor):
            return x.movedim(1, axis)
        if others := [y for y in tree_leaves(output[1:]) if isinstance(y, Tensor)]:
            what = f"its output has {1 + len(others)} tensors; only the first is replaced"
            warnings.warn(f"site={site}: {what}", stacklevel=1)  # torch calls this, and its warnings may be off
        parts = (x.movedim(1, axis), *output[1:])
        return output._make(parts) if hasattr(output, "_make") else type(output)(parts)  # a named tuple, or a list

    with ExitStack() as stack:
        for site in edits:
            stack.callback(modules[site].register_forward_hook(partial(hook, site), prepend=prepend).remove)
        yield
    if missed := [site for site in edits if site not in ran]:
        raise UserError(f"site={missed[0]}: did not run in this forward pass; expected a submodule that does")


@contextmanager
def cache_outputs(modules: Mapping[str, nn.Module], sites: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Within the context a forward pass stores copies of the outputs of sites (B, T, ...), after interventions."""
    outputs: dict[str, Tensor] = {}

    def store(site: str, x: Tensor) -> None:
        outputs[site] = _copied(x)

    with edit_outputs(modules, {site: partial(store, site) for site in sites}, prepend=False):
        yield outputs


@contextmanager
def record_outputs(modules: Mapping[str, nn.Module], sites: Iterable[str]) -> Iterator[dict[str, list[Any]]]:
    """Within the context, collect copies of each site's outputs, one for each call; sites in order of completion.

    They are copied before other hooks of the modules run, as these run again on what `replay_outputs` returns.
    """
    outputs: dict[str, list[Any]] = defaultdict(list)

    def hook(site: str, module: nn.Module, inputs: Any, output: Any) -> None:
        outputs[site].append(_copied(output))

    with ExitStack() as stack:
        for site in reversed([*sites]):  # each is put before the last, so several names of a module keep their order
            stack.callback(modules[site].register_forward_hook(partial(hook, site), prepend=True).remove)
        yield outputs


@contextmanager
def replay_outputs(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Within the context these modules return copies of stored outputs and compute nothing; hooks on them still run."""
    with ExitStack() as stack:
        for module, output in outputs.items():
            stack.enter_context(patch.object(module, "forward", lambda *_, output=output, **__: _copied(output)))
        yield


def _copied(output: Any) -> Any:
    """A copy, since the network may change the output of a module in place, as ``x += y`` does."""
    return tree_map_only(Tensor, Tensor.clone, output)
