"""The shape of a DeepSeek V4 network, read from the metadata of its file.

Flash and Pro are one network with other numbers. Everything that is computed here in one way only
is checked, so that a file that means another way is refused and not silently wrong.
"""

import math
from dataclasses import dataclass

import numpy as np

from engine.errors import ModelFileError
from engine.families.metadata import Facts
from engine.gguf_file import GgufFile
from mlx_kernels.deepseek_v4_ops import NetworkShape

ARCHITECTURE = "deepseek4"
RATIOS = (0, 4, 128)  # window only; compressed with indexer; heavily compressed
_FP8_BLOCK = 64  # values of a key that share a scale
_INDEX_DIM = 128  # the Hadamard turn is of 128 values
_SQRT_SOFTPLUS = 4  # of expert_gating_func in the GGUF specification


@dataclass(frozen=True, slots=True)
class DeepseekV4Config:
    """Counts are of values or layers; see ``mlx_kernels.deepseek_v4_ops`` for the axis letters."""

    shape: NetworkShape
    n_layers: int
    n_vocab: int  # V
    n_ff: int  # F, of one expert; the shared expert is as wide
    n_hash_layers: int  # the first ones, whose experts are chosen by token id
    output_rank: int  # Ro, of each output group
    ratios: tuple[int, ...]  # [L]
    clamps: tuple[float, ...]  # [L], of SwiGLU
    ctx_train: int  # tokens
    plain_frequencies: np.ndarray  # [r / 2], of layers without compression
    yarn_frequencies: np.ndarray  # [r / 2], of layers with

    def frequencies(self, layer_idx: int) -> np.ndarray:
        """Radians a position of each rotary pair of a layer, [r / 2] float64."""
        return self.yarn_frequencies if self.ratios[layer_idx] else self.plain_frequencies


def read_config(gguf: GgufFile) -> DeepseekV4Config:
    """Read the network's numbers.

    Raises:
        ModelFileError: one is missing or makes no sense, or the file asks for what this network
            does not have.
    """
    facts = Facts(gguf)
    n_layers = facts.integer("block_count")
    n_heads, head_dim = facts.integer("attention.head_count"), facts.integer("attention.key_length")
    n_groups = facts.integer("attention.output_group_count")
    n_rotary = facts.integer("rope.dimension_count")
    facts.expect("attention.head_count_kv", 1, "one row is key and value of all heads")
    facts.expect("attention.value_length", head_dim, "keys are the values too")
    facts.expect("attention.indexer.key_length", _INDEX_DIM, "the width that is turned and rounded")
    facts.expect("expert_shared_count", 1, "one shared expert")
    facts.expect("expert_group_count", 0, "experts are not grouped", default=0)
    facts.expect("expert_weights_norm", True, "weights are normalised", default=True)
    facts.expect("expert_gating_func", _SQRT_SOFTPLUS, "sqrt(softplus)", default=_SQRT_SOFTPLUS)
    facts.expect("hyper_connection.count", 4, "four residual streams")
    facts.expect("rope.scaling.type", "yarn", "compressed layers use YaRN", default="yarn")
    if n_rotary % 2 or n_rotary >= head_dim or (head_dim - n_rotary) % _FP8_BLOCK:
        raise ModelFileError(
            f"{gguf.path.name} turns {n_rotary} values of {head_dim}, expected an even number that "
            f"leaves a multiple of {_FP8_BLOCK}",
            "Get another conversion of the model.",
        )
    if n_heads % n_groups:
        raise ModelFileError(
            f"{gguf.path.name} has {n_heads} heads in {n_groups} output groups, "
            "expected a multiple",
            "Get another conversion of the model.",
        )
    n_experts, n_used = facts.integer("expert_count"), facts.integer("expert_used_count")
    if n_used > n_experts:
        raise ModelFileError(
            f"{gguf.path.name} uses {n_used} of {n_experts} experts, expected no more than it has",
            "Get another conversion of the model.",
        )
    shape = NetworkShape(
        n_streams=4,
        n_embd=facts.integer("embedding_length"),
        n_heads=n_heads,
        head_dim=head_dim,
        n_rotary=n_rotary,
        query_rank=facts.integer("attention.q_lora_rank"),
        n_groups=n_groups,
        window=facts.integer("attention.sliding_window"),
        index_heads=facts.integer("attention.indexer.head_count"),
        index_dim=_INDEX_DIM,
        top_k=facts.integer("attention.indexer.top_k"),
        n_experts=n_experts,
        n_used=n_used,
        expert_scale=facts.real("expert_weights_scale"),
        n_sinkhorn=facts.integer("hyper_connection.sinkhorn_iterations"),
        eps=facts.real("attention.layer_norm_rms_epsilon"),
        hc_eps=facts.real("hyper_connection.epsilon"),
    )
    return DeepseekV4Config(
        shape=shape,
        n_layers=n_layers,
        n_vocab=facts.integer("vocab_size"),
        n_ff=facts.integer("expert_feed_forward_length"),
        n_hash_layers=_hash_layers(facts, n_layers),
        output_rank=facts.integer("attention.output_lora_rank"),
        ratios=_ratios(facts, n_layers),
        clamps=_clamps(facts, n_layers),
        ctx_train=facts.integer("context_length"),
        plain_frequencies=_plain(facts.real("rope.freq_base"), n_rotary),
        yarn_frequencies=_yarn(facts, n_rotary),
    )


