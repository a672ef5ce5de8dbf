"""What the screen adds to the table of slash commands: unfinished words and near misses."""

from difflib import get_close_matches

from ds4agent.commands import CommandTable
from ds4agent.errors import UsageError
from ds4agent.requests import Command
from ds4agent.screen_requests import ScreenRequest


def interpret(line: str, table: CommandTable, *, is_busy: bool = False) -> Command | ScreenRequest:
    """Return what a line asks of the worker or of the screen.

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
    return table.parse(f"{word} {argument}", is_busy=is_busy)[1]


def _nearest(word: str, table: CommandTable) -> str:
    names = [name for entry in table.commands for name in (entry.name, *entry.aliases)]
    begun = [entry.name for entry in table.completions(word)] if len(word) > 1 else []
    near = begun or get_close_matches(word[1:].lower(), names, n=3, cutoff=0.4)
    listed = ", ".join(f"/{name}" for name in near)
    return (f"Nearest: {listed}." if near else "See /help.") + (
        " A space in front sends the line as a message."
    )
