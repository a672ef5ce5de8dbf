"""What the turns of a conversation did to the files of a workspace, and taking it back.

    log.begin_turn("rename the parser")
    with log.step(["src/a.py"]): ...   a tool that changes files it names
    with log.step(None): ...           a shell command: the whole workspace is looked at
    log.undo()                         the last turn that is not undone
    log.redo()
    log.restore_to(mark)               all turns since ``mark = log.mark()``

Nothing is taken back when one of the files was changed by somebody else since: that is told
instead. The contents lie outside the workspace and its version control.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.diff import unified_diff
from tools.encoding import SAMPLE_BYTES, detect
from tools.errors import ToolError
from tools.undo.journal import Journal, Turn
from tools.undo.objects import ObjectStore
from tools.undo.pending import Interrupted, Pending, interrupted
from tools.undo.restore import restore, state_at
from tools.undo.snapshot import Snapshot, differences, take_snapshot
from tools.undo.state import State

_log = logging.getLogger(__name__)

MAX_STORE_BYTES = 512 << 20  # then the oldest turns are forgotten
MAX_TURNS = 500
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Restored:
    """What an undo or a redo did."""

    title: str  # of the turn, or of the newest of several
    paths: tuple[str, ...]  # that were changed
    not_covered: tuple[str, ...] = ()  # that the turn changed too, but whose content was not kept


class UndoLog:
    """The changes of one workspace.

    Args:
        folder: where it is kept; created when there is something to keep.
        root: the workspace.
        max_store_bytes: bound on the kept contents.
    """

    def __init__(self, folder: Path, root: Path, max_store_bytes: int = MAX_STORE_BYTES) -> None:
        self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._objects = ObjectStore(folder / "objects")
        self._journal = Journal(folder / "journal.jsonl")
        self._max_store_bytes = max_store_bytes
        self._number = self._journal.next_number()
        self._title = ""
        self._last: Snapshot | None = None
        self.problem = ""  # why something was not recorded; whoever tells the person clears it
        self._pending = Pending(folder / "pending")
        self._recover(folder / "pending")

    def close(self) -> None:
        """Release the workspace, and forget what is too old or too much."""
        self._pending.close()
        try:
            self._trim()
        except OSError as error:  # a full disk; the next run forgets it
            _log.warning("undo keeps what is too old: %s", error)
        os.close(self._root_fd)

    # --- recording ----------------------------------------------------------------------------

    def begin_turn(self, title: str) -> None:
        """What follows belongs to a new turn."""
        # Of the clock, so that two programs in one workspace do not count alike.
        now = time.time_ns() // 1_000_000
        self._number = max(self._number + 1, self._journal.next_number(), now)
        self._title = title

    @contextmanager
    def step(self, paths: Sequence[str] | None) -> Iterator[None]:
        """Record what happens in the block, also when it raises.

        Args:
            paths: the files it may change, relative to the workspace; None for any.
        """
        try:
            before = self._states(paths)
            self._pending.begin(self._running(paths, before))
        except OSError as error:  # no room, no right to write: the work goes on, and it is told
            self.problem = f"changes cannot be undone: {error.strerror} ({error.filename})"
            yield
            return
        try:
            yield
        finally:
            try:
                after = self._states(paths)
                self._record(before, after)
                self._pending.end()
                self._know(before, after)
            except OSError as error:
                self.problem = f"a change cannot be undone: {error.strerror} ({error.filename})"

    def absorb(self) -> None:
        """Record what background jobs changed since the last look, as part of this turn.

        What a person changed at the same time is taken for the work of a job.
        """
        if self._last is not None:
            before = self._last
            try:
                self._record(before, self._states(None))
            except OSError as error:  # what comes next is done all the same
                self.problem = f"a change cannot be undone: {error.strerror} ({error.filename})"

    def _record(self, before: Snapshot, after: Snapshot) -> None:
        changes = dict(sorted(differences(before, after).items()))
        if changes:
            self._journal.add(self._number, self._title, changes)

    def _running(self, paths: Sequence[str] | None, before: Snapshot) -> Interrupted:
        only = None if paths is None else tuple(paths)
        return Interrupted(self._number, self._title, only, before)

    def _know(self, before: Snapshot, after: Snapshot) -> None:
        """Bring the last look at everything up to what a tool has just changed."""
        if self._last is None or after is self._last:
            return
        for path in before.states.keys() | after.states.keys():
            self._last.stamps.pop(path, None)
            if path in after.states:
                self._last.states[path] = after.states[path]
            else:
                self._last.states.pop(path, None)

    def _recover(self, folder: Path) -> None:
        """Record steps in which the program was killed: what is there now is what they left."""
        try:
            for step in interrupted(folder):
                after = self._states(step.paths)
                changes = dict(sorted(differences(step.before, after).items()))
                if changes:
                    self._journal.add(step.number, f"{step.title} (cut off)", changes)
        except OSError as error:  # the program starts all the same, and the next one tries again
            self.problem = f"it was cut off and cannot be undone now: {error.strerror}"

    def _states(self, paths: Sequence[str] | None) -> Snapshot:
        if paths is None:
            self._last = take_snapshot(self._root_fd, self._objects.put, self._last)
            return self._last
        found = Snapshot()
        for path in paths:
            parts = Path(path).parts
            for n_parts in range(1, len(parts)):  # folders that are made for it
                parent = "/".join(parts[:n_parts])
                state = state_at(self._root_fd, parent)
                if state is not None:
                    found.states[parent] = state
            state = state_at(self._root_fd, path, self._objects.put)
            if state is not None:
                found.states[path] = state
        return found

    # --- taking back --------------------------------------------------------------------------

    def undo(self) -> Restored:
        """Take back what the last turn did to files.

        Raises:
            ToolError: there is nothing to undo, or a file was changed since.
        """
        self._journal.refresh()
        turn = next((t for t in reversed(self._journal.turns) if not t.is_undone), None)
        if turn is None:
            raise ToolError("there is nothing to undo", "No file was changed by the agent here.")
        return self._take_back([turn])

    def redo(self) -> Restored:
        """Do again what was undone last.

        Raises:
            ToolError: there is nothing to redo, or a file was changed since.
        """
        self._journal.refresh()
        turn = next((t for t in self._journal.turns if t.is_undone), None)
        if turn is None:
            raise ToolError("there is nothing to redo", "Nothing was undone.")
        wanted, expected, lost = _targets([turn], forward=True)
        return self._put([turn], wanted, expected, lost, is_undone=False)

    def mark(self) -> int:
        """Return the place of now, for ``restore_to``."""
        return self._number

    def restore_to(self, mark: int) -> Restored | None:
        """Take back all turns that were begun after ``mark``; None when they changed nothing.

        Raises:
            ToolError: a file was changed since.
        """
        self._journal.refresh()
        turns = [t for t in self._journal.turns if t.number > mark and not t.is_undone]
        return self._take_back(turns) if turns else None

    def _take_back(self, turns: list[Turn]) -> Restored:
        wanted, expected, lost = _targets(turns, forward=False)
        return self._put(turns, wanted, expected, lost, is_undone=True)

    def _put(
        self,
        turns: list[Turn],
        wanted: dict[str, State | None],
        expected: dict[str, State | None],
        lost: list[str],
        *,
        is_undone: bool,
    ) -> Restored:
        changed = [
            path
            for path, state in wanted.items()
            if state_at(self._root_fd, path) not in (state, expected[path])
        ]
        if changed:
            named = ", ".join(changed[:_MAX_NAMED]) + (" ..." if len(changed) > _MAX_NAMED else "")
            raise ToolError(
                f"{named} was changed since, so nothing was touched",
                "Undo that change first, or take the earlier text from /diff.",
            )
        missing = [
            path
            for path, state in wanted.items()
            if state is not None and state.kind == "file" and not self._objects.has(state.content)
        ]
        if missing:
            raise ToolError(
                f"the content of {missing[0]} is not kept any more, so nothing was touched",
                "It was too long ago.",
            )
        restore(self._root_fd, wanted, self._objects.get)
        try:
            for turn in turns:
                self._journal.mark(turn.number, is_undone=is_undone)
        except OSError as error:
            raise ToolError(
                f"the files were restored, but that cannot be noted: {error.strerror}",
                "Mend that and do it again.",
            ) from error
        if self._last is not None:
            try:
                self._states(None)
            except OSError:  # nothing can be kept now: the next look begins anew
                self._last = None
        return Restored(turns[-1].title, tuple(sorted(wanted)), tuple(sorted(lost)))

    # --- showing ------------------------------------------------------------------------------

    def diff(self, mark: int | None = None) -> str:
        """Return what turns changed, as one unified diff; "" when nothing.

        Args:
            mark: all turns begun after it; None for the last turn that changed a file.
        """
        self._journal.refresh()
        turns = [turn for turn in self._journal.turns if not turn.is_undone]
        turns = turns[-1:] if mark is None else [turn for turn in turns if turn.number > mark]
        merged = Turn(0, "")
        for turn in turns:
            merged.add(turn.changes)
        parts = [self._one_diff(path, *states) for path, states in sorted(merged.changes.items())]
        return "".join(part for part in parts if part)

    def turns(self) -> list[tuple[int, str, int, bool]]:
        """Return the turns that changed files: number, title, changed paths, whether undone."""
        return [(t.number, t.title, len(t.changes), t.is_undone) for t in self._journal.turns]

    def _one_diff(self, path: str, before: State | None, after: State | None) -> str:
        texts = [self._text(path, state) for state in (before, after)]
        if texts[0] is None or texts[1] is None:
            verb = "created" if before is None else "removed" if after is None else "changed"
            return f"{path}: {verb} (no text, or its content was not kept)\n"
        diff = unified_diff(texts[0], texts[1], path)
        if after is None and diff:
            diff = diff.replace(f"+++ {path}\n", "+++ /dev/null\n", 1)
        return diff

    def _text(self, path: str, state: State | None) -> str | None:
        if state is None or state.kind == "folder":
            return ""
        if state.kind == "link":
            return f"link to {state.content}\n"
        data = self._objects.get(state.content) if state.content else None
        if data is None:
            return None
        try:
            return detect(data[:SAMPLE_BYTES], len(data) <= SAMPLE_BYTES, path, len(data)).decode(
                data
            )
        except ToolError:
            return None

    # --- bounds -------------------------------------------------------------------------------

    def _trim(self) -> None:
        while len(self._journal.turns) > MAX_TURNS:
            self._journal.drop_oldest()
        if self._objects.total_bytes() <= self._max_store_bytes:
            return
        # Contents of no turn first: a snapshot keeps files that no command touched.
        self._objects.remove_all_but(self._wanted())
        while self._journal.turns and self._objects.total_bytes() > self._max_store_bytes:
            self._journal.drop_oldest()
            self._objects.remove_all_but(self._wanted())

    def _wanted(self) -> set[str]:
        return {
            state.content
            for turn in self._journal.turns
            for states in turn.changes.values()
            for state in states
            if state is not None and state.kind == "file"
        }


def _targets(
    turns: list[Turn], *, forward: bool
) -> tuple[dict[str, State | None], dict[str, State | None], list[str]]:
    """Return what each path is to become, what it must be now, and the paths that are lost."""
    merged = Turn(0, "")
    for turn in turns:
        merged.add(turn.changes)
    wanted: dict[str, State | None] = {}
    expected: dict[str, State | None] = {}
    lost = []
    for path, (before, after) in merged.changes.items():
        target, now = (after, before) if forward else (before, after)
        if target is not None and not target.is_known:
            lost.append(path)
            continue
        wanted[path], expected[path] = target, now
    return wanted, expected, lost
