"""The Llama network: a decoder-only transformer, one position of text after the other.

A token id selects a row of the embedding table. That vector, the *hidden state*, passes through
the layers; each adds what it found:

    hidden = hidden + attention(norm(hidden))        looks at earlier positions
    hidden = hidden + feed_forward(norm(hidden))     looks at this position only

After the last layer the output matrix gives one *logit* per token of the vocabulary: how well it
would fit as the next one. Everything else is in these four ideas:

* **RMS norm** scales a vector to a root mean square of one before each step.
* **Rotary positions** (RoPE) turn queries and keys by angles that grow with their position, so a
  query meets a key at an angle that says how far back it lies.
* **Grouped-query attention**: H query heads share Hkv key and value heads, which makes the cache
  smaller. Keys and values of past positions are kept, so a new token costs one position.
* **SwiGLU**: the feed-forward network multiplies two projections, one passed through a
  sigmoid-weighted gate.

Qwen2 adds biases to the q, k and v projections; Qwen3 normalises each head of q and k.

The file is written with the operations of ``mlx_kernels.ops`` and runs on every device. Axes:
T new positions, C width of the hidden state, H and Hkv heads, D width of a head, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np

from engine.families.base import Array
from engine.families.llama.cache import LlamaCache
from engine.families.llama.config import LlamaConfig
from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.ops import KvBuffer, Ops, RopeSpec


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; fused ones have the rows of their parts in order."""

    attn_norm: Array  # [C]
    qkv: Array  # [(H + 2 Hkv) D, C]
    qkv_bias: Array | None  # [(H + 2 Hkv) D]
    q_norm: Array | None  # [D]
    k_norm: Array | None  # [D]
    attn_output: Array  # [C, H D]
    ffn_norm: Array  # [C]
    gate_up: Array  # [2 F, C]
    down: Array  # [C, F]


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """The whole network."""

    embedding: PackedMatrix  # [V, C]
    layers: list[LayerWeights]
    output_norm: Array  # [C]
    output: Array  # [V, C]
    rope: RopeSpec


class LlamaModel:
    """The network with its weights on one device (``engine.families.base.Model``)."""

    family = "llama"
    expert_bits = 0

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, ops: Ops) -> None:
        self.config = config
        self.n_layers = config.n_layers
        self.n_vocab = config.n_vocab
        self.ctx_train = config.ctx_train
        self._weights = weights
        self._ops = ops

    def new_cache(self, ctx: int) -> LlamaCache:
        """Make an empty KV state for at most ``ctx`` positions."""
        config = self.config
        return LlamaCache(
            [
                self._ops.kv_buffer(config.n_kv_heads, config.head_dim, ctx)
                for _ in range(config.n_layers)
            ],
            (config.n_kv_heads, config.head_dim),
            ctx,
        )

    def embed(self, token_ids: np.ndarray) -> Array:
        """Look up token ids [T] -> hidden [T, C]."""
        return self._ops.embedding(self._weights.embedding, token_ids)

    def layers(
        self, first: int, last: int, hidden: Array, cache: LlamaCache, token_ids: np.ndarray
    ) -> Array:
        """Run layers ``first <= i < last`` over T new positions [T, C], appending to the cache."""
        for i in range(first, last):
            layer = self._weights.layers[i]
            hidden = self._attention(layer, hidden, cache.buffers[i])
            hidden = self._feed_forward(layer, hidden)
        return hidden

    def head(self, hidden: Array) -> np.ndarray:
        """Final norm and output matrix of hidden [T, C] -> logits [T, V], NumPy float32."""
        weights, eps = self._weights, self.config.rms_eps
        logits = self._ops.normed_linear(hidden, weights.output_norm, eps, weights.output)
        return self._ops.to_host(logits)

    def close(self) -> None:
        """See ``Model``: nothing is kept."""

    def _attention(self, layer: LayerWeights, hidden: Array, buffer: KvBuffer) -> Array:
        """Add what earlier positions say: [T, C] -> [T, C]. Appends T rows to the buffer."""
        ops, config = self._ops, self.config
        n_new, first_position = hidden.shape[0], buffer.n_rows
        n_q, n_kv = config.n_heads, config.n_kv_heads

        qkv = ops.normed_linear(  # [T, (H + 2 Hkv) D]
            hidden, layer.attn_norm, config.rms_eps, layer.qkv, layer.qkv_bias
        )
        heads = qkv.reshape(n_new, n_q + 2 * n_kv, config.head_dim)
        queries = heads[:, :n_q]  # [T, H, D]
        keys = heads[:, n_q : n_q + n_kv]  # [T, Hkv, D]
        values = heads[:, n_q + n_kv :]  # [T, Hkv, D]
        if layer.q_norm is not None:
            queries = ops.rms_norm(queries, layer.q_norm, config.rms_eps)
            keys = ops.rms_norm(keys, layer.k_norm, config.rms_eps)
        queries = ops.rope(queries, first_position, self._weights.rope)
        keys = ops.rope(keys, first_position, self._weights.rope)

        buffer.append(keys, values)
        mixed = ops.attention(queries, buffer)  # [T, H D]
        return ops.linear(mixed, layer.attn_output, residual=hidden)

    def _feed_forward(self, layer: LayerWeights, hidden: Array) -> Array:
        """Add what follows from each position by itself: [T, C] -> [T, C]."""
        ops, eps = self._ops, self.config.rms_eps
        gated = ops.gated_linear(hidden, layer.ffn_norm, eps, layer.gate_up)  # [T, F]
        return ops.linear(gated, layer.down, residual=hidden)
