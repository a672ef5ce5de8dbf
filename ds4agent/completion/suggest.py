"""What could come next in the composer: a command, its argument, a file, an earlier message."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ds4agent.commands import CommandTable
from ds4agent.completion.file_index import FileIndex
from ds4agent.completion.fuzzy import best, rank
from ds4agent.readable import one_line

_MOST = 8  # suggestions at once
_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]*)|(?P<bare>[^\s"]*))\Z')


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One line of the list, and what it puts in place of the text from ``start`` to ``end``."""

    label: str
    note: str
    start: int  # characters
    end: int
    text: str
    is_complete: bool = True  # nothing has to follow: Enter may send it

    def applied(self, text: str) -> tuple[str, int]:
        """Return the whole text with the suggestion taken, and where the cursor goes."""
        return text[: self.start] + self.text + text[self.end :], self.start + len(self.text)


class Completer:
    """Suggests from the table of commands and from the files here."""

    def __init__(self, table: CommandTable, files: FileIndex) -> None:
        self._table = table
        self.files = files

    def suggest(self, text: str, cursor: int) -> list[Suggestion]:
        """Return suggestions for a text with the cursor at ``cursor``, best first."""
        if text.startswith("/") and "\n" not in text:
            if any(char.isspace() for char in text):
                return self._arguments(text)
            return self._commands(text)
        mention = mention_at(text, cursor)
        return self._files(*mention, cursor) if mention is not None else []

    def _commands(self, text: str) -> list[Suggestion]:
        matches = self._table.completions(text)
        if not matches and len(text) > 2:
            letters = text[1:].lower()
            named = [entry for entry in self._table.commands if rank(letters, entry.name) == 3]
            matches = best(letters, named, lambda entry: entry.name, lambda _: (), _MOST)
        return [
            Suggestion(
                entry.usage,
                entry.help,
                0,
                len(text),
                f"/{entry.name} " if entry.argument else f"/{entry.name}",
                is_complete=not entry.is_required,
            )
            for entry in matches
        ]

    def _arguments(self, text: str) -> list[Suggestion]:
        word, _, argument = text.partition(" ")
        entry = self._table.find(word[1:])
        begun = argument.lstrip()
        if entry is None or " " in begun:
            return []
        start = len(text) - len(begun)
        is_last = " " not in entry.argument  # of "ACTION RULE" the rule still has to come
        return [
            Suggestion(choice, "", start, len(text), choice if is_last else f"{choice} ", is_last)
            for choice in entry.choices
            if choice.startswith(begun.lower()) and choice != begun.lower()
        ]

    def _files(self, query: str, start: int, cursor: int) -> list[Suggestion]:
        found = self.files.find(query, _MOST)
        return [
            Suggestion(
                one_line(entry.path),
                "",
                start,
                cursor,
                _mention(entry.path),
                is_complete=False,
            )
            for entry in found
            if entry.path != query or entry.path.endswith("/")
        ]


def mention_at(text: str, cursor: int) -> tuple[str, int] | None:
    """Return the unfinished name behind an ``@`` before the cursor, and where the ``@`` stands."""
    found = _MENTION.search(text[:cursor])
    if found is None:
        return None
    query = found["quoted"] if found["quoted"] is not None else found["bare"]
    return query, found.start()


def earlier(texts: Sequence[str], query: str, whole: str) -> list[Suggestion]:
    """Return the sent messages with these words in them, newest first, as suggestions."""
    wanted = query.casefold().split()
    found: list[Suggestion] = []
    for text in dict.fromkeys(reversed(texts)):
        folded = text.casefold()
        if all(word in folded for word in wanted):
            found.append(
                Suggestion(one_line(text)[:200], "", 0, len(whole), text, is_complete=False)
            )
        if len(found) == _MOST:
            break
    return found


def _mention(path: str) -> str:
    quoted = f'@"{path}"' if any(char.isspace() for char in path) else f"@{path}"
    if path.endswith("/"):  # what is inside comes next
        return quoted.removesuffix('"')
    return quoted + " "
