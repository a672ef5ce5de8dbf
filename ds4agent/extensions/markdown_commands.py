"""Slash commands from Markdown files: what is sent often, under a short name.

``review.md`` becomes ``/review``. Its text is sent as a message, with ``$ARGUMENTS`` replaced by
what was typed behind the name (without the word, that is put at the end). A first line that
begins with ``#`` is the help and is not sent. Files of a project are shadowed by the person's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ds4agent.commands import SlashCommand
from ds4agent.plain import one_line
from ds4agent.requests import Submit

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_PLACE = "$ARGUMENTS"
_LARGEST_BYTES = 64 << 10
_MOST = 200  # files of one folder


@dataclass(frozen=True, slots=True)
class MarkdownCommand:
    """One file."""

    name: str
    help: str  # one line
    text: str
    path: Path

    def message(self, argument: str) -> str:
        """Return what is sent."""
        if _PLACE in self.text:
            return self.text.replace(_PLACE, argument)
        return f"{self.text}\n\n{argument}".strip()

    def entry(self) -> SlashCommand:
        """Return it as a screen's table has it."""
        return SlashCommand(
            self.name, self.help, lambda text: Submit(self.message(text)), argument="TEXT"
        )


def read_commands(
    folders: Iterable[Path], taken: Iterable[str] = ()
) -> tuple[list[MarkdownCommand], list[str]]:
    """Read the files of some folders; the first folder that has a name wins.

    Args:
        folders: the person's first; those that do not exist are left out.
        taken: names of the program's own commands, which none may replace.

    Returns:
        The commands in order of their names, and a line for each file that is none.
    """
    found: dict[str, MarkdownCommand] = {}
    problems: list[str] = []
    reserved = set(taken)
    for folder in folders:
        try:
            paths = sorted(folder.glob("*.md"))[:_MOST] if folder.is_dir() else []
        except OSError as error:
            problems.append(f"{one_line(str(folder))}: {error.strerror}")
            continue
        for path in paths:
            name = path.stem.lower()
            shown = one_line(str(path))
            if name in found:
                continue
            if name in reserved:
                problems.append(f"{shown}: /{name} is a command of the program. Rename the file.")
            elif not _NAME.fullmatch(name):
                problems.append(f"{shown}: a name is letters, digits, - and _. Rename the file.")
            else:
                command = _read(name, path, problems)
                if command is not None:
                    found[name] = command
    return [found[name] for name in sorted(found)], problems


def _read(name: str, path: Path, problems: list[str]) -> MarkdownCommand | None:
    shown = one_line(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        problems.append(f"{shown}: {error.strerror}")
        return None
    if len(data) > _LARGEST_BYTES:
        problems.append(f"{shown}: more than {_LARGEST_BYTES >> 10} KiB. Shorten it.")
        return None
    text = data.decode("utf-8", "replace").strip()
    first, _, rest = text.partition("\n")
    title = one_line(first.lstrip("#"), 60) if first.startswith("#") else ""
    text = rest.strip() if first.startswith("#") else text
    if not text:
        problems.append(f"{shown}: there is nothing to send in it. Write the message into it.")
        return None
    return MarkdownCommand(name, title or f"send {path.name}", text, path)
