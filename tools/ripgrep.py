"""Searching with ripgrep, as a child process of ours with fixed arguments."""

import os
import subprocess
import threading
import time
from collections.abc import Generator

from tools.errors import ToolError
from tools.query import MAX_FILE_BYTES, Match, Query
from tools.workspace import Workspace

_OPTIONS = (
    "--no-config",
    "--color=never",
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--null",  # ends the path, which may itself hold colons
    "--sort=path",
    "--hidden",
    "--glob=!.git",
    # Only the workspace's own .gitignore files count, in or out of a repository.
    "--no-require-git",
    "--no-ignore-parent",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-dot",
    "--no-messages",
    "--max-columns=1000",
    "--max-columns-preview",
    f"--max-filesize={MAX_FILE_BYTES}",
)
_MAX_LINE_BYTES = 16384  # a path and a cut line are far shorter


def ripgrep_matches(
    executable: str,
    workspace: Workspace,
    query: Query,
    cancel: threading.Event,
    timeout_s: float,
) -> Generator[Match, None, None]:
    """Yield the matches in a folder, sorted by path and line.

    Raises:
        ToolError: the pattern is wrong, or the time is over.
    """
    kind = "--regexp" if query.is_regex else "--fixed-strings"
    pattern = [kind, query.text] if query.is_regex else [kind, "--regexp", query.text]
    with workspace.open_folder(str(query.folder)) as (fd, _):
        process = subprocess.Popen(
            [executable, *_OPTIONS, *pattern, "--", "."],
            cwd=f"/proc/self/fd/{fd}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{fd}",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout_s
    is_over = threading.Event()
    guard = threading.Thread(
        target=_stop_when, args=(process, cancel, is_over, deadline), daemon=True
    )
    guard.start()
    assert process.stdout is not None and process.stderr is not None
    try:
        while line := process.stdout.readline(_MAX_LINE_BYTES):
            name, separator, rest = line.partition(b"\0")
            number, colon, text = rest.partition(b":")
            if not separator or not colon or not number.isdigit():
                continue  # a remark of ripgrep about a binary file
            path = query.folder / os.fsdecode(name)
            if query.wants(path):
                yield path, int(number), text.rstrip(b"\r\n").decode("utf-8", errors="replace")
        process.wait()
        if process.returncode == 2 and query.is_regex:
            reason = process.stderr.read(2000).decode("utf-8", errors="replace")
            if "regex parse error" in reason:
                last = reason.strip().splitlines()[-1]
                raise ToolError(
                    f"the pattern is no regular expression: {last}",
                    "Correct it, or set regex to false.",
                )
        if time.monotonic() > deadline:
            raise ToolError(
                f"the search took more than {timeout_s:.0f} s", "Search a smaller folder."
            )
    finally:
        process.kill()
        process.wait()
        is_over.set()
        guard.join()
        process.stdout.close()
        process.stderr.close()


def _stop_when(
    process: subprocess.Popen[bytes],
    cancel: threading.Event,
    is_over: threading.Event,
    deadline: float,
) -> None:
    """Kill ripgrep on cancel or time-out; a search without matches writes nothing to wait for."""
    while not is_over.wait(0.05):
        if cancel.is_set() or time.monotonic() > deadline:
            process.kill()
            return
