"""The tools a client declares, and which of them the reply may or must call."""

import re
from collections.abc import Sequence
from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields, wrong
from engine.chat.format import ToolSpec

# A name stands between quotes in the prompt, and nothing escapes it there.
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


def read_function(fields: Fields, schema_name: str = "parameters") -> ToolSpec:
    """Read name, description and schema of a function.

    Raises:
        ApiError: the name can't be written in a prompt, or the schema is no schema of an object.
    """
    name = read_name(fields)
    schema = fields.get(schema_name)
    return ToolSpec(
        name,
        fields.text("description", ""),
        {} if schema is None else _checked_schema(schema, fields.at(schema_name)),
    )


def read_name(fields: Fields) -> str:
    """Read the name of a tool."""
    name = fields.text("name")
    if not _NAME.fullmatch(name):
        raise ApiError(
            f"{fields.at('name')} is {name[:80]!r}, expected 1 to 128 letters, digits or any of "
            "_ . : / -",
            param=fields.at("name"),
        )
    return name


def check_names(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools as they are.

    Raises:
        ApiError: two have the same name.
    """
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise ApiError(f"tools has {tool.name!r} twice, expected each once.", param="tools")
        seen.add(tool.name)
    return tuple(tools)


def choose_tools(tools: Sequence[ToolSpec], names: Sequence[str]) -> tuple[ToolSpec, ...]:
    """Return the tools that the client chose, in their own order.

    Raises:
        ApiError: there is none of a name.
    """
    known = {tool.name for tool in tools}
    for name in names:
        if name not in known:
            raise ApiError(
                f"tool_choice names {name[:80]!r}, expected one of the tools.", param="tool_choice"
            )
    chosen = set(names)
    return tuple(tool for tool in tools if tool.name in chosen)


def read_allowed_tools(
    fields: Fields, tools: Sequence[ToolSpec]
) -> tuple[tuple[ToolSpec, ...], bool]:
    """Read OpenAI's ``allowed_tools``: all tools stay in the prompt, a few may be called.

    Returns:
        What may be called, and whether one must be.
    """
    is_required = fields.one_of("mode", ("auto", "required"), "auto") == "required"
    names = []
    for item in fields.objects("tools"):
        function = item.object("function") or item
        names.append(function.text("namespace", "") + function.text("name"))
    chosen = choose_tools(tools, names)
    if is_required and not chosen:
        raise ApiError("tool_choice is required, but it allows no tool.", param="tool_choice")
    return chosen, is_required


def refuse_forced_call_in_thinking(thinking: bool) -> None:
    """Refuse a required call where the model is to think first, as its own service does."""
    if thinking:
        raise ApiError("Thinking mode does not support this tool_choice", param="tool_choice")


def _checked_schema(schema: Any, where: str) -> dict[str, Any]:
    """Check what the chat formats read of a schema."""
    fields = Fields(schema, where)
    if "type" in fields and fields.get("type") != "object":
        raise wrong(f"{where}.type", fields.get("type"), "'object'")
    properties = fields.object("properties")
    for name, value in (properties.raw if properties else {}).items():
        if not isinstance(value, dict | bool):
            raise wrong(f"{where}.properties.{name[:80]}", value, "a schema")
    for index, name in enumerate(fields.list("required")):
        if not isinstance(name, str):
            raise wrong(f"{where}.required[{index}]", name, "a text")
    return {key: value for key, value in schema.items() if not _is_null_keyword(key, value)}


def _is_null_keyword(key: str, value: Any) -> bool:
    return value is None and key in ("type", "properties", "required")
