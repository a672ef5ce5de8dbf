"""The tools as a table for people, made from the same schemas that prompt and validation use."""

from collections.abc import Iterable
from typing import Any

from tools.base import Tool


def tool_table(tools: Iterable[Tool]) -> str:
    """Return a table in Markdown, one tool a row."""
    rows = ["| tool | what it does | may change | arguments |", "|---|---|---|---|"]
    for tool in tools:
        arguments = "; ".join(
            _argument(tool, name, schema) for name, schema in tool.parameters["properties"].items()
        )
        rows.append(f"| `{tool.name}` | {tool.description} | {tool.access.value} | {arguments} |")
    return "\n".join(rows) + "\n"


def _argument(tool: Tool, name: str, schema: dict[str, Any]) -> str:
    parts = [_kind(schema)]
    if name not in tool.parameters["required"]:
        default = tool.defaults[name]
        parts.append("optional" if default in ("", []) else f"default {default}")
    if name in tool.bounds and tool.bounds[name][1] < 1 << 31:
        parts.append("{} to {}".format(*tool.bounds[name]))
    if name in getattr(tool, "large_only", ()):
        parts.append("large models only")
    return f"`{name}` ({', '.join(parts)})"


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}"
    if schema["type"] == "object":
        return "objects with " + ", ".join(schema["properties"])
    return str(schema["type"])
