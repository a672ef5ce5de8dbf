"""The shape of a Llama-like network, read from the metadata and the tensor names of its file.

Llama, Qwen2 and Qwen3 are one network with two switches: Qwen2 adds biases to the query, key and
value projections, Qwen3 normalises queries and keys head by head.
"""

from dataclasses import dataclass

from engine.errors import ModelFileError
from engine.families.metadata import Facts
from engine.gguf_file import GgufFile

ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Counts are of values or layers; see ``mlx_kernels.ops`` for the axis letters."""

    architecture: str
    n_layers: int
    n_embd: int  # C, width of the residual stream
    n_heads: int  # H
    n_kv_heads: int  # Hkv; each serves H / Hkv query heads
    head_dim: int  # D
    n_ff: int  # F, width of the feed-forward network
    n_vocab: int  # V
    ctx_train: int  # tokens
    rms_eps: float
    has_qkv_bias: bool
    has_qk_norm: bool
    is_tied: bool  # the embedding is the output matrix too


def read_config(gguf: GgufFile) -> LlamaConfig:
    """Read the network's shape.

    Raises:
        ModelFileError: a number is missing or makes no sense, or the file needs more than this
            family computes (experts, heads of two widths).
    """
    facts = Facts(gguf)
    n_embd = facts.integer("embedding_length")
    n_heads = facts.integer("attention.head_count")
    n_kv_heads = facts.integer("attention.head_count_kv", n_heads)
    head_dim = facts.integer("attention.key_length", max(1, n_embd // n_heads))
    value_dim = facts.integer("attention.value_length", head_dim)
    if n_heads % n_kv_heads or head_dim % 2 or value_dim != head_dim:
        raise ModelFileError(
            f"{gguf.path.name} has {n_heads} heads, {n_kv_heads} key-value heads, keys of "
            f"{head_dim} and values of {value_dim}, expected a multiple and one even width",
            "Use a Llama, Qwen2 or Qwen3 model.",
        )
    if gguf.metadata.get(f"{facts.architecture}.expert_count", 0):
        raise ModelFileError(
            f"{gguf.path.name} is a mixture of experts, expected a dense network",
            "Use a dense Llama, Qwen2 or Qwen3 model.",
        )
    embedding = gguf.tensors.get("token_embd.weight")
    return LlamaConfig(
        architecture=facts.architecture,
        n_layers=facts.integer("block_count"),
        n_embd=n_embd,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_ff=facts.integer("feed_forward_length"),
        # The table's rows count: files pad the vocabulary, and some don't say vocab_size.
        n_vocab=embedding.shape[0] if embedding is not None else 1,
        ctx_train=facts.integer("context_length"),
        rms_eps=facts.real("attention.layer_norm_rms_epsilon"),
        has_qkv_bias=facts.architecture == "qwen2" or "blk.0.attn_q.bias" in gguf.tensors,
        has_qk_norm=facts.architecture == "qwen3" or "blk.0.attn_q_norm.weight" in gguf.tensors,
        is_tied="output.weight" not in gguf.tensors,
    )
