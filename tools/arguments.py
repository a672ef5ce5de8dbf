"""Checking a call's arguments against a tool's schema, leniently where the meaning is clear.

Small models add arguments, write numbers as text and choose values out of range. What can be
understood is corrected, and each correction is told; what cannot is refused with the right shape.
"""

import json
from typing import Any

from tools.base import Tool
from tools.errors import ToolError
from tools.text import one_line

_TRUE = frozenset(("true", "yes", "1"))
_FALSE = frozenset(("false", "no", "0", ""))


def check(tool: Tool, arguments: object) -> tuple[dict[str, Any], list[str]]:
    """Return complete arguments of the right types, and a note for each correction.

    Raises:
        ToolError: an argument is missing or cannot be understood.
    """
    if not isinstance(arguments, dict):
        raise ToolError(f"the arguments of {tool.name} must be an object", shape(tool))
    own_check = getattr(tool, "check", None)  # of a tool whose schema is somebody else's
    if own_check is not None:
        return own_check(arguments), []
    properties: dict[str, dict[str, Any]] = tool.parameters["properties"]
    notes = []
    unknown = sorted(one_line(str(name), 40) for name in arguments if name not in properties)
    if unknown:
        notes.append(f"ignored unknown arguments: {', '.join(unknown[:10])}")
    checked: dict[str, Any] = {}
    for name, schema in properties.items():
        value = arguments.get(name)
        if value is None:
            if name in tool.parameters["required"]:
                raise ToolError(f"{tool.name} needs the argument {name}", shape(tool))
            checked[name] = tool.defaults[name]
            continue
        checked[name] = _convert(tool, name, value, schema, notes)
    return checked, notes


def shape(tool: Tool) -> str:
    """Return the expected arguments in one line, such as ``Give path: string, old: string.``"""
    required = tool.parameters["required"]
    parts = [
        f"{name}: {schema['type']}" + ("" if name in required else " (optional)")
        for name, schema in tool.parameters["properties"].items()
    ]
    return f"Give {', '.join(parts)}."


def _convert(tool: Tool, name: str, value: Any, schema: dict[str, Any], notes: list[str]) -> Any:
    wanted = schema["type"]
    match wanted:
        case "string" if "enum" in schema:
            word = str(value).strip().casefold()
            if word in schema["enum"]:
                return word
            shown = one_line(repr(value), 60)
            choices = ", ".join(schema["enum"])
            raise ToolError(f"{name} of {tool.name} must be one of {choices}, not {shown}")
        case "array":
            items = _list(value)
            if items is not None:
                part = f"{name} item"
                return [_convert(tool, part, item, schema["items"], notes) for item in items]
        case "object":
            if isinstance(value, dict) and all(key in value for key in schema["required"]):
                return {
                    key: _convert(tool, f"{name} {key}", value[key], part, notes)
                    for key, part in schema["properties"].items()
                    if key in value
                }
            needed = ", ".join(schema["required"])
            raise ToolError(f"each {name} of {tool.name} must be an object with {needed}")
        case "string":
            if isinstance(value, str):
                return value
            if isinstance(value, list) and all(isinstance(line, str) for line in value):
                return "\n".join(line.removesuffix("\n") for line in value)
            if isinstance(value, int | float):
                return str(value)
        case "boolean":
            word = str(value).strip().casefold()
            if word in _TRUE | _FALSE:
                return word in _TRUE
        case "integer":
            number = _integer(value)
            if number is not None:
                low, high = tool.bounds.get(name, (number, number))
                clamped = max(low, min(high, number))
                if clamped != number:
                    notes.append(f"{name} was changed from {number} to {clamped}")
                return clamped
    shown = one_line(repr(value), 60)
    raise ToolError(f"{name} of {tool.name} must be of type {wanted}, not {shown}", shape(tool))


def _list(value: Any) -> list[Any] | None:
    """Take a list, a list that was written as text, or one item without its list."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict | str) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value.strip()) if isinstance(value, str) else float(value)
        return int(number)
    except (TypeError, ValueError, OverflowError):
        return None
