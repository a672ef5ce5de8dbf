"""Which turn changed what: one line of JSON for each step, appended.

A line that was cut by a crash is ignored. ``change`` lines name the states before and after;
``undone`` and ``redone`` lines tell what a person took back. Everything else is derived.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.undo.private_folder import make_private_folder
from tools.undo.state import State

Changes = dict[str, tuple[State | None, State | None]]


@dataclass(slots=True)
class Turn:
    """What one turn did to the files."""

    number: int
    title: str
    changes: Changes = field(default_factory=dict)
    is_undone: bool = False

    def add(self, changes: Changes) -> None:
        """Add a step: of each path the first state before and the last state after count."""
        for path, (before, after) in changes.items():
            first = self.changes[path][0] if path in self.changes else before
            if first == after and (first is None or first.is_known):
                self.changes.pop(path, None)
            else:
                self.changes[path] = (first, after)


class Journal:
    """The file of one workspace.

    Args:
        path: created with the first line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.turns: list[Turn] = []  # oldest first
        self._n_bytes = 0  # of the file, when it was read
        self._load()

    def refresh(self) -> None:
        """Read the file again when another program has added to it."""
        try:
            n_bytes = self._path.stat().st_size
        except OSError:
            return
        if n_bytes != self._n_bytes:
            self.turns = []
            self._load()

    def next_number(self) -> int:
        """Return a number that is larger than any turn's so far."""
        return self.turns[-1].number + 1 if self.turns else 1

    def add(self, number: int, title: str, changes: Changes) -> None:
        """Append what a step of a turn changed. What was undone before it cannot be redone."""
        self.refresh()
        line = {
            "do": "change",
            "turn": number,
            "title": title,
            "changes": {p: [_pack(b), _pack(a)] for p, (b, a) in changes.items()},
        }
        self._append(line)
        self._apply(line)

    def mark(self, number: int, *, is_undone: bool) -> None:
        """Append that a turn was taken back, or done again."""
        line = {"do": "undone" if is_undone else "redone", "turn": number}
        self._append(line)
        self._apply(line)

    def drop_oldest(self) -> None:
        """Forget the oldest turn, and write the file anew."""
        self.turns = self.turns[1:]
        temporary = self._path.with_suffix(".tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                for turn in self.turns:
                    changes = {p: [_pack(b), _pack(a)] for p, (b, a) in turn.changes.items()}
                    line = {"do": "change", "turn": turn.number, "title": turn.title}
                    file.write(json.dumps(line | {"changes": changes}) + "\n")
                    if turn.is_undone:
                        file.write(json.dumps({"do": "undone", "turn": turn.number}) + "\n")
            os.replace(temporary, self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._n_bytes = self._path.stat().st_size

    def _append(self, line: dict[str, Any]) -> None:
        make_private_folder(self._path.parent)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            view = memoryview((b"\n" if cut else b"") + json.dumps(line).encode() + b"\n")
            while view:  # the last room of a disk takes a part of it
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            self._n_bytes = os.fstat(fd).st_size
        finally:
            os.close(fd)

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except OSError:
            return
        self._n_bytes = len(data)
        lines = data.decode("utf-8", errors="replace").splitlines()
        for text in lines:
            try:
                self._apply(json.loads(text))
            except (ValueError, KeyError, TypeError):
                continue  # cut off by a crash

    def _apply(self, line: dict[str, Any]) -> None:
        number = int(line["turn"])
        if line["do"] == "change":
            changes = {p: (_unpack(b), _unpack(a)) for p, (b, a) in line["changes"].items()}
            self.turns = [turn for turn in self.turns if not turn.is_undone]
            if not self.turns or self.turns[-1].number != number:
                self.turns.append(Turn(number, str(line["title"])))
            self.turns[-1].add(changes)
            return
        for turn in self.turns:
            if turn.number == number:
                turn.is_undone = line["do"] == "undone"


def _pack(state: State | None) -> list[Any] | None:
    return None if state is None else [state.kind, state.content, state.mode]


def _unpack(packed: list[Any] | None) -> State | None:
    return None if packed is None else State(str(packed[0]), str(packed[1]), int(packed[2]))
