"""Start and end of the inline mode."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ds4agent.commands import CommandTable
from ds4agent.config import Config
from ds4agent.ending import SAVE_WAIT_S, Ending
from ds4agent.inline.paper import Paper, RichPaper
from ds4agent.inline.session import InlineSession
from ds4agent.inline.terminal import is_bare
from ds4agent.late_worker import Worker
from ds4agent.requests import Quit


def run_inline(
    worker: Worker,
    *,
    commands: CommandTable,
    notes: Sequence[str] = (),
    on_closed: Callable[[str], None] = lambda resume_id: None,
    on_trusted: Callable[[], Sequence[str]] = tuple,
    config: Config | None = None,
) -> int:
    """Talk in the terminal's own scrollback until the person quits.

    Args:
        worker: not started yet.
        commands: what a slash knows.
        notes: lines that are printed first.
        on_closed: called with the id of the saved conversation, "" when there is none.
        on_trusted: called when the folder is trusted; returns lines to print.
        config: settings of screens; none of them means anything here.

    Returns:
        The exit code: 0, or 1 when the model could not be loaded.
    """
    bare = is_bare()
    lines: Any
    if bare:
        from ds4agent.inline.bare import BareLines

        paper = Paper(sys.stdout)
        lines = BareLines(worker, paper)
    else:
        from ds4agent.inline.editor import Editor

        lines = Editor(worker, commands)

    def open_session() -> InlineSession:
        page = paper if bare else RichPaper(sys.stdout)
        for note in notes:
            page.notice(note, "warning")

        def trusted() -> None:
            for note in on_trusted():
                page.notice(note, "warning")

        return InlineSession(
            worker, page, commands, copy=lines.copy, edit=lines.edit, on_trusted=trusted
        )

    with Ending(worker):
        try:
            session = lines.run(open_session)
        finally:
            # However the lines ended, the conversation is saved before the program ends.
            worker.send(Quit())
            worker.join(SAVE_WAIT_S)
    on_closed(session.resume_id)
    return 1 if session.has_failed else 0
