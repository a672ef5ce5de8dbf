"""Products of float32 activations with weights that stay packed in the mapped file.

The compiled kernels (``csrc``) know two ways:

* Few positions, as in decoding: each 32 activations are rounded to 8-bit integers that share a
  scale, and multiplied with the integers of the packed weights. Their sums are exact, so the
  rounding of the activations is the only loss: at most 1/254 of the largest of the 32, plus
  1/254 of 1/255 of the largest of the 256 around them, whose scales are multiples of one unit.
* More than 16 positions, as in a prompt: a tile of weights at a time is expanded to float32.
  Nothing is rounded. A model that reads its prompt exactly picks the tokens of the float32 model;
  with rounded activations every fiftieth would be another one.

Weights of float types are multiplied in float32 both times.

Every shape, type and length is checked here; the C code never sees an unchecked size. Axes: T
positions, K inputs, N outputs, H query heads, Hkv key and value heads, D values of a head.
"""

import ctypes
from collections.abc import Sequence

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.cpu import native_library as lib
from mlx_kernels.errors import DeviceError, TensorError

TYPES = frozenset((0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 16, 30, 39))  # keys of BLOCK
_GROUP = 32  # inputs that share an activation scale
_METHODS = ("auto", "rows", "tiles", "floats")  # DS4_BY_... of csrc/ds4_native.h

_NO_LIBRARY = "Install a C compiler and reinstall ds4-agent, or use float32 weights."


def is_available() -> bool:
    """True when the compiled kernels are installed."""
    return lib.load_library() is not None


def can_multiply(type_id: int, n_in: int) -> bool:
    """True when there is a kernel for matrices of that type and width."""
    return type_id in TYPES and n_in > 0 and n_in % max(BLOCK[type_id].n_values, _GROUP) == 0


def set_threads(n_threads: int) -> None:
    """Set how many threads compute, the calling one included. From 1 to 64."""
    if not 1 <= n_threads <= 64:
        raise TensorError(f"{n_threads} threads, expected 1 to 64")
    _library().ds4_set_threads(n_threads)


def default_threads() -> int:
    """Return how many threads compute unless ``set_threads`` says otherwise."""
    return lib.default_threads()


def path_name() -> str:
    """Return the code path in use: "avx512", "avx2", "neon" or "portable"."""
    return _library().ds4_path_name().decode("ascii")


def debug_set_path(name: str) -> None:
    """Choose the code path by name; "auto" is the best one of this machine. For tests.

    Raises:
        DeviceError: this machine can't run it.
    """
    if _library().ds4_set_path(name.encode("ascii")) != lib.OK:
        raise DeviceError(f"this machine has no code path {name!r}", "Use auto or portable.")


class StackedWeight:
    """One or more packed matrices of equal width, used as one [N, K] with the first on top.

    Keeps the arrays of the matrices alive, and thereby the mapping of their file.
    """

    __slots__ = ("_descriptors", "_parts", "n_in", "n_out", "n_parts", "rows_of")

    def __init__(self, parts: Sequence[PackedMatrix]) -> None:
        """Check the matrices and note where they lie.

        Raises:
            TensorError: a type that is not multiplied here, a length that does not match the
                shape, or different widths.
        """
        if not 1 <= len(parts) <= lib.MAX_MATRICES:
            raise TensorError(f"{len(parts)} matrices, expected 1 to {lib.MAX_MATRICES}")
        self.n_in = parts[0].shape[1]
        self.rows_of = tuple(part.shape[0] for part in parts)
        self.n_out = sum(self.rows_of)
        self.n_parts = len(parts)
        self._parts = tuple(_checked(part, self.n_in) for part in parts)
        first_output = 0
        self._descriptors = (lib.Matrix * len(parts))()
        for descriptor, part in zip(self._descriptors, parts, strict=True):
            descriptor.data = part.raw.ctypes.data
            descriptor.rows, descriptor.cols = part.shape
            descriptor.first_output = first_output
            descriptor.type = part.type_id
            first_output += part.shape[0]

    @property
    def n_bytes(self) -> int:
        """Bytes of the packed matrices."""
        return sum(part.raw.size for part in self._parts)

    @property
    def address(self) -> int:
        """Address of the descriptors for the C functions."""
        return ctypes.addressof(self._descriptors)


