"""MCP servers: started or connected once, their tools offered to the model as ``server.tool``.

The official SDK speaks the protocol; it is asynchronous, so it has a thread and an event loop of
its own. A server that does not start costs a line, not the conversation. One that is a program
runs in the sandbox of the model's commands unless the person's settings say otherwise.
"""

import asyncio
import concurrent.futures
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from ds4agent import paths
from ds4agent.errors import explain
from ds4agent.extensions.mcp_tool import McpTool
from ds4agent.extensions.settings import ServerSettings
from ds4agent.plain import one_line
from tools.errors import ToolError

START_S = 20.0  # a server that has not answered by then is left out
_END_S = 5.0
_LOOK_S = 0.05  # between two looks at a cancelled call
_MOST_TOOLS = 64  # of one server
_log = logging.getLogger(__name__)


class McpServers:
    """The servers of the settings, for one workspace."""

    def __init__(
        self, settings: Sequence[ServerSettings], cwd: Path, max_result_bytes: int
    ) -> None:
        self._settings = tuple(settings)
        self._cwd = cwd
        self._max_result_bytes = max_result_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ds4-mcp", daemon=True)
        self._stop: asyncio.Event | None = None
        self._running: list[concurrent.futures.Future[None]] = []

    def start(self, cancel: threading.Event) -> tuple[list[McpTool], list[str]]:
        """Connect to all servers at once.

        Returns:
            Their tools, and a line for the person about each server or tool that is left out.
        """
        if not self._settings:
            return [], []
        if find_spec("mcp") is None:
            return [], ["MCP servers need the SDK. Install it with: pip install 'ds4-agent[mcp]'"]
        self._thread.start()
        self._stop = asyncio.run_coroutine_threadsafe(_make_event(), self._loop).result()
        tools: list[McpTool] = []
        problems: list[str] = []
        started: list[tuple[ServerSettings, concurrent.futures.Future[Any]]] = []
        for settings in self._settings:
            ready: concurrent.futures.Future[Any] = concurrent.futures.Future()
            started.append((settings, ready))
            self._running.append(
                asyncio.run_coroutine_threadsafe(self._serve(settings, ready), self._loop)
            )
        deadline = time.monotonic() + START_S  # they start side by side
        for settings, ready in started:
            try:
                client, listed = _await(ready, max(0.0, deadline - time.monotonic()), cancel)
            except Exception as error:  # a server may fail in any way; none may end the program
                _log.info("server %s", settings.name, exc_info=error)
                problems.append(f"MCP server {settings.name} is left out: {one_line(_why(error))}")
                continue
            for entry in listed[:_MOST_TOOLS]:
                try:
                    tools.append(self._tool(settings, client, entry))
                except ToolError as error:
                    problems.append(f"left out: {error}")
            if len(listed) > _MOST_TOOLS:
                problems.append(
                    f"MCP server {settings.name} has {len(listed)} tools, {_MOST_TOOLS} are offered"
                )
        return tools, problems

    def close(self) -> None:
        """End all servers and the thread."""
        if self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        concurrent.futures.wait(self._running, timeout=_END_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)
        self._stop = None

    # --- the thread of the event loop ---------------------------------------------------------

    async def _serve(self, settings: ServerSettings, ready: concurrent.futures.Future[Any]) -> None:
        """Keep one connection open until the end. Opened and closed in one task, as it must be."""
        from mcp import Client

        try:
            with _log_file() as log:
                async with Client(self._target(settings, log)) as client:
                    listed = await _all_tools(client)
                    if not ready.cancelled():
                        ready.set_result((client, listed))
                    await self._stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            elif not isinstance(error, asyncio.CancelledError):
                _log.info("server %s ended", settings.name, exc_info=error)

    def _target(self, settings: ServerSettings, log: Any) -> Any:
        if settings.url:
            return settings.url
        from mcp.client.stdio import StdioServerParameters, stdio_client

        command = list(settings.command)
        if settings.is_sandboxed:
            names = [part for name in settings.env for part in ("--env", name)]
            # -P: a folder named ds4agent in the workspace must not stand in for this program.
            sandbox = ["-P", "-m", "ds4agent", "sandbox", "--workspace", str(self._cwd)]
            sandbox += [*names, "--"]
            command = [sys.executable, *sandbox, *command]
        # The SDK passes on only a few harmless variables of ours; the search path is one.
        environment = dict(settings.env)
        if "PYTHONPATH" in os.environ:
            environment.setdefault("PYTHONPATH", os.environ["PYTHONPATH"])
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=environment, cwd=self._cwd
        )
        return stdio_client(parameters, errlog=log)

    def _tool(self, settings: ServerSettings, client: Any, entry: Any) -> McpTool:
        def send(name: str, arguments: dict[str, Any], cancel: threading.Event) -> tuple[bool, str]:
            call = asyncio.run_coroutine_threadsafe(
                client.call_tool(name, arguments, read_timeout_seconds=settings.timeout_s),
                self._loop,
            )
            try:
                result = _await(call, settings.timeout_s + 1.0, cancel)
            except Exception as error:
                return False, f"{settings.name} failed: {one_line(_why(error))}"
            return not result.is_error, _text(result.content)

        return McpTool(
            settings.name,
            entry.name,
            entry.description or "",
            entry.input_schema,
            send,
            self._max_result_bytes,
        )


class _Interrupted(Exception):
    """The person does not want to wait."""


def _await(
    future: "concurrent.futures.Future[Any]", seconds: float, cancel: threading.Event
) -> Any:
    left_s = seconds
    while True:
        try:
            return future.result(timeout=min(_LOOK_S, max(left_s, 0.0)))
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            left_s -= _LOOK_S
            if cancel.is_set() or left_s <= 0:
                future.cancel()
                if cancel.is_set():
                    raise _Interrupted("interrupted by the user") from None
                raise TimeoutError("it did not answer in time") from None


def _log_file() -> TextIO:
    """Open the file for what servers complain of; without one it goes nowhere."""
    path = paths.log_file()
    try:
        paths.make_private(path.parent)
        return open(path, "a", encoding="utf-8")
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")


async def _make_event() -> asyncio.Event:
    return asyncio.Event()


async def _all_tools(client: Any) -> list[Any]:
    tools: list[Any] = []
    cursor = None
    while len(tools) <= _MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _text(blocks: Sequence[Any]) -> str:
    parts = []
    for block in blocks:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and getattr(block.resource, "text", None) is not None:
            parts.append(block.resource.text)
        else:
            parts.append(f"({block.type}: this model reads text only)")
    return "\n".join(parts)


def _why(error: BaseException) -> str:
    """Return the reason inside groups of exceptions, which the SDK raises."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return explain(error)
