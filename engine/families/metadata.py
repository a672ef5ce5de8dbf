"""Typed reading of a model file's metadata, with errors that name the key."""

from math import isfinite
from typing import Any

from engine.errors import ModelFileError
from engine.gguf_file import GgufFile

_HINT = "Get another conversion of the model."


class Facts:
    """The numbers of one architecture: key ``block_count`` means ``llama.block_count``."""

    def __init__(self, gguf: GgufFile) -> None:
        self.file_name = gguf.path.name
        self.architecture = str(gguf.metadata.get("general.architecture", ""))
        self._metadata = gguf.metadata

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a positive integer.

        Raises:
            ModelFileError: missing without a default, or no positive integer.
        """
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, value, "a positive integer")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a positive finite number.

        Raises:
            ModelFileError: missing without a default, or no positive number.
        """
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or value <= 0:
            raise self._wrong(key, value, "a positive number")
        return float(value)

    def text(self, key: str, default: str) -> str:
        """Return a string.

        Raises:
            ModelFileError: the value is no string.
        """
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def _value(self, key: str, default: Any) -> Any:
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise ModelFileError(
                f"{self.file_name} lacks the metadata {self.architecture}.{key}", _HINT
            )
        return value

    def _wrong(self, key: str, value: Any, expected: str) -> ModelFileError:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:40] + "..."
        return ModelFileError(
            f"{self.file_name}: {self.architecture}.{key} is {shown}, expected {expected}", _HINT
        )
