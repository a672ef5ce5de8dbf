"""Loading DeepSeek V4: each tensor goes to the device in its packed form.

Projections that read the same input are loaded as one matrix. What decides what is stored or
chosen (hyper-connections, compressor, indexer, router) is loaded for exact products.
"""

from math import prod

import numpy as np

from engine.families.base import Array
from engine.families.deepseek_v4.config import DeepseekV4Config
from engine.families.deepseek_v4.model import DeepseekV4Weights, HeadWeights
from engine.families.deepseek_v4.tensors import EMBEDDING, Part
from engine.families.loading import WeightLoader
from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.deepseek_v4_ops import (
    AttentionWeights,
    CompressorWeights,
    DeepseekV4Ops,
    FeedForwardWeights,
    HyperWeights,
    Layer,
)


def load_weights(
    loader: WeightLoader, config: DeepseekV4Config, part: Part, v4: DeepseekV4Ops
) -> DeepseekV4Weights:
    """Hand every tensor of a part to the device.

    Raises:
        LoadCancelled: between tensors.
    """
    head = None
    layers = {i: _Layer(loader, config, v4, i).load() for i in range(part.first, part.last)}
    if part.has_head:
        head = HeadWeights(
            hc_fn=loader.take(v4.exact_matrix, "output_hc_fn.weight"),
            hc_scale=loader.vector("output_hc_scale.weight"),
            hc_base=loader.vector("output_hc_base.weight"),
            norm=loader.vector("output_norm.weight"),
            output=loader.matrix("output.weight"),
        )
    embedding = loader.packed(EMBEDDING) if part.has_embedding else None
    return DeepseekV4Weights(embedding, layers, head)


class _Layer:
    """Loads one layer."""

    def __init__(
        self, loader: WeightLoader, config: DeepseekV4Config, v4: DeepseekV4Ops, layer_idx: int
    ) -> None:
        self._loader, self._config, self._v4 = loader, config, v4
        self._i = layer_idx

    def load(self) -> Layer:
        """Load it."""
        config = self._config
        return Layer(
            shape=config.shape,
            ratio=config.ratios[self._i],
            frequencies=config.frequencies(self._i),
            attn_hyper=self._hyper("attn"),
            attention=self._attention(),
            ffn_hyper=self._hyper("ffn"),
            feed_forward=self._feed_forward(),
        )

    def _name(self, part: str) -> str:
        return f"blk.{self._i}.{part}.weight"

    def _vector(self, part: str) -> Array:
        return self._loader.vector(self._name(part))

    def _matrix(self, *parts: str) -> Array:
        return self._loader.matrix(*map(self._name, parts))

    def _exact(self, *parts: str) -> Array:
        return self._loader.take(self._v4.exact_matrix, *map(self._name, parts))

    def _hyper(self, sub: str) -> HyperWeights:
        return HyperWeights(
            fn=self._exact(f"hc_{sub}_fn"),
            scale=self._vector(f"hc_{sub}_scale"),
            base=self._vector(f"hc_{sub}_base"),
            norm=self._vector(f"{sub}_norm"),
        )

    def _compressor(self, name: str) -> CompressorWeights:
        return CompressorWeights(self._vector(f"{name}_ape"), self._vector(f"{name}_norm"))

    def _attention(self) -> AttentionWeights:
        ratio, groups = self._config.ratios[self._i], self._config.shape.n_groups
        exact_input = ["attn_compressor_kv", "attn_compressor_gate"] if ratio else []
        if ratio == 4:
            exact_input += ["indexer_compressor_kv", "indexer_compressor_gate", "indexer.proj"]
        return AttentionWeights(
            input=self._matrix("attn_q_a", "attn_kv"),
            exact_input=self._exact(*exact_input) if exact_input else None,
            q_norm=self._vector("attn_q_a_norm"),
            q_b=self._matrix("attn_q_b"),
            kv_norm=self._vector("attn_kv_a_norm"),
            sinks=self._vector("attn_sinks"),
            out_a=self._loader.take(
                lambda parts: self._v4.grouped_matrix(parts[0], groups),
                self._name("attn_output_a"),
            ),
            out_b=self._matrix("attn_output_b"),
            compressor=self._compressor("attn_compressor") if ratio else None,
            index_q_b=self._exact("indexer.attn_q_b") if ratio == 4 else None,
            index_compressor=self._compressor("indexer_compressor") if ratio == 4 else None,
        )

    def _feed_forward(self) -> FeedForwardWeights:
        is_hashed = self._i < self._config.n_hash_layers
        experts = [self._name(f"ffn_{part}_exps") for part in ("gate", "up", "down")]
        return FeedForwardWeights(
            router=self._exact("ffn_gate_inp"),
            bias=None if is_hashed else self._loader.vector(f"blk.{self._i}.exp_probs_b.bias"),
            table=self._table() if is_hashed else None,
            experts=self._loader.take(self._experts, *experts),
            shared_gate_up=self._matrix("ffn_gate_shexp", "ffn_up_shexp"),
            shared_down=self._matrix("ffn_down_shexp"),
            clamp=self._config.clamps[self._i],
        )

    def _table(self) -> Array:
        name = self._name("ffn_gate_tid2eid")
        ids = self._loader.raw(name).view(np.int32)
        return self._v4.integers(ids.reshape(self._config.n_vocab, self._config.shape.n_used))

    def _experts(self, parts: list[PackedMatrix]) -> Array:
        gate, up, down = parts
        return self._loader.ops.experts(gate, up, down, self._config.shape.n_experts)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tensor: experts lie on top of each other."""
    return prod(shape[:-1]), shape[-1]
