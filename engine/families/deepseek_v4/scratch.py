"""How many positions of a prompt go through the network at a time, and what memory they take."""

from collections.abc import Sequence

from engine.families.deepseek_v4.config import DeepseekV4Config

# A chunk reads practically all experts once, so a GPU wants it long. Above this there is nothing to
# gain, and somebody who interrupts waits longer.
_CUDA_CHUNKS = (2048, 1024, 512)
_GPU_CHUNK = 512
_CPU_CHUNK = 256
SMALLEST_CHUNK = 512  # what has to fit besides weights and state
_SHARE = 0.5  # of the free memory that a longer chunk may take


def bytes_per_position(config: DeepseekV4Config, ratios: Sequence[int], ctx: int) -> int:
    """Memory of a position's activations in float32, from the shapes.

    Streams three times (old, new, a sum of both), the heads and what they read twice, the experts'
    hidden values and results, and the indexer's scores of all rows with a sorted copy.
    """
    shape = config.shape
    values = 3 * shape.n_streams * shape.n_embd
    values += 2 * shape.n_heads * shape.head_dim
    values += 2 * shape.index_heads * shape.index_dim
    values += (shape.n_used + 1) * (3 * config.n_ff + shape.n_embd)
    values += shape.n_groups * config.output_rank
    if 4 in ratios:
        values += 2 * (ctx // 4)
    return 4 * values


def chunk_tokens(device: str, free_bytes: int | None, position_bytes: int) -> int:
    """Positions of a prompt that one call should get on a device with that much free memory."""
    if device != "cuda":
        return _GPU_CHUNK if device == "metal" else _CPU_CHUNK
    room = float("inf") if free_bytes is None else _SHARE * free_bytes
    return next((n for n in _CUDA_CHUNKS if n * position_bytes <= room), _CUDA_CHUNKS[-1])
