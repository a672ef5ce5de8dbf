"""Launches of the kernels for many positions of DeepSeek V4 on device cuda."""

from functools import lru_cache

import mlx.core as mx

from mlx_kernels.deepseek_v4_ops import HyperWeights, NetworkShape
from mlx_kernels.gpu.constants import on_device
from mlx_kernels.gpu.kernels import THREADS, CudaKernels

_N_WARPS = THREADS // 32
_TILE = 64  # heads and keys of a block of the attention
_SCORED_ROWS = 256  # of a block of the indexer
_SCORED_POSITIONS = 32  # one after the other


def hyper_read(
    kernels: CudaKernels,
    streams: mx.array,
    products: mx.array,
    hyper: HyperWeights,
    shape: NetworkShape,
) -> tuple[mx.array, mx.array]:
    """Read streams [T, 4, D] for a sublayer -> its input [T, D] and the mix [T, 20].

    ``products`` [T, 24] are those of ``hyper.fn`` with the streams as they are.
    """
    n, _, width = streams.shape
    x, mix = kernels.launch_all(
        "hyper_read",
        None,
        [
            *(streams, products, hyper.scale, hyper.base, hyper.norm),
            *(_floats(shape.eps, shape.hc_eps), _integers(width, shape.n_sinkhorn)),
        ],
        {},
        (n, 1),
        [((n, width), mx.float32), ((n, 20), mx.float32)],
        shared_bytes=4 * 40,
    )
    return x, mix


def hyper_write(
    kernels: CudaKernels, y: mx.array, z: mx.array | None, streams: mx.array, mix: mx.array
) -> mx.array:
    """Write a sublayer's result y (plus z) [T, D] to the streams -> [T, 4, D]."""
    return kernels.launch(
        "hyper_write",
        None,
        [y, _floats(0.0) if z is None else z, streams, mix, _integers(y.shape[1])],
        {"HAS_SECOND": z is not None},
        (len(y), 1),
        streams.shape,
    )


