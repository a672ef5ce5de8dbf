"""What a slash command asks of the screen itself; the worker never sees these."""

from dataclasses import dataclass
from enum import StrEnum

THEMES = ("auto", "dark", "light", "ansi", "high-contrast")


class What(StrEnum):
    """What to copy."""

    ANSWER = "answer"  # the last one
    CODE = "code"  # its last block of code
    ALL = "all"  # the whole conversation, as Markdown


@dataclass(frozen=True, slots=True)
class ShowHelp:
    """Show the commands and the keys."""


@dataclass(frozen=True, slots=True)
class TellMode:
    """Say how much happens without asking."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Put something of the conversation on the clipboard."""

    what: What = What.ANSWER


@dataclass(frozen=True, slots=True)
class Export:
    """Write the conversation to a file: HTML when its name ends so, else Markdown.

    "" chooses a name in the folder the agent works in.
    """

    path: str = ""


@dataclass(frozen=True, slots=True)
class ShowSettings:
    """Show the settings, to change them."""


@dataclass(frozen=True, slots=True)
class SetTheme:
    """Change the colours; "" says which there are."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class SetMouse:
    """Take the mouse, or leave it to the terminal; None changes to the other one."""

    is_on: bool | None = None


ScreenRequest = ShowHelp | TellMode | Copy | Export | ShowSettings | SetTheme | SetMouse
