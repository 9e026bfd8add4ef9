"""A pack of encoder-decoder Transformers in JAX, the peer of ours: same network, loss, dropout masks and Adam.

Its parameters have our names and shapes, so our initial weights are its own. One replica is a function of its
parameters; `jax.vmap` makes a pack of it, `jax.jit` compiles a whole training step, optimiser included. Loads no torch.

Other ways to write its attention and its dropout were no quicker: see the README beside this file.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from arith_erd.bits import START, Array

Parameters = dict[str, jax.Array]
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Recipe:
    """What the weights do not tell: of the network, and Adam's options."""

    heads: int
    layers: int
    dropout: float
    lr: float
    betas: tuple[float, float]
    eps: float

    @property
    def sites(self) -> int:
        """Where dropout is applied: on two embeddings, and in each layer on two sublayers or three."""
        return 2 + 5 * self.layers


@dataclass
class Network:
    """One replica of a recipe, with its weights; ``keys`` (sites, 2) uint32, or None to evaluate without dropout.

    Dropout sites are counted in the order in which our network defines them.
    """

    recipe: Recipe
    p: Parameters
    keys: jax.Array | None

    def logits(self, prompt: jax.Array, answer_in: jax.Array) -> jax.Array:
        """Tokens (B, P) and (B, m) -> (B, m, V)."""
        memory, x = self.embed("prompt", prompt, site=0), self.embed("answer", answer_in, site=1)
        site = 2
        for i in range(self.recipe.layers):
            memory = self.attend(f"encoder.{i}.self_attention", memory, memory, site)
            memory = self.feed_forward(f"encoder.{i}.feed_forward", memory, site + 1)
            site += 2
        for i in range(self.recipe.layers):
            x = self.attend(f"decoder.{i}.self_attention", x, x, site, causal=True)
            x = self.attend(f"decoder.{i}.cross_attention", x, memory, site + 1)
            x = self.feed_forward(f"decoder.{i}.feed_forward", x, site + 2)
            site += 3
        return self.linear("head", x)

    def embed(self, which: str, tokens: jax.Array, site: int) -> jax.Array:
        x = self.p[f"{which}_embedding.weight"][tokens]
        return self.drop(x + positions(*x.shape[1:]).astype(x.dtype), site)

    def attend(self, name: str, x: jax.Array, memory: jax.Array, site: int, causal: bool = False) -> jax.Array:
        """Attention and what follows each sublayer: dropout, the residual sum, a norm."""
        q, k, v = (
            self.linear(f"{name}.sublayer.{which}", y).reshape(*y.shape[:2], self.recipe.heads, -1)
            for which, y in (("query", x), ("key", memory), ("value", memory))
        )  # (B, T, nh, hs)
        scores = jnp.einsum("bthd,bshd->bhts", q / math.sqrt(q.shape[-1]), k)
        if causal:
            scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -jnp.inf)
        z = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
        return self.norm(name, x, self.linear(f"{name}.sublayer.out", z.reshape(x.shape)), site)

    def feed_forward(self, name: str, x: jax.Array, site: int) -> jax.Array:
        hidden = jax.nn.relu(self.linear(f"{name}.sublayer.expand", x))
        return self.norm(name, x, self.linear(f"{name}.sublayer.contract", hidden), site)

    def norm(self, name: str, x: jax.Array, change: jax.Array, site: int) -> jax.Array:
        x = x + self.drop(change, site)
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + NORM_EPS)
        return centred * scale * self.p[f"{name}.norm.weight"] + self.p[f"{name}.norm.bias"]

    def linear(self, name: str, x: jax.Array) -> jax.Array:
        return x @ self.p[f"{name}.weight"].T + self.p[f"{name}.bias"]

    def drop(self, x: jax.Array, site: int) -> jax.Array:
        """Inverted dropout with the mask of `arith_erd.models.dropout.keep_mask`."""
        rate = self.recipe.dropout
        if self.keys is None or rate == 0:
            return x
        key, half = self.keys[site], (x.size + 1) // 2
        index = jnp.arange(x.size, dtype=jnp.uint32)
        second = index >= half
        random = hash32(jnp.where(second, index - half, index) + key[0], key[1])
        keep = jnp.where(second, random >> 16, random & 0xFFFF) >= min(round(rate * (1 << 16)), (1 << 16) - 1)
        return jnp.where(keep.reshape(x.shape), x * (1 / (1 - rate)), 0)


def hash32(x: jax.Array, key: jax.Array) -> jax.Array:
    """`arith_erd.models.dropout.hash32`, on uint32."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D) ^ key
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def positions(length: int, channels: int) -> Array:
    """Sines in the even channels, cosines in the odd ones: (T, C)."""
    angle = np.arange(length)[:, None] * 10000.0 ** -(np.arange(0, channels, 2) / channels)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, -1)[:, :channels]


def shift_right(completion: jax.Array) -> jax.Array:
    """``r_0 .. r_{m-1}`` (B, m) -> ``<start> r_0 .. r_{m-2}`` (B, m)."""
    return jnp.concatenate([jnp.full_like(completion[:, :1], START), completion[:, :-1]], axis=1)


def evaluate(recipe: Recipe, parameters: Parameters, prompt: jax.Array, completion: jax.Array) -> jax.Array:
    """Logits of a pack under teacher forcing, without dropout: stacks, (R, B, P), (R, B, m) -> (R, B, m, V)."""

    def one(p: Parameters, prompt: jax.Array, completion: jax.Array) -> jax.Array:
        return Network(recipe, p, None).logits(prompt, shift_right(completion))

    return jax.jit(jax.vmap(one))(parameters, prompt, completion)


def training(recipe: Recipe, replica_keys: Array) -> tuple[Callable[[Parameters], Any], Callable[..., Any]]:
    """How the optimiser starts, and a compiled training step of a pack.

    Args:
        replica_keys: (R, 2) uint32, from which every dropout mask follows.

    Returns:
        ``start(parameters)``, the optimiser's state, and ``step(parameters, state, index, prompt, completion)``,
        the new parameters and state and the losses (R,). A step reuses the memory of the
        parameters and the state that it is given.
    """
    adam = optax.adam(recipe.lr, *recipe.betas, recipe.eps)

    def loss(p: Parameters, keys: jax.Array, prompt: jax.Array, completion: jax.Array) -> jax.Array:
        logits = Network(recipe, p, keys).logits(prompt, shift_right(completion))
        return optax.softmax_cross_entropy_with_integer_labels(logits, completion).mean()

    def step(
        parameters: Parameters, state: Any, index: jax.Array, prompt: jax.Array, completion: jax.Array
    ) -> tuple[Parameters, Any, jax.Array]:
        in_step = hash32(replica_keys + index, replica_keys[:, ::-1])  # as `dropout_keys` of ours
        sites = jnp.arange(recipe.sites, dtype=jnp.uint32)[:, None]
        keys = hash32(in_step[:, None] + sites, in_step[:, None, ::-1])  # (R, sites, 2)
        losses, gradients = jax.vmap(jax.value_and_grad(loss))(parameters, keys, prompt, completion)
        updates, state = adam.update(gradients, state)
        return optax.apply_updates(parameters, updates), state, losses

    return adam.init, jax.jit(step, donate_argnums=(0, 1))
