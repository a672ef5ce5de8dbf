"""Reading ``[[hooks]]`` and ``[servers.NAME]`` of the person's settings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ds4agent.errors import ConfigError
from ds4agent.extensions.hooks import Hook, When
from ds4agent.permissions.rules import Rule

_SERVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_MOST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One MCP server: a program that is started, or an address."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    is_sandboxed: bool = True  # a program: confined as the model's commands, without network
    timeout_s: float = 60.0  # of one call


def read_hooks(entries: Sequence[Any], origin: str) -> tuple[Hook, ...]:
    """Read the list of hooks.

    Raises:
        ConfigError: an entry is none.
    """
    return tuple(_hook(entry, f"{origin}: hook {n}") for n, entry in enumerate(entries, start=1))


def read_servers(tables: Mapping[str, Any], origin: str) -> tuple[ServerSettings, ...]:
    """Read the tables of servers.

    Raises:
        ConfigError: a table is none.
    """
    return tuple(_server(name, table, f"{origin}: server {name}") for name, table in tables.items())


def _hook(entry: Any, where: str) -> Hook:
    values = _fields(entry, {"when": str, "calls": str, "run": str, "timeout_s": float}, where)
    if values.get("when") not in tuple(When):
        raise ConfigError(f"{where}: when is {values.get('when')!r}", "Use before or after.")
    if not values.get("run", "").strip() or "\0" in values["run"]:
        raise ConfigError(f"{where}: there is no command", 'Give one: run = "make lint".')
    try:
        rule = Rule.parse(values.get("calls", ""))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", error.hint) from error
    return Hook(When(values["when"]), rule, values["run"], _seconds(values, where))


def _server(name: str, table: Any, where: str) -> ServerSettings:
    kinds = {"command": list, "url": str, "env": dict, "sandbox": bool, "timeout_s": float}
    values = _fields(table, kinds, where)
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name is letters, digits, - and _", "Rename the table.")
    command, url, env = values.get("command", []), values.get("url", ""), values.get("env", {})
    if bool(command) == bool(url):
        raise ConfigError(f"{where}: give command or url, one of them", 'command = ["program"].')
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: url is {url!r}", "It begins with http:// or https://.")
    texts = (*command, *env, *env.values())
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ConfigError(f"{where}: command and env hold texts", 'env = {TOKEN = "..."}.')
    return ServerSettings(
        name, tuple(command), url, env, values.get("sandbox", True), _seconds(values, where)
    )


def _fields(entry: Any, kinds: Mapping[str, type], where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {entry!r}, expected a table", f"Fields: {', '.join(kinds)}.")
    values = {}
    for name, value in entry.items():
        kind = kinds.get(name)
        if kind is float and type(value) is int:
            value = float(value)
        if kind is None or type(value) is not kind:
            raise ConfigError(f"{where}: {name} = {value!r}", f"Fields: {', '.join(kinds)}.")
        values[name] = value
    return values


def _seconds(values: Mapping[str, Any], where: str) -> float:
    seconds = values.get("timeout_s", 60.0)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ConfigError(
            f"{where}: timeout_s is {seconds}", f"Expected 0 to {_MOST_SECONDS:.0f} seconds."
        )
    return seconds
