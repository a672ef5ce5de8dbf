"""The state of an earlier moment of a session, from its checkpoint and its journal.

Every record of a journal ends at a place where a message may follow, and the records up to there
give exactly the state of that moment. So going back to it computes nothing, also for a network
that forgets what it once pooled. Before the checkpoint nothing is known but what is in memory.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.state import SessionState
from sessions import checkpoint, journal, journal_state, session_file, side_file
from sessions.errors import CheckpointError
from sessions.journal import Journal
from sessions.safe_file import open_regular, plain_errors
from sessions.store import SessionStore
from sessions.streams import Progress


@dataclass(frozen=True, slots=True)
class PastState:
    """A moment whose state is on the disk."""

    tokens: int
    path: Path
    stamp: str  # of the checkpoint
    journal: Journal | None  # cut behind that moment; None: the checkpoint itself


def latest_before(store: SessionStore, identifier: str, n_tokens: int) -> PastState | None:
    """Find the latest state of a session that has ``n_tokens`` at most, as its last state has them.

    What was taken back since is passed over. Heads of records are read, and no rows.

    Raises:
        CheckpointError: there is no such session, or it can't be read.
    """
    path = store.find(identifier).path
    with plain_errors("look into the session", path), checkpoint.opened(path) as opened:
        own_stamp = session_file.stamp(opened)
        live = session_file.find_journal(path, own_stamp, verify=False).live
        records = live.records if live is not None else ()
        # A later record keeps its first `keep` tokens: earlier states beyond them are no part of
        # the conversation any more.
        least_kept = n_tokens
        for n_records in range(len(records), 0, -1):
            record = records[n_records - 1]
            if record.tokens <= least_kept:
                cut = dataclasses.replace(live, records=records[:n_records])
                return PastState(record.tokens, path, own_stamp, cut)
            least_kept = min(least_kept, record.keep)
        if opened.header.tokens <= least_kept and not opened.is_stripped:
            return PastState(opened.header.tokens, path, own_stamp, None)
    return None


def load(
    past: PastState, expected: Sequence[int], progress: Progress | None = None
) -> SessionState:
    """Read a past state and verify all of it.

    Args:
        past: of ``latest_before``.
        expected: the tokens that it must have.
        progress: called after each piece of the checkpoint.

    Raises:
        CheckpointError: it is damaged, was replaced meanwhile, or has other tokens.
    """
    path = past.path
    with plain_errors("load an earlier state", path), checkpoint.opened(path) as opened:
        if session_file.stamp(opened) != past.stamp:
            raise CheckpointError("the session was saved by another program meanwhile", _AGAIN)
        facts = side_file.facts_of(path, past.stamp)
        text = opened.text()
        side_file.check(path, past.stamp, text)
        room = past.journal.max_tokens if past.journal is not None else 0
        state = opened.state(text, sha256=facts.state_sha256, room=room, progress=progress)
        if past.journal is not None:
            with open_regular(journal.path_for(path)) as file:
                found = journal.scan(file)
                records = past.journal.records
                if found.records[: len(records)] != records:
                    raise CheckpointError("its journal was changed or is damaged", _AGAIN)
                state, _ = journal_state.applied(past.journal, file, state, text)
        if state.tokens != tuple(expected):
            raise CheckpointError("what is on the disk is another conversation", _AGAIN)
        return dataclasses.replace(state, fingerprint=state.fingerprint or facts.fingerprint)


_AGAIN = "Save the conversation, and go back again."