def _ratios(facts: Facts, n_layers: int) -> tuple[int, ...]:
    # The list goes on with entries of draft blocks; without it no default would be right.
    ratios = facts.numbers("attention.compress_ratios", n_layers)
    wrong = [ratio for ratio in ratios if ratio not in RATIOS]
    if wrong:
        raise ModelFileError(
            f"{facts.file_name} compresses by {wrong[0]}, expected 0, 4 or 128",
            "Use a DeepSeek V4 Flash or Pro model.",
        )
    return tuple(int(ratio) for ratio in ratios)


def _clamps(facts: Facts, n_layers: int) -> tuple[float, ...]:
    clamps = facts.numbers("swiglu_clamp_exp", n_layers)
    if min(clamps) <= 0:
        raise ModelFileError(
            f"{facts.file_name} limits SwiGLU to {min(clamps)}, expected a positive number",
            "Get another conversion of the model.",
        )
    return tuple(float(clamp) for clamp in clamps)


def _hash_layers(facts: Facts, n_layers: int) -> int:
    count = facts.integer("hash_layer_count", least=0)
    if count > n_layers:
        raise ModelFileError(
            f"{facts.file_name} chooses experts by token in {count} of {n_layers} layers",
            "Get another conversion of the model.",
        )
    return count


def _plain(base: float, n_rotary: int) -> np.ndarray:
    return base ** (-np.arange(0, n_rotary, 2) / n_rotary)


def _yarn(facts: Facts, n_rotary: int) -> np.ndarray:
    """Frequencies of compressed layers: YaRN (Peng et al. 2023) without its factor on magnitudes.

    Pairs that turn often within the trained context stay, slow ones are divided by the factor.
    """
    base = facts.real("attention.compress_rope_freq_base")
    factor = facts.real("rope.scaling.factor")
    trained = facts.integer("rope.scaling.original_context_length")

    def pair_turning(n_turns: float) -> float:
        return n_rotary * math.log(trained / (n_turns * 2 * math.pi)) / (2 * math.log(base))

    first = math.floor(pair_turning(facts.real("rope.scaling.yarn_beta_fast")))
    last = math.ceil(pair_turning(facts.real("rope.scaling.yarn_beta_slow")))
    first, last = max(0, first), min(n_rotary - 1, last)
    plain = _plain(base, n_rotary)
    slowed = np.clip((np.arange(len(plain)) - first) / max(1, last - first), 0.0, 1.0)
    return plain * (1.0 - slowed) + plain / factor * slowed
