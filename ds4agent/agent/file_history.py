"""What the turns changed in the files, and the commands that take it back."""

import contextlib
import hashlib
import os
from pathlib import Path

from ds4agent import paths
from ds4agent.agent.event_stream import EventStream
from ds4agent.events import DiffShown, FilesRestored, Notice, Redo, ShowDiff, Undo
from ds4agent.plain import one_line
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
        with contextlib.suppress(OSError):  # told when a change cannot be kept
            paths.make_private(paths.ds4_folder())
        self.log = UndoLog(undo_folder(workspace), workspace)
        self._stream = stream
        self._begun = self.log.mark()

    def close(self) -> None:
        """Release the workspace; what is too old is forgotten."""
        self.log.close()

    def begin_turn(self, message: str) -> None:
        """What follows is done for this message."""
        if self.log.problem:
            self._stream.emit(Notice(f"The last turn: {self.log.problem}", "warning"))
            self.log.problem = ""
        self.log.begin_turn(one_line(message, _TITLE_CHARS))

    def mark(self) -> int:
        """Return a number that stands for the files as they are now; see ``restore_to``."""
        return self.log.mark()

    def restore_to(self, mark: int) -> None:
        """Give the files back what they were at ``mark``: for a rewind of the conversation.

        Raises:
            ToolError: a file was changed by somebody else since; then nothing is touched.
        """
        done = self.log.restore_to(mark)
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
