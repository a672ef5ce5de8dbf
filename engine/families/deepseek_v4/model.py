"""DeepSeek V4: a mixture of experts over four residual streams and a compressed past.

    hidden = embedding[token], in each of four streams
    repeat:  streams = hyper_connection(streams, attention)
             streams = hyper_connection(streams, experts)
    logits = output @ rms_norm(mix(streams))

* **Hyper-connections**: a sublayer reads a learned mixture of the streams, its result is written
  to each of them by a learned amount, and meanwhile the streams mix by a doubly stochastic matrix.
* **Compressed attention**: a token leaves one row of d values that is key and value of all heads.
  A query reads the last W rows as they are, and older tokens pooled R to a row. At R = 128 it
  reads all pooled rows, at R = 4 only those that a small second attention, the **indexer**, finds
  best. A sink, one logit a head, may take the share of attention that nothing deserves.
* **Mixture of experts**: a router picks K of E small feed-forward networks for a token, and one
  shared network sees all. In the first layers a table picks by token id instead.

Stored rows are rounded to FP8 or FP4 as in training. That is part of the network, not a saving.
Files ``mlx_kernels/cpu/deepseek_v4/*.py`` tell each step's algorithm. Axes: T new positions, h
streams, D their width, H heads, d width of a head, V vocabulary; the rest in
``mlx_kernels.deepseek_v4_ops``.
"""

from dataclasses import dataclass

import numpy as np

from engine.families.base import Array
from engine.families.deepseek_v4.cache import DeepseekV4Cache
from engine.families.deepseek_v4.config import DeepseekV4Config
from engine.families.deepseek_v4.scratch import bytes_per_position, chunk_tokens
from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.deepseek_v4_ops import Layer
from mlx_kernels.ops import Ops


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """What comes after the last layer."""

    hc_fn: Array  # exact [h, h D]
    hc_scale: Array  # [1]
    hc_base: Array  # [h]
    norm: Array  # [D]
    output: Array  # [V, D]


@dataclass(frozen=True, slots=True)
class DeepseekV4Weights:
    """The network, or a run of its layers with or without its two ends."""

    embedding: PackedMatrix | None  # [V, D]
    layers: dict[int, Layer]
    head: HeadWeights | None


class DeepseekV4Model:
    """The network with its weights on one device (``engine.families.base.Model``).

    Attributes:
        debug_cache_rounding: Off: caches made from now on keep unrounded float32 rows, to compare
            with networks that do not simulate the rounding. Their states are no sessions.
    """

    family = "deepseek_v4"

    def __init__(
        self,
        config: DeepseekV4Config,
        weights: DeepseekV4Weights,
        ops: Ops,
        expert_bits: int = 2,
    ) -> None:
        self.expert_bits = expert_bits
        self.config = config
        self.n_layers = config.n_layers
        self.n_vocab = config.n_vocab
        self.ctx_train = config.ctx_train
        self.debug_cache_rounding = True
        self._weights = weights
        self._ops, self._v4 = ops, ops.deepseek_v4()

    def new_cache(self, ctx: int) -> DeepseekV4Cache:
        """Make an empty KV state for at most ``ctx`` positions, of the layers that are loaded."""
        shape, rounds = self.config.shape, self.debug_cache_rounding
        return DeepseekV4Cache(
            {
                i: self._v4.layer_state(shape, layer.ratio, ctx, rounds)
                for i, layer in self._weights.layers.items()
            },
            ctx,
        )

    def close(self) -> None:
        """Give back what was kept for later tokens. To be called by the thread that computed."""
        self._v4.close()

    def chunk_tokens(self, ctx: int) -> int:
        """Positions of a prompt that one call should get, from the memory that is free now."""
        ratios = [layer.ratio for layer in self._weights.layers.values()]
        position_bytes = bytes_per_position(self.config, ratios, ctx)
        return chunk_tokens(self._ops.device, self._ops.free_bytes(), position_bytes)

    def embed(self, token_ids: np.ndarray) -> Array:
        """Look up token ids [T] -> streams [T, h, D], all alike."""
        assert self._weights.embedding is not None
        embedded = self._ops.embedding(self._weights.embedding, token_ids)  # [T, D]
        return self._v4.streams(embedded, self.config.shape.n_streams)

    def layers(
        self, first: int, last: int, hidden: Array, cache: DeepseekV4Cache, token_ids: np.ndarray
    ) -> Array:
        """Run layers ``first <= i < last`` over T new positions [T, h, D], appending to the cache.

        The first layers choose experts by ``token_ids`` [T].
        """
        for i in range(first, last):
            layer = self._weights.layers[i]
            hidden = self._v4.attention_sublayer(hidden, layer, cache.states[i])
            hidden = self._v4.feed_forward_sublayer(hidden, layer, token_ids)
        return self._v4.settle(hidden)

    def head(self, hidden: Array) -> np.ndarray:
        """Mix the streams [T, h, D], norm, output matrix -> logits [T, V], NumPy float32."""
        return self._ops.to_host(self.logits(hidden))

    def logits(self, hidden: Array) -> Array:
        """As ``head``, on the device."""
        head, shape = self._weights.head, self.config.shape
        assert head is not None
        mixed = self._v4.hc_head(hidden, head.hc_fn, head.hc_scale, head.hc_base, shape)  # [T, D]
        return self._v4.logits(mixed, head.norm, shape.eps, head.output)
