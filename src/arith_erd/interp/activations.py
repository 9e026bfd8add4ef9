"""Read and replace what a network computes, from outside.

A site is an entry of ``network.sites()``: the layers ``enc.3`` and ``dec.3``, and the places inside them, named as in
TransformerLens: ``dec.3.attn.pattern``, ``dec.3.resid_mid``, ``dec.3.mlp.post``, ... ``logits``. The output of a site
is (B, T, ...); attention patterns are (B, nh, T, S). The *embedding* at a site has one row for each example: at
``enc.*`` all P prompt positions, concatenated; elsewhere the m positions that predict the answer. In a decoder-only
network the prompt precedes these positions in all layers but the last. Embeddings leave the prompt out, and
replacements do not change it, unless ``last`` says how many of the last positions to take.

Two lines read, erase and measure::

    x = embeddings(network, prompt, answer_in, ["dec.3"])["dec.3"]  # (N, m * C)
    logits = logits_from(network, "dec.3", eraser(x), prompt, answer_in)  # (N, m, V)

`Continuation` repeats the second line and recomputes only the layers above the site.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.hook_point import position_axis
from ..models.network import Network

BATCH = 2048
Forward = Callable[..., Tensor]


def layers(network: Network) -> list[str]:
    """The sites that are whole layers, in the order in which they run: ``enc.1`` .. ``dec.6``."""
    return [site for site in network.sites() if re.fullmatch(r"[a-z]+\.[0-9]+", site)]


def layer_of(network: Network, site: str) -> str | None:
    """The layer that contains a site: ``dec.3`` for ``dec.3`` and ``dec.3.mlp.post``; None outside the layers."""
    return next((layer for layer in layers(network) if f"{site}.".startswith(f"{layer}.")), None)


def check_sites(network: Network, sites: Iterable[str]) -> None:
    """Raise a UserError that lists the network's sites if it lacks one of ``sites``."""
    known = network.sites()
    if unknown := [site for site in sites if site not in known]:
        inside = sorted({site.removeprefix(f"{layer_of(network, site)}.") for site in known} - {*layers(network)})
        listed = (
            f"{', '.join(layers(network)) or 'no layers'}; in layers and beside them: {', '.join(inside) or 'none'}"
        )
        raise UserError(f"site {', '.join(unknown)}: this model has {listed}; set probe.site")


def chosen_sites(networks: Sequence[Network], site: str | Sequence[str]) -> list[str]:
    """The sites that ``probe.site`` names: one, a list of them, or ``all`` layers of the networks.

    Raises:
        UserError: if a network lacks one of them.
    """
    sites = layers(networks[0]) if site == "all" else [site] if isinstance(site, str) else [*dict.fromkeys(site)]
    for network in networks:
        check_sites(network, sites)
    return sites


