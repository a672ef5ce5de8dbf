"""Tiny random model files: real GGUFs of a few hundred kilobytes that every loader must accept."""

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as TensorType

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # token types of a GGUF vocabulary


def _byte_alphabet() -> list[str]:
    """The printable stand-ins of GPT-2's byte-level vocabulary, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in names)
    names.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [names[byte] for byte in range(256)]


def write_tiny_gguf(
    path: Path,
    architecture: str = "llama",
    *,
    n_layers: int = 2,
    n_embd: int = 64,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int | None = None,
    n_ff: int = 96,
    ctx_train: int = 512,
    n_vocab: int = 288,
    tied: bool = True,
    qkv_bias: bool | None = None,
    qk_norm: bool | None = None,
    rope_factors: bool = False,
    rope_scaling: tuple[str, float] | None = None,
    quant: str = "F32",
    seed: int = 0,
    leave_out: tuple[str, ...] = (),
    reshape: dict[str, tuple[int, ...]] | None = None,
    metadata: dict[str, int | float | str] | None = None,
) -> Path:
    """Write a random model with a byte-level tokenizer and the control tokens of ChatML.

    Args:
        path: The file to write; returned.
        architecture: ``general.architecture``; "qwen2" gets q/k/v biases and "qwen3" q/k norms
            unless ``qkv_bias`` and ``qk_norm`` say otherwise.
        head_dim: Width of a head; ``n_embd / n_heads`` and not written to the file when None.
        n_vocab: At least 260 (256 bytes, three control tokens, "ab"); the rest is padding.
        tied: No ``output.weight``: the embedding is the output matrix.
        rope_factors: Add ``rope_freqs.weight`` as Llama 3 files have it.
        rope_scaling: Type ("linear", "yarn") and factor.
        quant: Type of the matrices, by its GGUF name. K types need rows of 256 values.
        leave_out: Names of tensors that are not written.
        reshape: Tensor name to another shape, rows first, to make a file that is wrong.
        metadata: Further keys, written last; "general.name" is always "tiny".
    """
    random = np.random.default_rng(seed)
    width = head_dim or n_embd // n_heads
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_context_length(ctx_train)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(width)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if rope_scaling is not None:
        kind, factor = rope_scaling
        writer.add_string(f"{architecture}.rope.scaling.type", kind)
        writer.add_rope_scaling_factor(factor)
        writer.add_rope_scaling_orig_ctx_len(ctx_train)
    for key, value in (metadata or {}).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](key, value)
    _add_tokenizer(writer, n_vocab)

    def add(name: str, shape: tuple[int, ...], mean: float = 0.0, scale: float = 0.0) -> None:
        shape = (reshape or {}).get(name, shape)
        # Drawn even when left out, so that all files of one seed share their other weights.
        values = (mean + scale * random.standard_normal(shape)).astype(np.float32)
        if name in leave_out:
            return
        if len(shape) == 1 or quant == "F32":
            writer.add_tensor(name, values)
        else:
            packed = pack(values, quant, random)
            writer.add_tensor(name, packed, raw_dtype=TensorType[quant])

    def matrix(name: str, rows: int, columns: int) -> None:
        add(name, (rows, columns), scale=columns**-0.5)

    matrix("token_embd.weight", n_vocab, n_embd)
    for i in range(n_layers):
        at = f"blk.{i}."
        add(f"{at}attn_norm.weight", (n_embd,), 1.0, 0.1)
        for part, heads in (("q", n_heads), ("k", n_kv_heads), ("v", n_kv_heads)):
            matrix(f"{at}attn_{part}.weight", heads * width, n_embd)
            if qkv_bias if qkv_bias is not None else architecture == "qwen2":
                add(f"{at}attn_{part}.bias", (heads * width,), scale=0.3)
        if qk_norm if qk_norm is not None else architecture == "qwen3":
            add(f"{at}attn_q_norm.weight", (width,), 1.0, 0.2)
            add(f"{at}attn_k_norm.weight", (width,), 1.0, 0.2)
        matrix(f"{at}attn_output.weight", n_embd, n_heads * width)
        add(f"{at}ffn_norm.weight", (n_embd,), 1.0, 0.1)
        matrix(f"{at}ffn_gate.weight", n_ff, n_embd)
        matrix(f"{at}ffn_up.weight", n_ff, n_embd)
        matrix(f"{at}ffn_down.weight", n_embd, n_ff)
    add("output_norm.weight", (n_embd,), 1.0, 0.1)
    if not tied:
        matrix("output.weight", n_vocab, n_embd)
    if rope_factors:
        factors = np.linspace(1.0, 8.0, width // 2, dtype=np.float32)
        writer.add_tensor("rope_freqs.weight", factors)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    tokens = [*_byte_alphabet(), *CONTROL_TOKENS, "ab"]
    types = [_NORMAL] * 256 + [_CONTROL] * len(CONTROL_TOKENS) + [_NORMAL]
    padding = n_vocab - len(tokens)
    tokens += [f"[PAD{i}]" for i in range(padding)]
    types += [_UNUSED] * padding
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(258)
    writer.add_bos_token_id(256)
    writer.add_add_bos_token(False)


# Byte positions of the float16 factors in a block, and the largest factor: it keeps the values of
# random integers near a standard deviation of 0.1, as trained weights have.
_FACTORS = {
    "Q4_0": ((0,), 0.02),
    "Q4_1": ((0, 2), 0.02),
    "Q5_0": ((0,), 0.01),
    "Q5_1": ((0, 2), 0.01),
    "Q8_0": ((0,), 0.001),
    "Q2_K": ((80, 82), 0.005),
    "Q3_K": ((108,), 0.002),
    "Q4_K": ((0, 2), 0.0005),
    "Q5_K": ((0, 2), 0.0003),
    "Q6_K": ((208,), 0.0001),
}


def pack(values: np.ndarray, quant: str, random: np.random.Generator) -> np.ndarray:
    """Return [R, bytes per row] of the type ``quant``: the values of [R, C] where the type is a
    plain float, random blocks of that shape otherwise."""
    if quant in ("F16", "BF16"):
        return gguf.quants.quantize(values, TensorType[quant])
    return random_blocks(values.shape, quant, random)


def random_blocks(shape: tuple[int, int], quant: str, random: np.random.Generator) -> np.ndarray:
    """Blocks with random integers and sane scales, uint8 [R, bytes per row]."""
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[TensorType[quant]]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // n_values, n_bytes), np.uint8)
    positions, largest = _FACTORS[quant]
    for at in positions:
        factors = random.uniform(-largest, largest, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = factors.view(np.uint8)
    return blocks.reshape(shape[0], -1)
