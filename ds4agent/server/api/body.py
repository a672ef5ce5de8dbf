"""From received bytes to a JSON object that is safe to walk.

After this the object is finite, nested no deeper than ``MAX_DEPTH``, and every text in it is valid
Unicode. Whatever isn't ends here, as an ``ApiError``.
"""

import json
from typing import Any, NoReturn

from ds4agent.server.api.errors import ApiError

MAX_BYTES = 64 << 20
MAX_DEPTH = 256  # both limits are those of antirez/ds4
_CONTAINERS = (dict, list)
# How every half of a surrogate pair begins in JSON: UTF-8 itself has no form for one.
_SURROGATES = (b"\\ud", b"\\uD")


def read_body(body: bytes | dict[str, Any]) -> dict[str, Any]:
    """Parse a body.

    Raises:
        ApiError: 413 where it is too long, else 400.
    """
    value = body if isinstance(body, dict) else _parse(body)
    _check_depth(value)
    if not isinstance(value, dict):
        raise ApiError(f"The body is {kind_of(value)}, expected a JSON object.")
    if isinstance(body, bytes) and not any(escape in body for escape in _SURROGATES):
        return value
    return _valid_texts(value)


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value, for an error message."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return names.get(type(value), "a list" if isinstance(value, list) else "an object")


def _parse(body: bytes) -> Any:
    if len(body) > MAX_BYTES:
        raise ApiError(f"The body has {len(body)} bytes, expected at most {MAX_BYTES}.", 413)
    try:
        text = body.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ApiError(f"The body is not UTF-8: byte {error.start} is wrong.") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # also a number with too many digits
        raise ApiError(f"The body is not JSON: {error}.") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _too_deep() -> ApiError:
    return ApiError(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _check_depth(value: Any) -> None:
    """Go through the levels of a value one by one, so that no depth exhausts the stack."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            members = item.values() if isinstance(item, dict) else item
            below += [v for v in members if isinstance(v, _CONTAINERS)]
        if not below:
            return
        level = below
    raise _too_deep()


def _valid_texts(value: Any) -> Any:
    """Replace half surrogate pairs, which no encoding can carry, by U+FFFD in every text."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, list):
        return [_valid_texts(item) for item in value]
    if isinstance(value, dict):
        return {_valid_texts(key): _valid_texts(item) for key, item in value.items()}
    return value
