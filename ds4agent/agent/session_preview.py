"""What a list of saved conversations asks: the end of one as text, and those with some words.

Only texts are read, no states.
"""

import re

from ds4agent.agent.telling import told
from ds4agent.events import SessionPreview, SessionsFound
from ds4agent.plain import plain
from ds4agent.requests import PreviewSession, SearchSessions
from sessions.errors import CheckpointError
from sessions.store import SessionStore
from sessions.upkeep import search
from sessions.whole_text import whole_text

_MOST_CHARS = 3000  # of the end; a list has room for some lines
_ROLES = {"user": "You", "assistant": "Assistant", "system": "", "tool": "Tool"}

# Control tokens as they are spelled in the text: ChatML's with its role, DeepSeek's.
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n?|<\|im_end\|>\n?")
_DEEPSEEK = re.compile(r"<[|｜](?:\w+▁)*(User|Assistant|[^<>|｜]{1,40})[|｜]>")


def looked_up(
    store: SessionStore | None, command: PreviewSession | SearchSessions
) -> SessionPreview | SessionsFound:
    """Answer what a list asks."""
    if isinstance(command, PreviewSession):
        return session_preview(store, command.id)
    hits = search(store, command.words) if store is not None else ()
    return SessionsFound(command.words, tuple(hit.record.id for hit in hits))


def session_preview(store: SessionStore | None, session_id: str) -> SessionPreview:
    """Return the end of what was said; why it cannot be read, if so."""
    if store is None:
        return SessionPreview(session_id, "Saved conversations are switched off.")
    try:
        text = whole_text(store.find(session_id).path)
    except CheckpointError as error:
        return SessionPreview(session_id, told(error))
    return SessionPreview(session_id, readable_end(text.decode("utf-8", "replace")))


def readable_end(text: str) -> str:
    """Return the end of a text, roles in words instead of control tokens, no system prompt."""
    text = _CHATML.sub(lambda found: _heading(found[1]), text)
    text = _DEEPSEEK.sub(lambda found: _heading(found[1]), text)
    lines = [line.rstrip() for line in plain(text).split("\n")]
    shown = re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip()
    first = re.search(r"^You: ", shown, re.MULTILINE)
    return shown[first.start() if first else 0 :][-_MOST_CHARS:]


def _heading(role: str | None) -> str:
    name = _ROLES.get((role or "").lower())
    return f"\n{name}: " if name else "\n"
