"""The text of a conversation, with what its journal added since. No state is read."""

from pathlib import Path

from sessions import journal, journal_state
from sessions.checkpoint import opened
from sessions.safe_file import plain_errors


def whole_text(checkpoint: Path) -> bytes:
    """Return the conversation as bytes, control tokens spelled out.

    What the journal adds is believed as far as its heads fit: good enough to look at, not to go on
    from.

    Raises:
        CheckpointError: it is gone, or cannot be read.
    """
    with plain_errors("read the session", checkpoint):
        with opened(checkpoint) as found:
            text = found.text()
        with journal_state.opened(checkpoint) as file:
            if file is None:
                return text
            added = journal.scan(file, verify=False)
            if added.base.text_bytes != len(text):
                return text  # of another version of the checkpoint
            for record in added.records:
                file.seek(next(record.offsets()))
                piece = file.read(record.text_bytes - record.keep_text)
                text = text[: record.keep_text] + piece
    return text
