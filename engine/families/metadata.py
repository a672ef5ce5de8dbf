"""Typed reading of a model file's metadata, with errors that name the key."""

from math import isfinite
from typing import Any

from engine.errors import ModelFileError
from engine.gguf_file import GgufFile

_HINT = "Get another conversion of the model."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


class Facts:
    """The numbers of one architecture: key ``block_count`` means ``llama.block_count``."""

    def __init__(self, gguf: GgufFile) -> None:
        self.file_name = gguf.path.name
        self.architecture = str(gguf.metadata.get("general.architecture", ""))
        self._metadata = gguf.metadata

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return an integer of at least ``least``.

        Raises:
            ModelFileError: missing without a default, or no such integer.
        """
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise self._wrong(key, value, wanted)
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a positive finite number.

        Raises:
            ModelFileError: missing without a default, or no positive number.
        """
        value = self._value(key, default)
        if not _is_number(value) or value <= 0:
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

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value.

        Raises:
            ModelFileError: the value is none.
        """
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def numbers(self, key: str, count: int) -> list[int | float]:
        """Return the first ``count`` finite numbers of a list; files may have more.

        Raises:
            ModelFileError: missing, no list, too short, or with something else in it.
        """
        value = self._value(key, None)
        is_list = isinstance(value, list) and len(value) >= count
        if not is_list or not all(_is_number(item) for item in value[:count]):
            raise self._wrong(key, value, f"a list of at least {count} numbers")
        return value[:count]

    def expect(self, key: str, expected: Any, why: str, default: Any = None) -> None:
        """Check a number that can only have one value.

        Raises:
            ModelFileError: missing without a default, or another value; says ``why``.
        """
        value = self._value(key, default)
        if value != expected:
            raise self._wrong(key, value, f"{expected} ({why})")

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
