"""Server-sent events: one JSON object each, by name where the interface names its events."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"  # ends the streams of OpenAI's older interfaces


# Some clients cut a stream into lines at these as well.
_LINE_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\u0085\u2028\u2029"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def event(data: dict[str, Any], name: str = "") -> bytes:
    """Return one event. Line breaks can't occur in JSON that is written in one line."""
    head = f"event: {name}\n" if name else ""
    written = _encode(data)
    if not written.isascii():
        written = written.translate(_LINE_BREAKS)
    return f"{head}data: {written}\n\n".encode()
