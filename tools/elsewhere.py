"""Looking for a piece of text in other files, when it is not in the one that was named."""

import threading
from pathlib import PurePosixPath

from tools.errors import ToolError
from tools.grep_walk import walk_matches
from tools.query import Query
from tools.workspace import Workspace

_SECONDS = 0.3  # a failed edit must answer at once
_MAX_FILE_BYTES = 1 << 20
_MAX_FOUND = 3
_MIN_CHARS = 8  # a shorter line is everywhere


def find_elsewhere(workspace: Workspace, text: str, not_in: str) -> list[str]:
    """Return ``path:line`` of other files that hold the text word for word, a few at most.

    A file that was moved, or the wrong one of two, is the usual reason for a miss. Stops after a
    fraction of a second.
    """
    flat = text.replace("\r\n", "\n").strip("\n")
    lines = flat.split("\n")
    key = max(lines, key=lambda line: len(line.strip())).strip()
    if len(key) < _MIN_CHARS:
        return []
    found: list[str] = []
    seen = {not_in}
    query = Query(key, False, PurePosixPath("."))
    try:
        for path, _, _ in walk_matches(workspace, query, threading.Event(), _SECONDS):
            if str(path) in seen:
                continue
            seen.add(str(path))
            data = workspace.read_bytes(str(path), _MAX_FILE_BYTES)
            content = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
            place = content.find(flat)
            if place >= 0:
                found.append(f"{path}:{content.count(chr(10), 0, place) + 1}")
            if len(found) == _MAX_FOUND:
                break
    except ToolError:
        return found  # the time is up, or a file went away
    return found
