"""The slash commands as a table."""

import pytest

from ds4agent.commands import COMMANDS, CommandTable
from ds4agent.errors import UsageError
from ds4agent.requests import ListSessions, Load, Mode, New, Quit, Save, SetMode
from ds4agent.screen_requests import (
    Copy,
    Export,
    SetMouse,
    SetTheme,
    ShowHelp,
    ShowSettings,
    TellMode,
    What,
)

TABLE = CommandTable()


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/save", Save()),
        ("/load abc", Load("abc")),
        ("/switch  abc ", Load("abc")),
        ("/LIST", ListSessions()),
        ("/new", New()),
        ("/mode plan", SetMode(Mode.PLAN)),
        ("/mode", TellMode()),
        ("/help", ShowHelp()),
        ("/resume", ListSessions()),
        ("/copy", Copy()),
        ("/copy code", Copy(What.CODE)),
        ("/export talk.html", Export("talk.html")),
        ("/settings", ShowSettings()),
        ("/theme high-contrast", SetTheme("high-contrast")),
        ("/theme", SetTheme("")),
        ("/mouse off", SetMouse(False)),
        ("/mouse", SetMouse(None)),
        ("/exit", Quit()),
    ],
)
def test_parse(line: str, command: object) -> None:
    assert TABLE.parse(line)[1] == command


@pytest.mark.parametrize(
    "line", ["/frobnicate", "/", "/load", "/save now", "/mode wild", "/copy that", "/theme x"]
)
def test_parse_when_wrong_says_so(line: str) -> None:
    with pytest.raises(UsageError):
        TABLE.parse(line)


def test_parse_when_busy_refuses_what_has_to_wait() -> None:
    with pytest.raises(UsageError, match="end of the turn"):
        TABLE.parse("/new", is_busy=True)
    assert TABLE.parse("/save", is_busy=True)[1] == Save()


def test_names_and_aliases_are_unique_and_all_in_the_help() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(set(names)) == len(names)
    for name in names:
        assert f"/{name}" in TABLE.help_text()
        assert TABLE.find(name) is not None


def test_completions_begin_with_what_was_typed() -> None:
    assert [command.name for command in TABLE.completions("/l")] == ["load", "list"]
    assert [command.name for command in TABLE.completions("sw")] == ["load"]
