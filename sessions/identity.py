"""Titles and ids of conversations.

A conversation is called after its first prompt and known by a hash of that title and of the
moment it began. Both stay the same over saves, so a conversation keeps one file.
"""

import hashlib
import re

NO_TITLE = "(empty user prompt)"
NO_PROMPT = "(no user prompt)"
_USER, _ASSISTANT = "<｜User｜>".encode(), "<｜Assistant｜>".encode()
SHORT_ID_DIGITS = 8  # what lists show
_ID = re.compile(r"[0-9a-f]{40}")
# ASCII whitespace only: a no-break space is part of what the person typed.
_WHITESPACE = re.compile(r"[ \t\n\v\f\r]+")


def normalise_title(prompt: str) -> str:
    """Return the title of a conversation that begins with ``prompt``: one line, never shortened.

    Surrogates, which no UTF-8 file can hold, become question marks.
    """
    title = _WHITESPACE.sub(" ", prompt).strip(" ")
    return title.encode("utf-8", "replace").decode("utf-8") or NO_TITLE


def title_of_text(text: bytes) -> str:
    """Return the title of a conversation that was saved without one: its first prompt.

    Args:
        text: of a DeepSeek conversation, control tokens spelled out.
    """
    _, marker, rest = text.partition(_USER)
    if not marker:
        return NO_PROMPT
    body = re.split(b"|".join((_USER, _ASSISTANT)), rest, maxsplit=1)[0]
    return normalise_title(body.decode("utf-8", "replace"))


def session_id(title: bytes, created_at: int) -> str:
    """Return the id of the conversation that got ``title`` at ``created_at`` (Unix seconds)."""
    return hashlib.sha1(title + created_at.to_bytes(8, "little")).hexdigest()


def text_id(text: bytes) -> str:
    """Return the id of a checkpoint without a title: the hash of its text."""
    return hashlib.sha1(text).hexdigest()


def is_session_id(text: str) -> bool:
    """Whether ``text`` is a whole id: 40 lower-case hex digits."""
    return _ID.fullmatch(text) is not None
