"""The slash commands: one table for the screen, its completion and the help.

A command line is parsed to a ``Command`` of ``ds4agent.requests``, which goes to the worker, or
to a ``ScreenRequest``, which is the screen's own business.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ds4agent.errors import UsageError
from ds4agent.requests import (
    Command,
    Compact,
    EditPermissions,
    Fork,
    ListSessions,
    Load,
    Mode,
    New,
    Quit,
    Redo,
    Rewind,
    Save,
    SetMode,
    ShowDiff,
    Trust,
    Undo,
)
from ds4agent.screen_requests import (
    THEMES,
    Copy,
    Export,
    ScreenRequest,
    SetMouse,
    SetTheme,
    ShowHelp,
    ShowSettings,
    TellMode,
    What,
)


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command as a person types it."""

    name: str  # without the slash
    help: str  # one line
    make: Callable[[str], Command | ScreenRequest]  # of its argument
    argument: str = ""  # its name in the help, "" for none
    is_required: bool = False  # without its argument it means nothing
    aliases: tuple[str, ...] = ()
    when_busy: bool = True  # may be used while a turn runs
    choices: tuple[str, ...] = ()  # for completion

    @property
    def usage(self) -> str:
        """``/load ID``"""
        argument = self.argument if self.is_required else f"[{self.argument}]"
        return f"/{self.name} {argument}" if self.argument else f"/{self.name}"


def _mode(argument: str) -> Command | ScreenRequest:
    if not argument:
        return TellMode()
    try:
        return SetMode(Mode(argument.lower()))
    except ValueError as error:
        names = ", ".join(mode.value for mode in Mode)
        raise UsageError(f"/mode {argument}: expected one of {names}") from error


def _load(argument: str) -> Command:
    identifier, _, how = argument.partition(" ")
    how = how.strip().lower()
    if how and how not in _LOAD_WAYS:
        raise UsageError(f"/load {argument}: expected {', '.join(_LOAD_WAYS)} behind the ID")
    return Load(identifier, how)


def _rewind(argument: str) -> Command:
    words = argument.lower().split()
    numbers = [word for word in words if word not in ("prefill", "files")]
    number = " ".join(numbers) or "1"
    if not (number.isascii() and number.isdecimal()) or int(number) < 1:
        raise UsageError(f"/rewind {argument}: expected a number of turns, e.g. /rewind 2")
    return Rewind(int(number), "prefill" in words, "files" in words)


def _permissions(argument: str) -> Command:
    action, _, rule = argument.partition(" ")
    action = action.lower()
    if action and action not in _PERMISSION_ACTIONS:
        names = ", ".join(_PERMISSION_ACTIONS)
        raise UsageError(f"/permissions {action}: expected one of {names}")
    if action and not rule.strip():
        raise UsageError(
            f"/permissions {action} needs a rule", "For example: /permissions allow bash(make *)"
        )
    return EditPermissions(action, rule.strip())


_LOAD_WAYS = ("copy", "read-only", "prefill")
_PERMISSION_ACTIONS = ("allow", "ask", "deny", "remove")


def _diff(argument: str) -> Command:
    if argument not in ("", "all"):
        raise UsageError(f"/diff {argument}: expected nothing or all")
    return ShowDiff(bool(argument))


def _one_of(name: str, choices: Iterable[str]) -> Callable[[str], str]:
    """Return a function that reads an optional argument, one of ``choices``."""
    known = tuple(choices)

    def read(argument: str) -> str:
        if argument and argument.lower() not in known:
            raise UsageError(f"/{name} {argument}: expected one of {', '.join(known)}")
        return argument.lower()

    return read


_copied = _one_of("copy", What)
_theme = _one_of("theme", THEMES)
_on_off = _one_of("mouse", ("on", "off"))


def _mouse(argument: str) -> ScreenRequest:
    word = _on_off(argument)
    return SetMouse(word == "on" if word else None)


