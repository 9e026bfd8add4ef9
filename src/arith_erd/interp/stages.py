"""A network as a list of stages. The residual stream after each can be read, changed, and run on to the logits.

Stages are finer than layers: there is one after every sublayer. For the encoder-decoder they are
``enc.1.self``, ``enc.1``, .. and ``dec.1.self``, ``dec.1.cross``, ``dec.1``, ..; for the decoder-only model
``dec.1.self``, ``dec.1``, .. . The last stage of a layer has the name of its site.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..models import NanoGPT, Network, Transformer
from ..models.nanogpt import Block
from ..models.transformer import DecoderLayer, EncoderLayer

BATCH = 256


@dataclass(frozen=True)
class State:
    """The residual stream after a stage, and the other inputs of later stages.

    Attributes:
        x: (B, T, C); after ``dec.*`` the last m positions predict the answer.
        memory: the encoder's output (B, P, C); None in the encoder, and for a decoder-only model.
        answer_in: (B, m).
    """

    x: Tensor
    memory: Tensor | None
    answer_in: Tensor


Stage = Callable[[State], State]


class Stages:
    """The stages of a network in evaluation mode.

    Args:
        network: a `Transformer` or a `NanoGPT`; its sublayers are known.

    Attributes:
        names: of the stages, in the order in which they run.
    """

    def __init__(self, network: Network) -> None:
        if not isinstance(network, Transformer | NanoGPT):
            raise TypeError(f"{type(network).__name__} has no stages")
        self.network = network
        of_stages = _of_nanogpt(network) if isinstance(network, NanoGPT) else _of_transformer(network)
        self._stages: dict[str, Stage] = dict(of_stages)
        self.names = tuple(self._stages)

    def positions(self, name: str, state: State) -> slice:
        """The positions of the stream to read after a stage: the prompt's in the encoder, else the answer's."""
        return slice(None) if name.startswith("enc.") else slice(-state.answer_in.shape[1], None)

    @torch.no_grad()
    def run(self, prompt: Tensor, answer_in: Tensor) -> tuple[dict[str, State], Tensor]:
        """Prompts (B, P) and decoder inputs (B, m) -> the state after each stage, and logits (B, m, V)."""
        state = self._start(prompt, answer_in)
        states = {}
        for name, stage in self._stages.items():
            state = states[name] = stage(state)
        return states, self._logits(state)

    @torch.no_grad()
    def run_on(self, name: str, state: State) -> Tensor:
        """The state after the stage ``name``, changed or not -> logits (B, m, V)."""
        for later in self.names[self.names.index(name) + 1 :]:
            state = self._stages[later](state)
        return self._logits(state)

    def answers(self, name: str, state: State, batch_size: int = BATCH) -> Tensor:
        """The same, in batches -> the likeliest tokens (B, m)."""
        parts = []
        for part in torch.arange(len(state.x), device=state.x.device).split(batch_size):
            memory = None if state.memory is None else state.memory[part]
            parts.append(self.run_on(name, State(state.x[part], memory, state.answer_in[part])).argmax(-1))
        return torch.cat(parts)

    def _start(self, prompt: Tensor, answer_in: Tensor) -> State:
        network = self.network
        if isinstance(network, Transformer):
            return State(network.positions(network.prompt_embedding(prompt)), None, answer_in)
        assert isinstance(network, NanoGPT)
        x = network.embedding(torch.cat([prompt, answer_in], dim=-1))
        if network.positions is not None:
            x = x + network.positions.weight[: x.shape[-2]]
        return State(x, None, answer_in)

    def _logits(self, state: State) -> Tensor:
        network = self.network
        if isinstance(network, Transformer):
            return network.head(state.x)
        assert isinstance(network, NanoGPT)
        x = state.x[:, -state.answer_in.shape[1] :]
        return network.norm(x) @ network.embedding.weight.T


def _of_transformer(network: Transformer) -> Iterator[tuple[str, Stage]]:
    for number, layer in enumerate(network.encoder, 1):
        assert isinstance(layer, EncoderLayer)
        yield f"enc.{number}.self", _self_attention(layer.self_attention, None)
        yield f"enc.{number}", _feed_forward(layer.feed_forward)
    for number, layer in enumerate(network.decoder, 1):
        assert isinstance(layer, DecoderLayer)
        attention = _self_attention(layer.self_attention, network.future)
        yield f"dec.{number}.self", _first_of_decoder(network, attention) if number == 1 else attention
        yield f"dec.{number}.cross", _cross_attention(layer.cross_attention)
        yield f"dec.{number}", _feed_forward(layer.feed_forward)


def _of_nanogpt(network: NanoGPT) -> Iterator[tuple[str, Stage]]:
    for number, block in enumerate(network.blocks, 1):
        assert isinstance(block, Block)
        last = number == len(network.blocks)
        if block.attention is not None:
            yield f"dec.{number}.self", _masked(block.attention, network, last)
        if block.feed_forward is not None:
            yield f"dec.{number}", _feed_forward(block.feed_forward)


def _self_attention(part: nn.Module, future: Tensor | None) -> Stage:
    return lambda s: State(part(s.x, s.x, *([] if future is None else [future])), s.memory, s.answer_in)


def _cross_attention(part: nn.Module) -> Stage:
    return lambda s: State(part(s.x, s.memory), s.memory, s.answer_in)


def _feed_forward(part: nn.Module) -> Stage:
    return lambda s: State(part(s.x), s.memory, s.answer_in)


def _first_of_decoder(network: Transformer, attention: Stage) -> Stage:
    """The encoder's output becomes the memory, and the answer's embeddings become the stream."""

    def stage(s: State) -> State:
        answer = network.positions(network.answer_embedding(s.answer_in))
        return attention(State(answer, s.x, s.answer_in))

    return stage


def _masked(part: nn.Module, network: NanoGPT, last: bool) -> Stage:
    """Causal attention; the last block updates only the answer's positions, as in the network."""

    def stage(s: State) -> State:
        length = s.x.shape[-2]
        future = network.future[:length, :length]
        kept = length - network.prompt_length if last else length
        return State(part(s.x, future, last=kept), None, s.answer_in)

    return stage
