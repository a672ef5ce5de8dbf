"""Model files in the GGUF format: facts about the model, and its tensors as mapped bytes.

The file is mapped, not read: opening costs the header, and a tensor's bytes are paged in when a
kernel touches them. A model file comes from the network, so nothing in it is believed: after
``GgufFile.open`` every tensor is known to lie inside the file, aligned and without overlap.
"""

import mmap
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any, Self

import numpy as np

from engine.errors import ModelFileError
from engine.gguf_metadata import HeaderCursor, read_metadata
from mlx_kernels.blocks import BLOCK

_DOWNLOAD_AGAIN = "Download the file again and check its size or SHA-256."
_MIN_FILE_BYTES = 24  # magic, version and the two counts
_MIN_TENSOR_BYTES = 32  # directory entry: name length, dimension count, one dimension, type, offset
_MAX_TENSOR_NAME_BYTES = 1024
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20
_SAMPLE_BYTES = 256  # of each end and the middle of every tensor; see GgufFile.fingerprint

# general.file_type of the public GGUF specification, without the MOSTLY_ prefix.
_FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
}

_OTHER_FORMATS = (  # first bytes -> what such a file is
    (b"PK\x03\x04", "a zip archive, as PyTorch checkpoints are"),
    (b"version https://git-lfs", "a git-lfs pointer: the model itself was not downloaded"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"lmgg", "a GGML file, the format before GGUF"),
    (b"tjgg", "a GGML file, the format before GGUF"),
    (b"fmgg", "a GGML file, the format before GGUF"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x89HDF", "an HDF5 file"),
    (b"<!doctype html", "an HTML page: a download that went wrong"),
    (b"<html", "an HTML page: a download that went wrong"),
    (b"<?xml", "an XML document: a download that went wrong"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies and what its bytes are."""

    name: str
    shape: tuple[int, ...]  # NumPy order: rows first, the contiguous axis last
    type_id: int  # key of mlx_kernels.blocks.BLOCK
    offset: int  # bytes from the start of the file
    n_bytes: int


class GgufFile:
    """An open model file.

    Attributes:
        path: The file.
        metadata: Key to value: int, float, bool, str, or a list of one of them.
        tensors: Name to place and type, in the order of the file.
        n_bytes: Size of the file.
    """

    def __init__(
        self,
        path: Path,
        mapped: mmap.mmap,
        metadata: dict[str, Any],
        tensors: dict[str, TensorInfo],
        metadata_spans: dict[str, tuple[int, int]],
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self.n_bytes = len(mapped)
        self._mapped = mapped
        self._spans = metadata_spans
        self._fingerprint = ""

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map a model file and check its header and tensor directory.

        Raises:
            ModelFileError: the file is missing, no GGUF, damaged, cut off, or only a part.
        """
        path = Path(path)
        mapped = _map(path)
        try:
            _check_magic(path, mapped)
            cursor = HeaderCursor(mapped, path, position=4)
            _check_version(path, cursor.u32("the version"))
            n_tensors = cursor.u64("the tensor count")
            n_pairs = cursor.u64("the metadata count")
            metadata = read_metadata(cursor, n_pairs)
            _check_whole(path, metadata)
            tensors = _read_directory(cursor, n_tensors, _alignment(cursor, metadata), len(mapped))
        except ModelFileError:
            mapped.close()
            raise
        return cls(path, mapped, metadata, tensors, cursor.spans)

    def data(self, name: str) -> np.ndarray:
        """Return the bytes of a tensor: read-only uint8 [n_bytes], a view on the mapped file.

        Raises:
            ModelFileError: there is no such tensor.
        """
        info = self._info(name)
        return np.frombuffer(self._mapped, np.uint8, count=info.n_bytes, offset=info.offset)

    def read_ahead(self) -> None:
        """Ask the system to read the file from the disk, in the background."""
        if hasattr(mmap, "MADV_WILLNEED"):
            self._mapped.madvise(mmap.MADV_WILLNEED)

    def require(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        """Return a tensor's place after checking that its shape is the expected one.

        Raises:
            ModelFileError: the tensor is missing or has another shape.
        """
        info = self._info(name)
        if info.shape != tuple(shape):
            raise ModelFileError(
                f"tensor {name} of {self.path.name} has shape {list(info.shape)}, "
                f"expected {list(shape)}",
                "Use a file whose metadata and tensors belong together.",
            )
        return info

    @property
    def quant_name(self) -> str:
        """Return the usual name of the quantisation, such as ``Q4_K_M``.

        A file that doesn't say it is called by the type that holds most of its bytes' tensors.
        """
        file_type = self.metadata.get("general.file_type")
        named = _FILE_TYPES.get(file_type) if isinstance(file_type, int) else None
        if named is not None:
            return named
        if not self.tensors:
            return "unknown"
        matrices = [t.type_id for t in self.tensors.values() if len(t.shape) > 1]
        type_ids = matrices or [t.type_id for t in self.tensors.values()]
        return BLOCK[Counter(type_ids).most_common(1)[0][0]][0]

    @property
    def fingerprint(self) -> str:
        """Return 40 hex digits that are equal for equal weights, computed on first use.

        Covered: ``general.architecture``, every key of that architecture, the tokenizer's model,
        pre-tokenizer and token list; for each tensor, in order of name, its name, shape, type and
        256 bytes of its start, middle and end. Not covered: the file's name and path, its order
        and padding, texts such as the chat template, and the tensor bytes in between. So it tells
        models and quantisations apart; it is no protection against a forged file.
        """
        if not self._fingerprint:
            self._fingerprint = self._hash()
        return self._fingerprint

    def close(self) -> None:
        """Give the mapping back. Views that are still in use keep their pages alive."""
        try:
            self._mapped.close()
        except BufferError:
            pass  # arrays from data() are alive; the mapping goes when the last of them does

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError(
                f"{self.path.name} has no tensor {name}",
                "Use a complete file of a supported architecture.",
            )
        return info

    def _hash(self) -> str:
        digest = blake2b(digest_size=20)
        architecture = self.metadata.get("general.architecture")
        names = {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"}
        names |= {"tokenizer.ggml.tokens"}
        names |= {key for key in self.metadata if key.startswith(f"{architecture}.")}
        for key in sorted(names & self.metadata.keys()):
            start, stop = self._spans[key]
            digest.update(f"{key}\0{stop - start}\0".encode())
            digest.update(self._mapped[start:stop])
        for name, info in sorted(self.tensors.items()):
            digest.update(f"{name}\0{info.shape}\0{info.type_id}\0".encode())
            for start in (0, info.n_bytes // 2, max(0, info.n_bytes - _SAMPLE_BYTES)):
                stop = min(start + _SAMPLE_BYTES, info.n_bytes)
                digest.update(self._mapped[info.offset + start : info.offset + stop])
        return digest.hexdigest()


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            n_bytes = file.seek(0, 2)
            if n_bytes < _MIN_FILE_BYTES:
                raise ModelFileError(
                    f"{path.name} is {n_bytes} bytes, too small for a GGUF file", _DOWNLOAD_AGAIN
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise ModelFileError(
            f"there is no model file {path}", "Check the path, or pull a model first."
        ) from error
    except IsADirectoryError as error:
        raise ModelFileError(
            f"{path} is a folder, expected a GGUF file", "Give the path of the .gguf file in it."
        ) from error
    except PermissionError as error:
        raise ModelFileError(
            f"{path} may not be read by this user", "Change the permissions of the file."
        ) from error
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} cannot be read: {error}", "Check the path and the disk it is on."
        ) from error


def _check_magic(path: Path, mapped: mmap.mmap) -> None:
    head = mapped[:256]
    if head.startswith(b"GGUF"):
        return
    found = "an unknown format"
    text = head.lstrip().lower()
    for magic, name in _OTHER_FORMATS:
        if head.startswith(magic) or text.startswith(magic):
            found = name
            break
    else:
        header_bytes = int.from_bytes(head[:8], "little")
        if head[8:9] == b"{" and header_bytes <= len(mapped):
            found = "a safetensors file"
        elif text[:1] in (b"{", b"["):
            found = "a JSON text: perhaps the error message of a download"
    raise ModelFileError(
        f"{path.name} is no GGUF file: it looks like {found}",
        "Get the GGUF version of the model.",
    )


def _check_version(path: Path, version: int) -> None:
    if version in (2, 3):
        return
    if version & 0xFFFF == 0 and version:
        raise ModelFileError(
            f"{path.name} is a big-endian GGUF file, expected little-endian",
            "Get the little-endian file, or convert it with the gguf package.",
        )
    raise ModelFileError(
        f"{path.name} has GGUF version {version}, expected 2 or 3",
        "Get a file of a current version.",
    )


def _check_whole(path: Path, metadata: dict[str, Any]) -> None:
    n_parts = metadata.get("split.count", 1)
    if isinstance(n_parts, int) and n_parts > 1:
        raise ModelFileError(
            f"{path.name} is one of {n_parts} parts of a split model, expected a whole file",
            "Merge the parts with llama-gguf-split --merge.",
        )


def _alignment(cursor: HeaderCursor, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    is_power = isinstance(alignment, int) and alignment > 0 and not alignment & (alignment - 1)
    if not is_power or alignment > _MAX_ALIGNMENT:
        raise cursor.fail(f"general.alignment is {alignment!r}, expected a power of two")
    return alignment


def _read_directory(
    cursor: HeaderCursor, count: int, alignment: int, file_bytes: int
) -> dict[str, TensorInfo]:
    cursor.need(count * _MIN_TENSOR_BYTES, f"a directory of {count} tensors")
    entries = []
    for _ in range(count):
        name = cursor.string("a tensor name", _MAX_TENSOR_NAME_BYTES)
        n_dimensions = cursor.u32(f"the dimension count of {name}")
        if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
            raise cursor.fail(f"tensor {name} has {n_dimensions} dimensions, expected 1 to 4")
        sizes = [cursor.u64(f"a dimension of {name}") for _ in range(n_dimensions)]
        type_id = cursor.u32(f"the type of {name}")
        offset = cursor.u64(f"the offset of {name}")
        entries.append((name, tuple(reversed(sizes)), type_id, offset))

    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, type_id, offset in entries:
        if name in tensors:
            raise cursor.fail(f"tensor {name} occurs twice")
        if offset % alignment:
            raise cursor.fail(f"tensor {name} has offset {offset}, not a multiple of {alignment}")
        n_bytes = _tensor_bytes(cursor, name, shape, type_id)
        tensors[name] = TensorInfo(name, shape, type_id, data_start + offset, n_bytes)
    _check_places(cursor, tensors, file_bytes)
    return tensors


def _tensor_bytes(cursor: HeaderCursor, name: str, shape: tuple[int, ...], type_id: int) -> int:
    if type_id not in BLOCK:
        raise ModelFileError(
            f"tensor {name} has type {type_id}, which this program does not know",
            "Get the model in a common quantisation such as Q4_K_M or Q8_0.",
        )
    type_name, n_values, n_bytes = BLOCK[type_id]
    if 0 in shape or shape[-1] % n_values:
        raise cursor.fail(
            f"tensor {name} has shape {list(shape)}, but {type_name} rows are whole blocks "
            f"of {n_values} values"
        )
    return prod(shape) // n_values * n_bytes


def _check_places(cursor: HeaderCursor, tensors: dict[str, TensorInfo], file_bytes: int) -> None:
    in_order = sorted(tensors.values(), key=lambda info: info.offset)
    needed = max((info.offset + info.n_bytes for info in in_order), default=0)
    if needed > file_bytes:
        raise cursor.fail(f"the file is {file_bytes} bytes, its tensors need {needed}")
    for before, after in zip(in_order, in_order[1:], strict=False):
        if before.offset + before.n_bytes > after.offset:
            raise cursor.fail(f"tensors {before.name} and {after.name} overlap")