def _trust(argument: str) -> Command:
    if argument not in ("", "yes", "no"):
        raise UsageError(f"/trust {argument}: expected nothing or no")
    return Trust(argument != "no")


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "show commands and keys", lambda _: ShowHelp()),
    SlashCommand("save", "save the conversation now", lambda _: Save()),
    SlashCommand(
        "load",
        "open a saved conversation; the first digits of its id are enough",
        _load,
        argument="ID HOW",
        is_required=True,
        aliases=("switch",),
        when_busy=False,
    ),
    SlashCommand(
        "fork",
        "go on in a copy; this conversation stays as it is",
        Fork,
        argument="NAME",
        when_busy=False,
    ),
    SlashCommand(
        "rewind",
        "take back the last N turns; with the word files, what they changed, too",
        _rewind,
        argument="N",
        when_busy=False,
    ),
    SlashCommand(
        "list",
        "show the saved conversations and open one",
        lambda _: ListSessions(),
        aliases=("resume",),
    ),
    SlashCommand("new", "begin a new conversation", lambda _: New(), when_busy=False),
    SlashCommand(
        "mode",
        "show or change how much happens without asking: plan, ask or auto",
        _mode,
        argument="MODE",
        choices=tuple(mode.value for mode in Mode),
    ),
    SlashCommand(
        "undo", "take back what the last turn did to files", lambda _: Undo(), when_busy=False
    ),
    SlashCommand("redo", "do again what was undone", lambda _: Redo(), when_busy=False),
    SlashCommand(
        "diff",
        "show what the last turn changed, or all turns",
        _diff,
        argument="ALL",
        choices=("all",),
        when_busy=False,
    ),
    SlashCommand(
        "compact",
        "make room: a summary takes the place of the older messages",
        Compact,
        argument="WHAT TO KEEP",
    ),
    SlashCommand(
        "permissions",
        "show the rules about calls, or change one: allow, ask, deny or remove RULE",
        _permissions,
        argument="ACTION RULE",
        choices=_PERMISSION_ACTIONS,
    ),
    SlashCommand(
        "copy",
        "copy the last answer; or its last block of code; or all",
        lambda argument: Copy(What(_copied(argument) or What.ANSWER)),
        argument="WHAT",
        choices=tuple(What),
    ),
    SlashCommand(
        "export",
        "write the conversation to a file: Markdown, or HTML by its name",
        Export,
        argument="FILE",
    ),
    SlashCommand("settings", "show and change the settings", lambda _: ShowSettings()),
    SlashCommand(
        "theme",
        "show or change the colours",
        lambda argument: SetTheme(_theme(argument)),
        argument="NAME",
        choices=THEMES,
    ),
    SlashCommand(
        "mouse",
        "take the mouse, or leave it to the terminal",
        _mouse,
        argument="ON|OFF",
        choices=("on", "off"),
    ),
    SlashCommand(
        "trust",
        "from the next start on, use what this folder brings for agents (or not: /trust no)",
        _trust,
        argument="NO",
        choices=("no",),
    ),
    SlashCommand("quit", "save and leave", lambda _: Quit(), aliases=("exit",)),
)


class CommandTable:
    """The commands that a screen knows: the program's, and those that a person adds."""

    def __init__(self, added: Iterable[SlashCommand] = ()) -> None:
        self.commands: tuple[SlashCommand, ...] = (*COMMANDS, *added)

    def replace_added(self, added: Iterable[SlashCommand]) -> None:
        """Know others than before beside the program's own."""
        self.commands = (*COMMANDS, *added)

    def find(self, name: str) -> SlashCommand | None:
        """Return the command with this name or alias (without the slash), or None."""
        wanted = name.lower()
        return next((c for c in self.commands if wanted == c.name or wanted in c.aliases), None)

    def completions(self, text: str) -> tuple[SlashCommand, ...]:
        """Return the commands whose name or alias begins with what was typed, slash or not."""
        start = text.removeprefix("/").lower()
        return tuple(
            c for c in self.commands if any(n.startswith(start) for n in (c.name, *c.aliases))
        )

    def parse(
        self, line: str, *, is_busy: bool = False
    ) -> tuple[SlashCommand, Command | ScreenRequest]:
        """Read a line that begins with a slash.

        Returns:
            The entry of the table, and what it asks of the worker or of the screen.

        Raises:
            UsageError: there is no such command, its argument is missing, superfluous or wrong,
                or it has to wait for the end of the turn.
        """
        name, _, argument = line.strip().removeprefix("/").partition(" ")
        argument = argument.strip()
        command = self.find(name)
        if command is None:
            raise UsageError(f"there is no command /{name}", "/help shows them all.")
        if is_busy and not command.when_busy:
            raise UsageError(f"/{command.name} has to wait for the end of the turn")
        if argument and not command.argument:
            raise UsageError(f"/{command.name} takes no argument, found {argument!r}")
        if command.is_required and not argument:
            raise UsageError(f"/{command.name} needs {command.argument}", f"Type {command.usage}.")
        return command, command.make(argument)

    def help_text(self) -> str:
        """Return the commands, one a line, for a terminal of 80 columns."""
        rows = [
            (c.usage, c.help + "".join(f" (also /{alias})" for alias in c.aliases))
            for c in self.commands
        ]
        width = max(len(usage) for usage, _ in rows)
        return "\n".join(f"{usage:{width}}  {text}" for usage, text in rows)
