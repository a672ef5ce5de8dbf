"""What the screen adds to the table of slash commands: unfinished words, near misses, keys."""

from difflib import get_close_matches

from ds4agent.commands import CommandTable
from ds4agent.errors import UsageError
from ds4agent.requests import Command, Mode

KEYS = (
    ("Enter", "send; while the model is busy: queue"),
    ("Ctrl+J", "new line; also Shift+Enter, or a backslash before Enter"),
    ("Up, Down", "what was sent; Up in an empty composer takes a queued one back"),
    ("Esc", "interrupt, or close a list"),
    ("Ctrl+C", "copy the selection, else interrupt, else clear, else quit (twice)"),
    ("Ctrl+D", "save and quit, in an empty composer"),
    ("Shift+Tab", "next mode: plan, ask, auto"),
    ("Ctrl+O", "open or fold the details of the last turn"),
    ("Page Up/Down", "scroll; End in an empty composer goes back to the end"),
    ("Ctrl+Up", "show earlier messages"),
)


def interpret(
    line: str, table: CommandTable, *, is_busy: bool = False, mode: Mode | None = None
) -> Command | str:
    """Return the command for the worker, or a text for the person.

    An unfinished word counts when only one command begins with it.

    Raises:
        UsageError: there is no such command (the nearest names are in the hint), or its argument
            is wrong.
    """
    word, _, argument = line.strip().partition(" ")
    begun = table.completions(word)
    if table.find(word[1:]) is None:
        if len(begun) != 1 or len(word) < 2:
            raise UsageError(f"there is no command {word}", _nearest(word, table))
        word = f"/{begun[0].name}"
    entry, command = table.parse(f"{word} {argument}", is_busy=is_busy)
    if command is not None:
        return command
    if entry.name == "mode":
        return f"The mode is {mode.value}." if mode else "The mode is not known yet."
    return help_text(table)


def help_text(table: CommandTable) -> str:
    """Return the commands and the keys, one a line."""
    width = max(len(key) for key, _ in KEYS)
    keys = "\n".join(f"{key:{width}}  {text}" for key, text in KEYS)
    return f"{table.help_text()}\n\n{keys}"


def _nearest(word: str, table: CommandTable) -> str:
    names = [name for entry in table.commands for name in (entry.name, *entry.aliases)]
    begun = [entry.name for entry in table.completions(word)] if len(word) > 1 else []
    near = begun or get_close_matches(word[1:].lower(), names, n=3, cutoff=0.4)
    listed = ", ".join(f"/{name}" for name in near)
    return (f"Nearest: {listed}." if near else "See /help.") + (
        " A space in front sends the line as a message."
    )
