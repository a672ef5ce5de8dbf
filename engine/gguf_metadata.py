"""The header of a GGUF file: a cursor over untrusted bytes, and the typed values in them.

Layout (versions 2 and 3, little endian): magic ``GGUF``, u32 version, u64 tensor count, u64
metadata count, the metadata pairs, the tensor directory, padding, tensor data. A string is a u64
length and UTF-8 bytes; an array is a u32 value type, a u64 count and the values.

Every length and count is compared with the bytes that are left before anything is allocated.
"""

import struct
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelFileError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING = 8
_ARRAY = 9
_SCALARS = {  # value type id -> NumPy dtype; ids from the public GGUF specification
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "|b1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_MAX_KEY_BYTES = 65_535  # limit of the GGUF specification
_MAX_STRING_BYTES = 64 << 20  # the longest real strings are chat templates of some 100 KiB
_MAX_ARRAY_DEPTH = 4  # real files nest at most two deep
_MIN_PAIR_BYTES = 13  # empty key (8), value type (4), one byte of value
_DOWNLOAD_AGAIN = "Download the file again and check its size or SHA-256."


class HeaderCursor:
    """Reads values one after the other and refuses to leave the file.

    Attributes:
        position: Byte offset of the next read.
        spans: Byte range of the value of each metadata key, for hashing without decoding again.
    """

    def __init__(self, data: mmap | bytes, path: Path, position: int = 0) -> None:
        self._data = data
        self._end = len(data)
        self._path = path
        self.position = position
        self.spans: dict[str, tuple[int, int]] = {}

    @property
    def n_left(self) -> int:
        """Bytes between the cursor and the end of the file."""
        return self._end - self.position

    def fail(self, what: str) -> ModelFileError:
        """Return the error for a header that can't be right."""
        return ModelFileError(f"{self._path.name} is damaged: {what}", _DOWNLOAD_AGAIN)

    def need(self, n_bytes: int, what: str) -> None:
        """Check that ``n_bytes`` more exist.

        Raises:
            ModelFileError: the file ends before.
        """
        if n_bytes > self.n_left:
            raise self.fail(
                f"{what} needs {n_bytes} bytes at offset {self.position}, "
                f"but the file ends at {self._end}"
            )

    def u32(self, what: str) -> int:
        """Read one unsigned 32-bit number; ``what`` names it in an error."""
        self.need(4, what)
        (value,) = _U32.unpack_from(self._data, self.position)
        self.position += 4
        return value

    def u64(self, what: str) -> int:
        """Read one unsigned 64-bit number; ``what`` names it in an error."""
        self.need(8, what)
        (value,) = _U64.unpack_from(self._data, self.position)
        self.position += 8
        return value

    def string(self, what: str, max_bytes: int = _MAX_STRING_BYTES) -> str:
        """Read one string of at most ``max_bytes`` bytes of UTF-8."""
        n_bytes = self.u64(f"the length of {what}")
        if n_bytes > max_bytes:
            raise self.fail(f"{what} claims {n_bytes} bytes, expected at most {max_bytes}")
        self.need(n_bytes, what)
        raw = self._data[self.position : self.position + n_bytes]
        self.position += n_bytes
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not valid UTF-8") from error

    def value(self, type_id: int, what: str, depth: int = 0) -> Any:
        """Read one metadata value: a number, a bool, a str, or a list of one of them."""
        if type_id == _STRING:
            return self.string(what)
        if type_id == _ARRAY:
            return self._array(what, depth)
        dtype = self._dtype(type_id, what)
        self.need(dtype.itemsize, what)
        value = np.frombuffer(self._data, dtype, count=1, offset=self.position)[0].item()
        self.position += dtype.itemsize
        return value

    def _dtype(self, type_id: int, what: str) -> np.dtype:
        if type_id not in _SCALARS:
            raise self.fail(f"{what} has value type {type_id}, expected 0 to 12")
        return np.dtype(_SCALARS[type_id])

    def _array(self, what: str, depth: int) -> list[Any]:
        if depth >= _MAX_ARRAY_DEPTH:
            raise self.fail(f"{what} nests arrays more than {_MAX_ARRAY_DEPTH} deep")
        type_id = self.u32(f"the element type of {what}")
        count = self.u64(f"the length of {what}")
        if type_id == _STRING:
            return self._string_array(count, what)
        if type_id == _ARRAY:
            self.need(count * 12, what)  # an inner array has at least its type and its count
            return [self.value(type_id, what, depth + 1) for _ in range(count)]
        dtype = self._dtype(type_id, what)
        self.need(count * dtype.itemsize, what)
        values = np.frombuffer(self._data, dtype, count=count, offset=self.position).tolist()
        self.position += count * dtype.itemsize
        return values

    def _string_array(self, count: int, what: str) -> list[str]:
        # A vocabulary and its merges are 300,000 strings: this loop is most of the opening time,
        # so it keeps everything in locals and checks the bounds inline.
        self.need(count * 8, what)
        data, end, position, length_at = self._data, self._end, self.position, _U64.unpack_from
        strings = []
        try:
            for _ in range(count):
                (n_bytes,) = length_at(data, position)
                position += 8
                stop = position + n_bytes
                if stop > end:
                    raise self.fail(f"string {len(strings)} of {what} leaves the file")
                strings.append(data[position:stop].decode("utf-8"))
                position = stop
        except UnicodeDecodeError as error:
            raise self.fail(f"string {len(strings)} of {what} is not valid UTF-8") from error
        except struct.error as error:
            raise self.fail(f"string {len(strings)} of {what} leaves the file") from error
        self.position = position
        return strings


def read_metadata(cursor: HeaderCursor, count: int) -> dict[str, Any]:
    """Read ``count`` key and value pairs at the cursor.

    Raises:
        ModelFileError: the count or a value can't be right, or a key occurs twice.
    """
    cursor.need(count * _MIN_PAIR_BYTES, f"a header of {count} metadata values")
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string("a metadata key", _MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.fail(f"metadata key {key!r} occurs twice")
        type_id = cursor.u32(f"the value type of {key!r}")
        start = cursor.position
        metadata[key] = cursor.value(type_id, f"metadata {key!r}")
        cursor.spans[key] = (start, cursor.position)
    return metadata
