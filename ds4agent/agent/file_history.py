"""What the turns changed in the files, and the commands that take it back."""

import hashlib
import os
from pathlib import Path

from ds4agent import paths
from ds4agent.agent.event_stream import EventStream
from ds4agent.events import DiffShown, FilesRestored, Notice
from ds4agent.plain import one_line
from ds4agent.requests import Redo, ShowDiff, Undo
from tools.errors import ToolError
from tools.undo.log import Restored, UndoLog

_TITLE_CHARS = 80


class FileHistory:
    """The undo log of one workspace, kept over conversations and runs of the program."""

    def __init__(self, workspace: Path, stream: EventStream) -> None:
        """Open the log; what earlier runs recorded can still be undone.

        Args:
            workspace: its real path names the folder of the log.
            stream: where events go.
        """
        self.log = UndoLog(undo_folder(workspace), workspace)
        self._stream = stream
        self._begun = self.log.mark()
        self._turns: list[tuple[int, int]] = []  # tokens and mark before each turn of this run

    def close(self) -> None:
        """Release the workspace; what is too old is forgotten."""
        self.log.close()

    def begin_turn(self, message: str, n_tokens: int) -> None:
        """What follows is done for this message.

        Args:
            message: of the person.
            n_tokens: of the conversation before it, so that a rewind finds the place.
        """
        if self.log.problem:
            self._stream.emit(Notice(f"The last turn: {self.log.problem}", "warning"))
            self.log.problem = ""
        if self._turns and n_tokens < self._turns[-1][0]:
            self._turns.clear()  # another conversation, or one that was made shorter
        self._turns.append((n_tokens, self.log.mark()))
        self.log.begin_turn(one_line(message, _TITLE_CHARS))

    def rewound(self, n_tokens: int, *, restores: bool) -> None:
        """Give the files back what they were when the conversation had that many tokens.

        Turns of earlier runs are not covered, and neither are those before a compaction: that is
        told, as is a file that somebody else changed since; then nothing is touched.

        Args:
            n_tokens: of the conversation now, after the rewind.
            restores: False only forgets the turns that were taken back.
        """
        later = [mark for tokens, mark in self._turns if tokens >= n_tokens]
        is_covered = any(tokens == n_tokens for tokens, _ in self._turns)
        self._turns = [turn for turn in self._turns if turn[0] < n_tokens]
        if not restores:
            return
        if not is_covered:
            self._stream.emit(
                Notice("The files stay: what they were then is not known. Try /undo.", "warning")
            )
            return
        try:
            done = self.log.restore_to(later[0])
        except ToolError as error:
            self._stream.emit(Notice(f"The files stay: {error}. {error.hint}", "warning"))
            return
        if done is not None:
            self._tell("undone", done)

    def obey(self, command: Undo | Redo | ShowDiff) -> None:
        """Carry out a command; what cannot be done is told."""
        try:
            match command:
                case Undo():
                    self._tell("undone", self.log.undo())
                case Redo():
                    self._tell("redone", self.log.redo())
                case ShowDiff(is_whole):
                    diff = self.log.diff(self._begun if is_whole else None)
                    self._stream.emit(
                        DiffShown(diff) if diff else Notice("The agent has changed no file")
                    )
        except ToolError as error:
            self._stream.emit(Notice(f"{str(error).capitalize()}. {error.hint}", "warning"))

    def _tell(self, action: str, done: Restored) -> None:
        self._stream.emit(FilesRestored(action, done.title, done.paths, done.not_covered))


def undo_folder(workspace: Path) -> Path:
    """Return where the log of a workspace is kept."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:20]
    return paths.undo_dir() / name
