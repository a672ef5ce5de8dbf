"""The angles of rotary positions, one rule for queries, cached rows and the turn back.

An angle is the float32 product of position and frequency, as in the tables the network was trained
with: at position 100,000 that differs from the exact product by up to 0.004 radians, so a state
must be continued by the same rule that wrote it. Sine and cosine of it are exact to float32.
"""

from functools import lru_cache

import numpy as np


def turns(
    first_position: int, n_positions: int, frequencies: np.ndarray, step: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine [T, r / 2] float32 of T positions, ``step`` apart."""
    return _turns(first_position, n_positions, frequencies.tobytes(), step)


@lru_cache(maxsize=8)  # every layer of a forward pass asks for one of four
def _turns(
    first_position: int, n_positions: int, frequencies: bytes, step: int
) -> tuple[np.ndarray, np.ndarray]:
    positions = first_position + step * np.arange(n_positions)
    omega = np.frombuffer(frequencies, np.float64).astype(np.float32)
    angles = (positions[:, None].astype(np.float32) * omega).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