@contextmanager
def capture(network: Network, sites: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Within the context each forward pass stores the outputs (B, T, ...) of ``sites`` in the yielded dictionary.

    Raises:
        UserError: if the network lacks one of the sites.
    """
    check_sites(network, sites)
    outputs: dict[str, Tensor] = {}

    def keep(site: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            outputs[site] = output

        return hook

    handles = [network.sites()[site].register_forward_hook(keep(site)) for site in sites]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def replace(network: Network, site: str, value: Tensor | Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the context the last k positions of the output of ``site`` are replaced; earlier ones stay.

    Args:
        value: (B, k, ...), or for a pattern (B, nh, k, S); or a function of the whole output that returns them.

    Raises:
        UserError: if the network lacks the site.
        ValueError: in the forward, if the replacement does not fit the output.
    """
    check_sites(network, [site])
    axis = position_axis(network.sites()[site])

    def hook(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        new = value if isinstance(value, Tensor) else value(output)
        lead = output.shape[axis] - new.shape[axis]
        if lead < 0 or new.shape != output.narrow(axis, lead, new.shape[axis]).shape:
            raise ValueError(f"replacement {tuple(new.shape)} does not fit {site}, which gives {tuple(output.shape)}")
        return torch.cat([output.narrow(axis, 0, lead), new], dim=axis)

    handle = network.sites()[site].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def positions(site: str, prompt: Tensor, answer_in: Tensor) -> int:
    """Number of positions in the embedding at a site: P in the encoder, m anywhere else."""
    return (prompt if site.startswith("enc.") else answer_in).shape[-1]


def _batches(prompt: Tensor, answer_in: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(prompt, batch_size), torch.split(answer_in, batch_size), strict=True)


@torch.no_grad()
def embeddings(
    network: Network,
    prompt: Tensor,
    answer_in: Tensor,
    sites: Sequence[str],
    batch_size: int = BATCH,
    last: int | None = None,
) -> dict[str, Tensor]:
    """Embeddings of N examples, prompts (N, P) with decoder inputs (N, m): site -> (N, k * ...).

    A row concatenates the last k positions, by default as many as `positions` says; the numbers of one position are
    adjacent. With ``last=P + m`` it includes the prompt's positions in a decoder-only network.

    Raises:
        UserError: if the network lacks one of the sites.
    """
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}
    axes = {site: position_axis(module) for site, module in network.sites().items()}
    with capture(network, sites) as outputs:
        for p, a in _batches(prompt, answer_in, batch_size):
            network(p, a)
            for site, output in outputs.items():
                by_position = output.movedim(axes[site], 1)  # (B, T, ...)
                parts[site].append(by_position[:, -(last or positions(site, p, a)) :].flatten(1))  # (B, k * ...)
    return {site: torch.cat(batches) for site, batches in parts.items()}


def _skip(x: Tensor, *context: Tensor) -> Tensor:
    return x


def _constant(output: Tensor) -> Forward:
    return lambda x, *context: output


@contextmanager
def _stand_in(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Within the context these functions replace the forwards of modules.

    A hook could change the output but would not skip the computation.
    """
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module in forwards:
            vars(module).pop("forward", None)


class Continuation:
    """The forward pass from a site on, for given embeddings; the layers below the site run once.

    The logits of the original embedding are those of the network, bit for bit, if both run in the same batches and no
    pattern or head is watched. It assumes that layers run in the order of `layers`, each on the previous output. At a
    site outside the layers the whole network runs.

    Args:
        network: in evaluation mode.
        site: where embeddings go.
        prompt: (N, P).
        answer_in: (N, m), ``<start> r_0 .. r_{m-2}``.
        last: positions of an embedding, as in `embeddings`.

    Raises:
        UserError: if the network lacks the site.
    """

    @torch.no_grad()
    def __init__(
        self,
        network: Network,
        site: str,
        prompt: Tensor,
        answer_in: Tensor,
        batch_size: int = BATCH,
        last: int | None = None,
    ) -> None:
        check_sites(network, [site])
        self.network = network
        self.site = site
        self.positions = last or positions(site, prompt, answer_in)
        self.batch_size = batch_size
        self._encoder = site.startswith("enc.")
        layer = layer_of(network, site)
        stack = [name for name in layers(network) if layer and name.split(".")[0] == layer.split(".")[0]]
        place = stack.index(layer) if layer else 0
        self._above = stack[place + 1 :]
        # The last site whose output is reused: the layer itself, or for a site inside it the layer below.
        known = stack[: place + 1] if site == layer else stack[:place]
        self._below, self._known = known[:-1], known[-1] if known else None
        self._batches = [(p, a, *self._before(p, a)) for p, a in _batches(prompt, answer_in, batch_size)]

    def _before(self, prompt: Tensor, answer_in: Tensor) -> tuple[Tensor, Tensor | None, torch.Size]:
        """The input of `decode`, the output (B, T, C) of the last known layer, and the shape of the site's output.

        The layer's output lacks the positions of its embedding, since they are replaced.
        """
        sites = self.network.sites()
        watched = [self.site] + ([self._known] if self._known else [])
        memory = prompt if self._encoder else self.network.encode(prompt)
        with capture(self.network, watched) as outputs, _stand_in({sites[name]: _skip for name in self._above}):
            self.network.decode(self.network.encode(prompt) if self._encoder else memory, answer_in)
        known = outputs[self._known] if self._known else None
        if known is not None and self._known == self.site:
            known = known[:, : -self.positions].clone()  # a clone frees the rest
        return memory, known, outputs[self.site].movedim(position_axis(sites[self.site]), 1).shape

    def __call__(self, embedding: Tensor) -> Tensor:
        """Embeddings (N, k * ...), of any floating type -> logits (N, m, V), differentiable in the embeddings.

        ``backward(inputs=...)`` and `autograd.grad` keep the gradient off the network's weights.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and embedding.requires_grad):
            return self._run(embedding)

    def _run(self, embedding: Tensor) -> Tensor:
        sites = self.network.sites()
        dtype = next(self.network.parameters()).dtype
        logits = []
        parts = torch.split(embedding.to(dtype), self.batch_size)
        for (prompt, answer_in, memory, known, shape), part in zip(self._batches, parts, strict=True):
            new = part.reshape(len(part), self.positions, *shape[2:])  # (B, k, ...)
            stand_ins: dict[nn.Module, Forward] = {sites[name]: _skip for name in self._below}
            with ExitStack() as stack:
                if self._known is not None and known is not None:
                    whole = torch.cat([known, new], dim=1) if self._known == self.site else known  # (B, T, C)
                    stand_ins[sites[self._known]] = _constant(whole)
                if self._known != self.site:
                    value = new.movedim(1, position_axis(sites[self.site]))
                    stack.enter_context(replace(self.network, self.site, value))
                stack.enter_context(_stand_in(stand_ins))
                memory = self.network.encode(prompt) if self._encoder else memory
                logits.append(self.network.decode(memory, answer_in))
        return torch.cat(logits)


def logits_from(
    network: Network, site: str, embedding: Tensor, prompt: Tensor, answer_in: Tensor, batch_size: int = BATCH
) -> Tensor:
    """Logits (N, m, V) with ``embedding`` (N, k * ...) as the output of ``site``, at the cost of one forward pass.

    For many embeddings of the same examples make one `Continuation`.
    """
    return Continuation(network, site, prompt, answer_in, batch_size)(embedding)
