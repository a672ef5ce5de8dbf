"""Reading the fields of a JSON object, each with its type and where it stands."""

from collections.abc import Iterator
from typing import Any

from ds4agent.server.api.body import kind_of
from ds4agent.server.api.errors import ApiError


class Fields:
    """A JSON object and its place in the body. A field that is null counts as absent.

    Every method raises ApiError, naming the field, where the value has another type.
    """

    def __init__(self, value: Any, where: str = "") -> None:
        """Check that a value is an object.

        Args:
            value: Parsed JSON.
            where: Its place, e.g. ``messages[2]``; ``""`` for the body itself.
        """
        if not isinstance(value, dict):
            raise wrong(where, value, "an object")
        self.raw = value
        self.where = where

    def at(self, name: str) -> str:
        """Return the place of a field."""
        return f"{self.where}.{name}" if self.where else name

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def get(self, name: str) -> Any:
        """Return the raw value, None where there is none."""
        return self.raw.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; without a default the field has to be there."""
        value = self.raw.get(name)
        if value is None:
            if default is not None:
                return default
            raise ApiError(f"{self.at(name)} is missing.", param=self.at(name))
        if not isinstance(value, str):
            raise wrong(self.at(name), value, "a text")
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong(self.at(name), value, "true or false")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """Return a number within limits."""
        value = self.raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(self.at(name), value, "a number")
        if not least <= value <= most:
            raise _out_of_range(self.at(name), least, most)
        return float(value)

    def integer(self, name: str, least: int, most: int) -> int | None:
        """Return a whole number within limits, None where there is none."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(self.at(name), value, "a whole number")
        if not least <= value <= most:
            raise _out_of_range(self.at(name), least, most)
        return value

    def one_of(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Return one of a few words; without a default the field has to be there."""
        value = self.text(name, default)
        if value not in choices:
            raise ApiError(
                f"{self.at(name)} is {value[:80]!r}, expected one of {', '.join(choices)}.",
                param=self.at(name),
            )
        return value

    def object(self, name: str) -> "Fields | None":
        """Return an object, None where there is none."""
        value = self.raw.get(name)
        return None if value is None else Fields(value, self.at(name))

    def list(self, name: str) -> list[Any]:
        """Return a list, an empty one where there is none."""
        value = self.raw.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise wrong(self.at(name), value, "a list")
        return value

    def objects(self, name: str) -> Iterator["Fields"]:
        """Yield the objects of a list."""
        for index, value in enumerate(self.list(name)):
            yield Fields(value, f"{self.at(name)}[{index}]")


def wrong(where: str, value: Any, expected: str) -> ApiError:
    """Return the error of a value of the wrong type."""
    return ApiError(f"{where or 'The body'} is {kind_of(value)}, expected {expected}.", param=where)


def _out_of_range(name: str, least: float, most: float) -> ApiError:
    return ApiError(
        f"Invalid {name} value, the valid range of {name} is [{least}, {most}]", param=name
    )