def linear(
    x: np.ndarray,
    weight: StackedWeight,
    *,
    bias: np.ndarray | None = None,
    norm: np.ndarray | None = None,
    eps: float = 0.0,
    residual: np.ndarray | None = None,
    debug_method: str = "auto",
) -> np.ndarray:
    """Multiply x with the transposed weight, all stacked matrices in one call.

    Args:
        x: [T, K] float32, any strides.
        weight: [N, K].
        bias: [N] float32, added to every row.
        norm: [K] float32. x is first divided by the root of its mean square (plus ``eps``) and
            multiplied by this.
        eps: Used with ``norm`` only.
        residual: [T, N] float32, added to the result.
        debug_method: "rows", "tiles" or "floats" instead of the one that T asks for.

    Returns:
        [T, N] float32.

    Raises:
        TensorError: a shape or dtype does not fit, or x holds NaN or infinity.
    """
    x = _rows_of(x, weight)
    shape = (x.shape[0], weight.n_out)
    bias = _vector(bias, "bias", weight.n_out)
    norm = _vector(norm, "norm", weight.n_in)
    if residual is not None:
        if residual.shape != shape or residual.dtype != np.float32:
            raise TensorError(
                f"residual is {residual.dtype} {list(residual.shape)}, "
                f"expected float32 {list(shape)}"
            )
        residual = np.ascontiguousarray(residual)
    out = np.empty(shape, np.float32)
    if out.size:
        args = lib.LinearArgs(
            _address(x),
            _address(norm),
            _address(bias),
            _address(residual),
            _address(out),
            x.shape[0],
            x.strides[0] // 4,
            weight.n_out,
            eps,
            0,
            weight.n_parts,
            _METHODS.index(debug_method),
        )
        _check(_library().ds4_linear(ctypes.addressof(args), weight.address))
    return out


def gated_linear(
    x: np.ndarray,
    gate_up: StackedWeight,
    *,
    norm: np.ndarray | None = None,
    eps: float = 0.0,
    debug_method: str = "auto",
) -> np.ndarray:
    """Return silu(x times gate) * (x times up), for two stacked matrices [F, K].

    Args and errors as ``linear``.

    Returns:
        [T, F] float32.
    """
    if gate_up.n_parts != 2 or gate_up.rows_of[0] != gate_up.rows_of[1]:
        raise TensorError(
            f"gate and up have {list(gate_up.rows_of)} rows, expected two equal numbers"
        )
    x = _rows_of(x, gate_up)
    norm = _vector(norm, "norm", gate_up.n_in)
    n_out = gate_up.rows_of[0]
    out = np.empty((x.shape[0], n_out), np.float32)
    if out.size:
        args = lib.LinearArgs(
            _address(x),
            _address(norm),
            None,
            None,
            _address(out),
            x.shape[0],
            x.strides[0] // 4,
            n_out,
            eps,
            1,
            2,
            _METHODS.index(debug_method),
        )
        _check(_library().ds4_linear(ctypes.addressof(args), gate_up.address))
    return out


def attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    *,
    scale: float | None = None,
    window: int = 0,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """Causal attention of the last T positions over all rows of a cache.

    Args:
        queries: [T, H, D] float32, already rotated.
        keys: [Hkv, N, D] float32 or float16; rows of D values are contiguous, the other strides
            are free. The rows of the T positions are the last ones.
        values: As ``keys``, with the same strides.
        scale: Factor of the scores; D ** -0.5 when None.
        window: A position sees at most this many rows, its own included; 0 means all.
        sinks: [H] float32, a logit of each head that joins its softmax and contributes no value.

    Returns:
        [T, H * D] float32. Query head h reads key head h * Hkv // H.

    Raises:
        TensorError: a shape, dtype or stride does not fit.
    """
    if queries.ndim != 3 or queries.dtype != np.float32:
        raise TensorError(
            f"queries are {queries.dtype} with {queries.ndim} axes, expected [T, H, D]"
        )
    n_new, n_heads, dim = queries.shape
    _check_cache(keys, values, n_new, n_heads, dim)
    n_kv_heads, n_rows, _ = keys.shape
    queries = np.ascontiguousarray(queries)
    sinks = _vector(sinks, "sinks", n_heads)
    out = np.empty((n_new, n_heads * dim), np.float32)
    if out.size:
        item = keys.itemsize
        args = lib.AttentionArgs(
            _address(queries),
            _address(keys),
            _address(values),
            _address(out),
            n_new,
            n_heads,
            n_kv_heads,
            dim,
            n_rows,
            keys.strides[1] // item,
            keys.strides[0] // item,
            _address(sinks),
            window,
            dim**-0.5 if scale is None else scale,
            keys.dtype == np.float16,
        )
        _check(_library().ds4_attention(ctypes.addressof(args)))
    return out


