"""What a model file holds, and whether this machine and this program can use it."""

from collections import Counter
from math import prod
from pathlib import Path

from ds4agent.models import SUPPORTED_ARCHITECTURES, gigabytes
from engine.gguf_file import GgufFile
from mlx_kernels.blocks import BLOCK

_CTX_SHOWN = 8192  # tokens; the context that a model gets unless more is asked for
_KV_BYTES = 2  # a cached value is a float16
_PROGRAM_BYTES = 400 << 20  # interpreter, screen, buffers: measured with the small models


def describe(path: Path, memory_bytes: int) -> tuple[list[str], bool]:
    """Return lines for a person, and whether the file can be used on this machine.

    Raises:
        ModelFileError: it is no readable GGUF file.
    """
    gguf = GgufFile.open(path)
    try:
        return _describe(gguf, memory_bytes)
    finally:
        gguf.close()


def kv_bytes_per_token(metadata: dict) -> int:
    """Return the size of one cached position of a llama-family model, 0 when it is not told."""
    architecture = metadata.get("general.architecture", "")
    n_layers = metadata.get(f"{architecture}.block_count", 0)
    n_heads = metadata.get(f"{architecture}.attention.head_count", 0)
    if not (isinstance(n_layers, int) and isinstance(n_heads, int) and n_heads > 0):
        return 0
    n_kv_heads = metadata.get(f"{architecture}.attention.head_count_kv", n_heads)
    width = metadata.get(f"{architecture}.embedding_length", 0) // n_heads
    key = metadata.get(f"{architecture}.attention.key_length", width)
    value = metadata.get(f"{architecture}.attention.value_length", width)
    return n_layers * n_kv_heads * (key + value) * _KV_BYTES


def _describe(gguf: GgufFile, memory_bytes: int) -> tuple[list[str], bool]:
    meta = gguf.metadata
    architecture = str(meta.get("general.architecture", "not told"))
    n_params = sum(prod(tensor.shape) for tensor in gguf.tensors.values())
    types = Counter(BLOCK[tensor.type_id][0] for tensor in gguf.tensors.values())
    vocabulary = meta.get("tokenizer.ggml.tokens", [])
    ctx_train = meta.get(f"{architecture}.context_length", 0)
    problems = []
    if architecture not in SUPPORTED_ARCHITECTURES:
        known = ", ".join(sorted(SUPPORTED_ARCHITECTURES))
        problems.append(f"architecture {architecture} is not supported (supported: {known})")
    chat = _chat_format(vocabulary)
    if not chat:
        problems.append("its chat format is not known")
    ctx = min(ctx_train or _CTX_SHOWN, _CTX_SHOWN)
    needed = gguf.n_bytes + ctx * kv_bytes_per_token(meta) + _PROGRAM_BYTES
    if needed > memory_bytes:
        problems.append(
            f"it needs {gigabytes(needed)} of memory, this machine has {gigabytes(memory_bytes)}"
        )
    facts = {
        "file": gguf.path,
        "name": meta.get("general.name", "not told"),
        "architecture": architecture,
        "quantisation": gguf.quant_name,
        "parameters": f"{n_params / 1e6:,.0f} million",
        "size": f"{gigabytes(gguf.n_bytes)} ({gguf.n_bytes:,} bytes)",
        "context": f"{ctx_train:,} tokens in training",
        "tensors": f"{len(gguf.tensors)}: "
        + ", ".join(f"{name} {count}" for name, count in types.most_common()),
        "vocabulary": f"{len(vocabulary):,} tokens",
        "chat format": chat or "none that is known",
        "licence": meta.get("general.license", "not told"),
        "memory": f"{gigabytes(needed)} with a context of {ctx:,} tokens",
        "supported": "no: " + "; ".join(problems) if problems else "yes",
    }
    return [f"{label + ':':14}{value}" for label, value in facts.items()], not problems


def _chat_format(vocabulary: list) -> str:
    """Name the chat format by the control tokens that it is made of."""
    tokens = set(vocabulary)
    if {"<|im_start|>", "<|im_end|>"} <= tokens:
        return "chatml"
    if {"<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"} <= tokens:
        return "deepseek_v4"
    return ""
