"""Read and replace what the layers of a network give, from outside.

Any entry of ``network.sites()`` will do. Its output is (B, T, C). The *embedding* at a site is a row for each example:
at ``enc.*`` all P prompt positions, concatenated (P * C); at ``dec.*`` the m positions that predict the answer (m * C).
A decoder-only network has the prompt in front of those, but for its last site; an embedding leaves it out and a
replacement leaves it alone.

Two lines read, erase and measure::

    x = embeddings(network, prompt, answer_in, ["dec.3"])["dec.3"]  # (N, m * C)
    logits = logits_from(network, "dec.3", eraser(x), prompt, answer_in)  # (N, m, V)

and a `Continuation` does the second of them many times over for the price of the layers above the site.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.network import Network

BATCH = 2048
Forward = Callable[..., Tensor]


def check_sites(network: Network, sites: Iterable[str]) -> None:
    """Raise a UserError that lists the sites of the network, unless all of ``sites`` are among them."""
    known = network.sites()
    if unknown := [site for site in sites if site not in known]:
        raise UserError(f"site {', '.join(unknown)}: this model has {', '.join(known) or 'none'}; set probe.site")


@contextmanager
def capture(network: Network, sites: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Within the context each forward leaves the whole outputs (B, T, C) of ``sites`` in the yielded dictionary.

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
    """Within the context the last k positions of what ``site`` gives are replaced; those before them stay.

    Args:
        value: (B, k, C), or a function of the whole output (B, T, C) that returns them.

    Raises:
        UserError: if the network lacks the site.
        ValueError: in the forward, if the replacement does not fit the output.
    """
    check_sites(network, [site])

    def hook(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        new = value if isinstance(value, Tensor) else value(output)
        lead = output.shape[1] - new.shape[1]
        if lead < 0 or new.shape != output[:, lead:].shape:
            raise ValueError(f"replacement {tuple(new.shape)} does not fit {site}, which gives {tuple(output.shape)}")
        return torch.cat([output[:, :lead], new], dim=1)

    handle = network.sites()[site].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def positions(site: str, prompt: Tensor, answer_in: Tensor) -> int:
    """How many positions make up the embedding at a site: P in the encoder, m in the decoder."""
    return (prompt if site.startswith("enc.") else answer_in).shape[-1]


def _batches(prompt: Tensor, answer_in: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(prompt, batch_size), torch.split(answer_in, batch_size), strict=True)


@torch.no_grad()
def embeddings(
    network: Network, prompt: Tensor, answer_in: Tensor, sites: Sequence[str], batch_size: int = BATCH
) -> dict[str, Tensor]:
    """Embeddings of N examples, prompts (N, P) with decoder inputs (N, m): site -> (N, k * C), k as `positions`.

    Raises:
        UserError: if the network lacks one of the sites.
    """
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}
    with capture(network, sites) as outputs:
        for p, a in _batches(prompt, answer_in, batch_size):
            network(p, a)
            for site, output in outputs.items():
                parts[site].append(output[:, -positions(site, p, a) :].flatten(1))  # (B, k * C)
    return {site: torch.cat(batches) for site, batches in parts.items()}


def _skip(x: Tensor, *context: Tensor) -> Tensor:
    return x


def _constant(output: Tensor) -> Forward:
    return lambda x, *context: output


@contextmanager
def _stand_in(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Within the context the modules run these functions; a hook could change their output, not spare the work."""
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module in forwards:
            vars(module).pop("forward", None)


class Continuation:
    """The forward from a site on, for embeddings put in its place; what lies before the site is computed once.

    The logits of the original embedding are those of the network, bit for bit, if both run in the same batches.
    It rests on the layers of a stack running in the order of ``sites()``, each on the positions that the one before
    gives.

    Args:
        network: in evaluation mode.
        site: where embeddings go.
        prompt: (N, P).
        answer_in: (N, m), ``<start> r_0 .. r_{m-2}``.

    Raises:
        UserError: if the network lacks the site.
    """

    @torch.no_grad()
    def __init__(self, network: Network, site: str, prompt: Tensor, answer_in: Tensor, batch_size: int = BATCH) -> None:
        check_sites(network, [site])
        stack = [name for name in network.sites() if name.split(".")[0] == site.split(".")[0]]
        self.network = network
        self.site = site
        self.positions = positions(site, prompt, answer_in)
        self.batch_size = batch_size
        self._encoder = site.startswith("enc.")
        self._below = stack[: stack.index(site)]
        self._above = stack[stack.index(site) + 1 :]
        self._batches = [(p, a, *self._before(p, a)) for p, a in _batches(prompt, answer_in, batch_size)]

    def _before(self, prompt: Tensor, answer_in: Tensor) -> tuple[Tensor, Tensor | None]:
        """What decoding starts from, and the positions (B, T - k, C) that a decoder has before the embedding."""
        if self._encoder:
            return prompt, None
        memory = self.network.encode(prompt)
        sites = self.network.sites()
        with capture(self.network, [self.site]) as outputs, _stand_in({sites[name]: _skip for name in self._above}):
            self.network.decode(memory, answer_in)
        return memory, outputs[self.site][:, : -self.positions].clone()  # a clone lets go of the rest

    @torch.no_grad()
    def __call__(self, embedding: Tensor) -> Tensor:
        """Embeddings (N, k * C), of any floating type -> logits (N, m, V)."""
        sites = self.network.sites()
        dtype = next(self.network.parameters()).dtype
        logits = []
        parts = torch.split(embedding.to(dtype), self.batch_size)
        for (prompt, answer_in, memory, lead), part in zip(self._batches, parts, strict=True):
            output = part.reshape(len(part), self.positions, -1)  # (B, k, C)
            if lead is not None:
                output = torch.cat([lead, output], dim=1)  # (B, T, C)
            stand_ins = {sites[name]: _skip for name in self._below} | {sites[self.site]: _constant(output)}
            with _stand_in(stand_ins):
                memory = self.network.encode(prompt) if self._encoder else memory
                logits.append(self.network.decode(memory, answer_in))
        return torch.cat(logits)


def logits_from(
    network: Network, site: str, embedding: Tensor, prompt: Tensor, answer_in: Tensor, batch_size: int = BATCH
) -> Tensor:
    """Logits (N, m, V) when ``site`` gives ``embedding`` (N, k * C); the cost is that of one forward.

    For many embeddings of the same examples make one `Continuation`.
    """
    return Continuation(network, site, prompt, answer_in, batch_size)(embedding)