def _library() -> ctypes.CDLL:
    library = lib.load_library()
    if library is None:
        raise DeviceError("the compiled CPU kernels are not installed", _NO_LIBRARY)
    return library


def _check(status: int) -> None:
    if status == lib.NOT_FINITE:
        raise TensorError(
            "activations hold NaN or infinity, expected finite numbers",
            "Check the model file against its published hash.",
        )
    if status == lib.NO_MEMORY:
        raise TensorError("no memory for the scratch buffer", "Close other programs.")
    assert status == lib.OK


def _address(array: np.ndarray | None) -> int | None:
    # A tenth of a small model's token went into making the objects of ``array.ctypes``.
    return None if array is None else array.__array_interface__["data"][0]


def _checked(part: PackedMatrix, n_in: int) -> PackedMatrix:
    """Return the matrix if its bytes are exactly those of its type and shape."""
    n_rows, n_columns = part.shape
    if part.type_id not in TYPES:
        name = BLOCK[part.type_id].name if part.type_id in BLOCK else part.type_id
        raise TensorError(f"no compiled kernel for tensors of type {name}")
    block = BLOCK[part.type_id]
    if n_columns != n_in or not can_multiply(part.type_id, n_columns):
        raise TensorError(
            f"{block.name} matrix has {n_columns} columns, expected {n_in} and whole groups of "
            f"{max(block.n_values, _GROUP)}"
        )
    n_bytes = n_rows * (n_columns // block.n_values) * block.n_bytes
    raw = part.raw
    if raw.dtype != np.uint8 or not raw.flags.c_contiguous or raw.size != n_bytes:
        raise TensorError(
            f"{block.name} matrix {list(part.shape)} lies in {raw.size} {raw.dtype}, "
            f"expected {n_bytes} contiguous uint8"
        )
    return part


def _rows_of(x: np.ndarray, weight: StackedWeight) -> np.ndarray:
    """Check x [T, K] and make its rows contiguous."""
    if x.ndim != 2 or x.shape[1] != weight.n_in or x.dtype != np.float32:
        raise TensorError(
            f"activations are {x.dtype} {list(x.shape)}, expected float32 [T, {weight.n_in}]"
        )
    if x.strides[1] != 4 or x.strides[0] % 4 or x.strides[0] < 0:
        x = np.ascontiguousarray(x)
    return x


def _vector(values: np.ndarray | None, name: str, n: int) -> np.ndarray | None:
    if values is None:
        return None
    if values.shape != (n,) or values.dtype != np.float32:
        raise TensorError(f"{name} is {values.dtype} {list(values.shape)}, expected float32 [{n}]")
    return np.ascontiguousarray(values)


def _check_cache(keys: np.ndarray, values: np.ndarray, n_new: int, n_heads: int, dim: int) -> None:
    if keys.dtype not in (np.float32, np.float16):
        raise TensorError(f"keys are {keys.dtype}, expected float32 or float16")
    if keys.ndim != 3 or keys.shape[2] != dim or keys.shape[1] < n_new:
        raise TensorError(
            f"keys have shape {list(keys.shape)}, expected [Hkv, at least {n_new}, {dim}]"
        )
    if (values.shape, values.strides, values.dtype) != (keys.shape, keys.strides, keys.dtype):
        raise TensorError("keys and values differ in shape, strides or dtype, expected the same")
    item = keys.itemsize
    if keys.strides[2] != item or any(s < 0 or s % item for s in keys.strides[:2]):
        raise TensorError(f"keys have strides {keys.strides}, expected contiguous rows")
    n_kv_heads = keys.shape[0]
    if not n_kv_heads or n_heads % n_kv_heads or n_heads // n_kv_heads > lib.MAX_GROUP:
        raise TensorError(
            f"{n_heads} query heads over {n_kv_heads} key heads, expected a multiple of at most "
            f"{lib.MAX_GROUP}"
        )
