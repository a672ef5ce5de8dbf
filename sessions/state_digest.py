"""The checksum of a payload that has none itself: SHA-256 of two SHA-256.

One is of the rows, in the order of the file, as the float16 values that they are, the other of all
other bytes. Widening a float16 to the float32 of the file is one to one, so this says as much about
the file as a digest of its bytes, at half the work. A piece of rows in a damaged or foreign file
may hold a value that is no float16; it is hashed as it stands in the file, twice as long.

Both are computed in threads of their own, because each takes as long as a fast disk.
"""

import hashlib

import numpy as np

from sessions.streams import BackgroundDigest


class StateDigest:
    """Takes what is written or read; rows in their order, the rest in its order."""

    def __init__(self) -> None:
        self._rows = BackgroundDigest(hashlib.sha256())
        self._rest = BackgroundDigest(hashlib.sha256())
        self._is_empty = True

    def update(self, data: bytes | memoryview | np.ndarray) -> None:
        """Take bytes that are no rows; their memory must stay as it is until the end."""
        self._is_empty = False
        self._rest.update(_bytes_of(data))

    def update_rows(self, rows: np.ndarray) -> None:
        """Take contiguous rows, float16; their memory must stay as it is until the end."""
        self._is_empty = False
        self._rows.update(_bytes_of(rows))

    def update_odd_rows(self, values: np.ndarray) -> None:
        """Take contiguous rows of a file that are no float16 values, now."""
        self._is_empty = False
        self._rows.settle()
        self._rows.update(_bytes_of(values))
        self._rows.settle()

    def hexdigest(self) -> str:
        """Return the checksum; "" where there was nothing, as of a payload that has its own."""
        if self._is_empty:
            return ""
        return hashlib.sha256(self._rows.digest() + self._rest.digest()).hexdigest()

    def close(self) -> None:
        """End the threads. The digest can still be asked for."""
        self._rows.close()
        self._rest.close()


def _bytes_of(data: bytes | memoryview | np.ndarray) -> bytes | memoryview:
    if isinstance(data, np.ndarray):
        return memoryview(data.reshape(-1).view(np.uint8))
    return data
