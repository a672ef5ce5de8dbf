"""The weights of a Llama-like network: what the file must hold, and how it is loaded.

Projections that read the same input are loaded as one matrix (q, k and v; gate and up): fewer,
larger products are faster on every device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event

from engine.families.base import Array, LoadProgress
from engine.families.llama.config import LlamaConfig, read_config
from engine.families.llama.model import LayerWeights, LlamaModel, LlamaWeights
from engine.families.llama.rope import rope_spec
from engine.families.loading import TensorNeed, WeightLoader, check_tensors, read_vector
from engine.families.metadata import Facts
from engine.gguf_file import GgufFile
from mlx_kernels.ops import Ops, RopeSpec

_EMBEDDING = "token_embd.weight"
_ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class LlamaPlan:
    """A checked file: what it will cost, and the way to load it (``ModelPlan``)."""

    gguf: GgufFile
    config: LlamaConfig
    family: str = "llama"

    @classmethod
    def of(cls, gguf: GgufFile) -> "LlamaPlan":
        """Check a file.

        Raises:
            ModelFileError: its metadata or tensors are not those of this family.
        """
        config = read_config(gguf)
        check_tensors(gguf, _needs(gguf, config))
        plan = cls(gguf, config)
        plan._rope()
        return plan

    @property
    def n_layers(self) -> int:
        """Layers of the network."""
        return self.config.n_layers

    @property
    def n_vocab(self) -> int:
        """Rows of the output matrix."""
        return self.config.n_vocab

    @property
    def ctx_train(self) -> int:
        """Context the model was trained for, tokens."""
        return self.config.ctx_train

    def weight_bytes(self, ops: Ops) -> int:
        """Memory of the matrices on a device. An untied embedding is not one: it stays packed."""
        matrices = {name: info for name, info in self.gguf.tensors.items() if len(info.shape) == 2}
        if not self.config.is_tied:
            del matrices[_EMBEDDING]
        return sum(ops.matrix_bytes(info.type_id, info.shape) for info in matrices.values())

    def cache_bytes(self, ops: Ops, n_tokens: int) -> int:
        """Memory of a session's keys and values on a device."""
        config = self.config
        return (
            ops.kv_value_bytes
            * 2
            * config.n_layers
            * config.n_kv_heads
            * config.head_dim
            * n_tokens
        )

    def scratch_bytes(self, ops: Ops, ctx: int) -> int:
        """None beyond the usual: that was measured with this family."""
        return 0

    def load(self, ops: Ops, progress: LoadProgress | None, cancel: Event | None) -> LlamaModel:
        """Decode every weight and hand it to the device.

        Raises:
            LoadCancelled: ``cancel`` was set; it is looked at between tensors.
        """
        gguf, config = self.gguf, self.config
        total = sum(info.n_bytes for info in gguf.tensors.values())
        if not config.is_tied:
            total -= gguf.tensors[_EMBEDDING].n_bytes
        if _ROPE_FACTORS in gguf.tensors:
            total -= gguf.tensors[_ROPE_FACTORS].n_bytes
        loader = WeightLoader(gguf, ops, total, progress, cancel)
        weights = LlamaWeights(
            embedding=loader.packed(_EMBEDDING),
            layers=[_load_layer(loader, config, i) for i in range(config.n_layers)],
            output_norm=loader.vector("output_norm.weight"),
            output=loader.matrix(_EMBEDDING if config.is_tied else "output.weight"),
            rope=self._rope(),
        )
        return LlamaModel(config, weights, ops)

    def _rope(self) -> RopeSpec:
        has_factors = _ROPE_FACTORS in self.gguf.tensors
        factors = read_vector(self.gguf, _ROPE_FACTORS) if has_factors else None
        return rope_spec(Facts(self.gguf), self.config.head_dim, factors)


def _load_layer(loader: WeightLoader, config: LlamaConfig, layer_idx: int) -> LayerWeights:
    def names(suffix: str, *parts: str) -> list[str]:
        return [f"blk.{layer_idx}.{part}.{suffix}" for part in parts]

    def norm(part: str) -> Array:
        return loader.vector(*names("weight", part))

    qkv = ("attn_q", "attn_k", "attn_v")
    return LayerWeights(
        attn_norm=norm("attn_norm"),
        qkv=loader.matrix(*names("weight", *qkv)),
        qkv_bias=loader.vector(*names("bias", *qkv)) if config.has_qkv_bias else None,
        q_norm=norm("attn_q_norm") if config.has_qk_norm else None,
        k_norm=norm("attn_k_norm") if config.has_qk_norm else None,
        attn_output=loader.matrix(*names("weight", "attn_output")),
        ffn_norm=norm("ffn_norm"),
        gate_up=loader.matrix(*names("weight", "ffn_gate", "ffn_up")),
        down=loader.matrix(*names("weight", "ffn_down")),
    )


def _needs(gguf: GgufFile, config: LlamaConfig) -> Iterator[TensorNeed]:
    """Every tensor of the network. Lazy: a file that claims a billion layers fails at the first
    one that it does not have."""
    q_rows, kv_rows = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    yield TensorNeed(_EMBEDDING, (config.n_vocab, config.n_embd))
    yield TensorNeed("output_norm.weight", (config.n_embd,))
    if not config.is_tied:
        yield TensorNeed("output.weight", (config.n_vocab, config.n_embd))
    if _ROPE_FACTORS in gguf.tensors:
        yield TensorNeed(_ROPE_FACTORS, (config.head_dim // 2,))
    for i in range(config.n_layers):
        yield TensorNeed(f"blk.{i}.attn_norm.weight", (config.n_embd,))
        for part, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            yield TensorNeed(f"blk.{i}.attn_{part}.weight", (rows, config.n_embd))
            if config.has_qkv_bias:
                yield TensorNeed(f"blk.{i}.attn_{part}.bias", (rows,))
        if config.has_qk_norm:
            yield TensorNeed(f"blk.{i}.attn_q_norm.weight", (config.head_dim,))
            yield TensorNeed(f"blk.{i}.attn_k_norm.weight", (config.head_dim,))
        yield TensorNeed(f"blk.{i}.attn_output.weight", (config.n_embd, q_rows))
        yield TensorNeed(f"blk.{i}.ffn_norm.weight", (config.n_embd,))
        for part in ("gate", "up"):
            yield TensorNeed(f"blk.{i}.ffn_{part}.weight", (config.n_ff, config.n_embd))
        yield TensorNeed(f"blk.{i}.ffn_down.weight", (config.n_embd, config.n_ff))
