"""The JSON schema of ``--output-format stream-json``, made from the events themselves.

So it can't tell anything else than the program does. Fields may be added in a later version and
events, too: a reader leaves out what it does not know.
"""

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any

from ds4agent import events
from ds4agent.events import Outcome
from ds4agent.headless import USAGE_FIELDS, event_name

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def event_schema() -> dict[str, Any]:
    """Return the schema of one line (JSON Schema 2020-12)."""
    kinds = typing.get_args(events.Event)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of ds4-agent --output-format stream-json",
        "oneOf": [*(_event(kind) for kind in kinds), _result()],
    }


def _event(kind: type) -> dict[str, Any]:
    schema = _object(kind)
    schema["properties"] = {"type": {"const": event_name(kind)}, **schema["properties"]}
    schema["required"] = ["type", *schema["required"]]
    schema["description"] = " ".join((kind.__doc__ or "").split())
    return schema


def _result() -> dict[str, Any]:
    call = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "arguments": {"type": "object"},
            "ok": {"type": "boolean"},
        },
        "required": ["name", "arguments", "ok"],
    }
    properties: dict[str, Any] = {
        "type": {"const": "result"},
        "outcome": {"enum": [outcome.value for outcome in Outcome]},
        "result": {"type": "string"},
        "session_id": {"type": "string"},
        "usage": {
            "type": "object",
            "properties": {name: {"type": "integer"} for name in USAGE_FIELDS},
            "required": list(USAGE_FIELDS),
        },
        "model": {"type": "string"},
        "tool_calls": {"type": "array", "items": call},
        "duration_s": {"type": "number"},
    }
    optional = {
        "error": {"type": "string"},
        "warnings": {"type": "array", "items": {"type": "string"}},
    }
    return {
        "type": "object",
        "description": "The last line, and the only one of --output-format json.",
        "properties": properties | optional,
        "required": list(properties),
    }


def _object(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    return {
        "type": "object",
        "properties": {name: _value(hints[name]) for name in fields},
        "required": fields,
    }


def _value(kind: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    if dataclasses.is_dataclass(kind):
        return _object(kind)
    if origin is tuple:
        return {"type": "array", "items": _value(arguments[0])}
    if origin is dict:
        return {"type": "object"}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_value(argument) for argument in arguments]}
    if kind is type(None):
        return {"type": "null"}
    raise TypeError(f"an event has a field of type {kind}, which has no JSON form here")