def heads(
    kernels: CudaKernels, x: mx.array, n_heads: int, cos: mx.array, sin: mx.array, eps: float
) -> mx.array:
    """Normalise and turn the heads x [T, H d] -> [T, H, d] float16; d a multiple of 128."""
    n, width = len(x), x.shape[1] // n_heads
    return kernels.launch(
        "heads",
        None,
        [x, cos, sin, _floats(eps), _integers(n * n_heads, n_heads, width, 2 * cos.shape[1])],
        {},
        (-(-n * n_heads // _N_WARPS), 1),
        (n, n_heads, width),
        mx.float16,
    )


def stored_rows(
    kernels: CudaKernels, x: mx.array, norm: mx.array, cos: mx.array, sin: mx.array, eps: float
) -> mx.array:
    """Normalise x [n, d], turn it and round it as rows are stored -> [n, d] float16."""
    n, width = x.shape
    return kernels.launch(
        "stored_rows",
        None,
        [x, norm, cos, sin, _floats(eps), _integers(n, width, 2 * cos.shape[1])],
        {},
        (-(-n // _N_WARPS), 1),
        (n, width),
        mx.float16,
    )


def pool(
    kernels: CudaKernels, history: mx.array, at: int, n_rows: int, ratio: int, width: int
) -> mx.array:
    """Pool groups of ``ratio`` tokens, the first at row ``at`` of history [M, 2 w] -> [n, width].

    At ratio 4 the group before the first is part of the history, unless ``at`` is 0.
    """
    return kernels.launch(
        "pool",
        None,
        [history, _integers(width, at, int(at > 0))],
        {"R": ratio},
        (-(-width // THREADS), n_rows),
        (n_rows, width),
    )


def index_rows(
    kernels: CudaKernels, x: mx.array, norm: mx.array, cos: mx.array, sin: mx.array, eps: float
) -> mx.array:
    """Normalise pooled rows x [n, 128] of the indexer, turn and round them -> [n, 128] float16."""
    return index_heads(kernels, x, 1, cos, sin, norm, eps).reshape(x.shape)


def index_heads(
    kernels: CudaKernels,
    x: mx.array,
    n_heads: int,
    cos: mx.array,
    sin: mx.array,
    norm: mx.array | None = None,
    eps: float = 0.0,
) -> mx.array:
    """Turn, transform and round the indexer's queries x [T, Hi 128] -> [T, Hi, 128] float16."""
    n = len(x)
    return kernels.launch(
        "index_heads",
        None,
        [
            *(x, _floats(0.0) if norm is None else norm, cos, sin),
            *(_floats(eps), _integers(n * n_heads, n_heads, 2 * cos.shape[1])),
        ],
        {"HAS_NORM": norm is not None},
        (-(-n * n_heads // _N_WARPS), 1),
        (n, n_heads, 128),
        mx.float16,
    )


def index_scores(
    kernels: CudaKernels,
    queries: mx.array,
    weights: mx.array,
    rows: mx.array,
    first: int,
    ratio: int,
) -> mx.array:
    """Scores [T, N] of rows [N, 128] float16 for positions from ``first`` on.

    queries [T, Hi, 128] float16, Hi a multiple of 16; weights [T, Hi]. A row that a position's past
    does not hold scores -infinity.
    """
    n, n_heads, _ = queries.shape
    n_rows = len(rows)
    return kernels.launch(
        "index_scores",
        None,
        [queries, weights, rows, _integers(n, n_rows, first, ratio)],
        {"HEADS": n_heads, "GROUP": _SCORED_POSITIONS},
        (-(-n_rows // _SCORED_ROWS), -(-n // _SCORED_POSITIONS)),
        (n, n_rows),
        shared_bytes=2 * n_heads * (128 * 2 + 16) + 2 * 4 * n_heads,
    )


def top_k(kernels: CudaKernels, scores: mx.array, k: int) -> mx.array:
    """See ``top_k.py``: scores [T, N] -> [T, k] int32."""
    n, n_rows = scores.shape
    return kernels.launch(
        "top_k",
        None,
        [scores, _integers(n_rows, 0)],
        {"K": k},
        (n, 1),
        (n, k),
        mx.int32,
        shared_bytes=4 * (2 * 256 + 2),
    )


def attend(
    kernels: CudaKernels,
    queries: mx.array,
    window: mx.array,
    rows: mx.array | None,
    index: mx.array | None,
    sinks: mx.array,
    turn: tuple[mx.array, mx.array],
    places: tuple[int, int, int, int],
) -> mx.array:
    """Attend over window rows, selected rows and sinks, and turn back -> [T, H d] float32.

    Args:
        queries: [T, H, d] float16; d is 256 or 512.
        window: [M, d] float16.
        rows: compressed rows [N, d] float16, or None.
        index: [T, k] int32: the places that each position reads; None: all that it may.
        sinks: [H].
        turn: cosines and sines [T, r / 2].
        places: position of the first query, of the first window row, window, tokens a row.
    """
    n, n_heads, width = queries.shape
    n_blocks = -(-n_heads // _TILE)
    first, low, n_window, ratio = places
    k = 0 if index is None else index.shape[1]
    cos, sin = turn
    out = kernels.launch(
        "attend",
        None,
        [
            *(queries, window, window if rows is None else rows),
            *(_integers(0, 0) if index is None else index, sinks, cos, sin),
            _integers(n_heads, first, low, n_window, ratio, k, 2 * cos.shape[1]),
        ],
        {"D": width, "HAS_ROWS": rows is not None, "HAS_INDEX": index is not None},
        (n, n_blocks),
        (n, n_heads, width),
        shared_bytes=attention_bytes(width),
    )
    return out.reshape(n, n_heads * width)


def attention_bytes(width: int) -> int:
    """Shared memory of ``attend``: as in ``prefill_attention.cu``."""
    return 3 * _TILE * (2 * width + 16) + _TILE * (2 * _TILE + 16) + 4 * 10 * _TILE


@lru_cache(maxsize=1024)
def _integers(*values: int) -> mx.array:
    return on_device(values, mx.int32)


@lru_cache(maxsize=64)
def _floats(*values: float) -> mx.array:
    return on_device(values, mx.float32)
