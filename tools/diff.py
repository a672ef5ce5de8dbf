"""Unified diffs of a file before and after, bounded in time and length."""

import difflib
import re

from tools.text import spell_controls

CONTEXT_LINES = 3
MAX_DIFF_LINES = 400  # what a person reads before saying yes; the rest is counted
_MAX_COMPARED_LINES = 4000  # difflib is quadratic; a larger rewrite is shown as removed and added
_HUNK = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def unified_diff(old: str, new: str, path: str) -> str:
    """Return the change as a unified diff, "" when there is none.

    Equal lines at the start and at the end are cut off first, so the cost depends on the size of
    the change and not of the file.
    """
    if old == new:
        return ""
    a, b = _lines(old), _lines(new)
    n_same = 0
    shortest = min(len(a), len(b))
    while n_same < shortest and a[n_same] == b[n_same]:
        n_same += 1
    n_tail = 0
    while n_tail < shortest - n_same and a[-1 - n_tail] == b[-1 - n_tail]:
        n_tail += 1
    start = max(0, n_same - CONTEXT_LINES)
    cut = max(0, n_tail - CONTEXT_LINES)
    a, b = a[start : len(a) - cut], b[start : len(b) - cut]
    if len(a) + len(b) > _MAX_COMPARED_LINES:
        body = [f"@@ -{start + 1},{len(a)} +{start + 1},{len(b)} @@\n"]
        body += ["-" + line for line in a] + ["+" + line for line in b]
    else:
        body = list(difflib.unified_diff(a, b, n=CONTEXT_LINES))[2:]
        body = [_shift(line, start) if line.startswith("@@") else line for line in body]
    n_more = len(body) - MAX_DIFF_LINES
    if n_more > 0:
        body = [*body[:MAX_DIFF_LINES], f"… {n_more} more lines of this diff\n"]
    head = [f"--- {path}\n" if old else "--- /dev/null\n", f"+++ {path}\n"]
    return spell_controls("".join(head + body))


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()
    if last != "\n":
        lines.append(last + "\\ No newline at end of file\n")
    return lines


def _shift(header: str, n_lines: int) -> str:
    match = _HUNK.match(header)
    assert match is not None
    old, old_count, new, new_count = match.groups()
    return f"@@ -{int(old) + n_lines}{old_count} +{int(new) + n_lines}{new_count} @@\n"
