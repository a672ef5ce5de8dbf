"""Server-sent events: one JSON object each, by name where the interface names its events."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"  # ends the streams of OpenAI's older interfaces


def event(data: dict[str, Any], name: str = "") -> bytes:
    """Return one event. Line breaks can't occur in JSON that is written in one line."""
    head = f"event: {name}\n" if name else ""
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{head}data: {written}\n\n".encode()
