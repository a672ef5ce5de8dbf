"""Steps that several decoders share: small integers out of their planes, scales onto them."""

import numpy as np


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte ``at`` of every block, as float32 [n, 1]."""
    return blocks[:, at : at + 2].view(np.float16).astype(np.float32)


def nibbles(packed: np.ndarray, run: int) -> np.ndarray:
    """Unpack 4-bit integers: each ``run`` bytes hold ``run`` low, then ``run`` high nibbles.

    [n, m] uint8 -> [n, 2 m] uint8.
    """
    n, m = packed.shape
    packed = packed.reshape(n, m // run, run)
    integers = np.empty((n, m // run, 2, run), np.uint8)
    np.bitwise_and(packed, 15, out=integers[:, :, 0])
    np.right_shift(packed, 4, out=integers[:, :, 1])
    return integers.reshape(n, 2 * m)


def scaled(integers: np.ndarray, scales: np.ndarray, out: np.ndarray) -> None:
    """Write integers [n, V] times scales [n, S], each of which covers V / S neighbours."""
    n, n_scales = scales.shape
    out[...] = integers
    grouped = out.reshape(n, n_scales, -1)
    np.multiply(grouped, scales[:, :, None], out=grouped)


def shifted(offsets: np.ndarray, out: np.ndarray) -> None:
    """Subtract offsets [n, S] from ``out`` [n, V], grouped as in ``scaled``."""
    grouped = out.reshape(*offsets.shape, -1)
    np.subtract(grouped, offsets[:, :, None], out=grouped)


def crumbs(packed: np.ndarray) -> np.ndarray:
    """Unpack 2-bit integers: each 32 bytes hold four runs of 32, lowest bits first.

    [n, 64] uint8 -> [n, 2, 4, 32] uint8.
    """
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    integers = packed.reshape(-1, 2, 1, 32) >> shifts  # [n, 2, 4, 32]
    integers &= 3
    return integers
