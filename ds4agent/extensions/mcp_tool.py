"""One tool of an MCP server, as the agent's own tools are."""

import json
import threading
from collections.abc import Callable
from typing import Any

from ds4agent.plain import one_line, plain
from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError

MOST_DESCRIPTION = 1024  # characters: every tool is paid for in each prompt
MOST_SCHEMA = 8192  # characters of JSON

# Sends a call and returns (is it fine, text); cancel stops waiting.
Send = Callable[[str, dict[str, Any], threading.Event], tuple[bool, str]]


class McpTool:
    """Calls go to the server. What it can do is its own affair, so each call asks first."""

    access = Access.REMOTE

    def __init__(
        self,
        server: str,
        name: str,
        description: str,
        schema: dict[str, Any],
        send: Send,
        max_result_bytes: int,
    ) -> None:
        """Check what the server says of a tool.

        Raises:
            ToolError: it cannot be offered to a model.
        """
        shown = one_line(name, 64)
        if (
            not name
            or len(name) > 64
            or not all(c.isascii() and (c.isalnum() or c in "_-./") for c in name)
        ):
            raise ToolError(f"the tool {shown!r} of {server} has no usable name")
        if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), dict):
            raise ToolError(f"the tool {shown} of {server} takes no object")
        if len(json.dumps(schema)) > MOST_SCHEMA:
            raise ToolError(f"the tool {shown} of {server} has a schema that fills the context")
        self.name = f"{server}.{name}"
        text = plain(description).strip()
        self.description = text if len(text) <= MOST_DESCRIPTION else text[:MOST_DESCRIPTION] + "…"
        self.parameters = {"properties": {}, "required": [], **schema}
        self.defaults: dict[str, Any] = {}
        self.bounds: dict[str, tuple[int, int]] = {}
        self._remote_name = name
        self._send = send
        self._max_result_bytes = max_result_bytes

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Compare a call's arguments with the schema of the server.

        Raises:
            ToolError: they do not fit.
        """
        import jsonschema

        try:
            jsonschema.validate(arguments, self.parameters)
        except jsonschema.ValidationError as error:
            where = one_line(".".join(map(str, error.absolute_path)), 60)
            raise ToolError(
                f"the arguments of {self.name} do not fit{f' at {where}' if where else ''}: "
                f"{one_line(error.message, 200)}",
                "Correct the call",
            ) from None
        except (jsonschema.SchemaError, RecursionError) as error:
            raise ToolError(f"the schema of {self.name} is wrong: {one_line(str(error))}") from None
        return arguments

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Show the arguments as they are sent."""
        text = json.dumps(arguments, ensure_ascii=False)
        return Preview(title=f"{self.name} {one_line(text, 80)}", detail=plain(text))

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Send the call and wait for the answer."""
        ok, text = self._send(self._remote_name, arguments, cancel)
        text = plain(text)
        data = text.encode("utf-8", "replace")
        if len(data) > self._max_result_bytes:
            kept = data[: self._max_result_bytes].decode("utf-8", "ignore")
            text = f"{kept}\n(cut: {len(data)} bytes, {self._max_result_bytes} are shown)"
        return ToolResult(ok, text or "(no output)", title=self.name)
