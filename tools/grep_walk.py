"""Searching with a plain walk, for systems without ripgrep and for single files.

Follows the same rules as the ripgrep call: names sorted in each folder, ``.gitignore`` files
honoured (names, paths, ``*``, ``**``, ``!``, a trailing slash), no links, no binary files.
"""

import os
import re
import stat
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.errors import ToolError
from tools.query import MAX_FILE_BYTES, Match, Query, compile_pattern
from tools.workspace import Workspace

_MAX_DEPTH = 64
_MAX_MATCHED_CHARS = 2000  # only the start of a longer line is searched


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of a ``.gitignore``, compiled against paths relative to that file's folder."""

    pattern: re.Pattern[str]
    is_negated: bool
    folders_only: bool


def walk_matches(
    workspace: Workspace, query: Query, cancel: threading.Event, timeout_s: float
) -> Generator[Match, None, None]:
    """Yield the matches below a folder or in one file, sorted by path and line."""
    pattern = compile_pattern(query)
    deadline = time.monotonic() + timeout_s
    if not workspace.is_folder(str(query.folder)):
        yield from _file_matches(workspace, query.folder, pattern)
        return
    for path in _files(workspace, query.folder, [], 0):
        if cancel.is_set():
            return
        if time.monotonic() > deadline:
            raise ToolError(
                f"the search took more than {timeout_s:.0f} s", "Search a smaller folder."
            )
        if query.wants(path):
            yield from _file_matches(workspace, path, pattern)


def parse_ignore(text: str) -> list[IgnoreRule]:
    """Compile the lines of a ``.gitignore`` file."""
    rules = []
    for line in text.splitlines():
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        is_negated = line.startswith("!")
        line = line.removeprefix("!").removeprefix("\\")
        folders_only = line.endswith("/")
        line = line.rstrip("/")
        is_anchored = "/" in line
        body = _glob_to_regex(line.removeprefix("/"))
        prefix = "" if is_anchored else "(?:.*/)?"
        rules.append(IgnoreRule(re.compile(prefix + body), is_negated, folders_only))
    return rules


def _glob_to_regex(glob: str) -> str:
    out = ""
    index = 0
    while index < len(glob):
        if glob.startswith("**/", index):
            out, index = out + "(?:.*/)?", index + 3
        elif glob.startswith("/**", index) and index + 3 == len(glob):
            out, index = out + "/.+", index + 3
        elif glob[index] == "*":
            out, index = out + "[^/]*", index + 1
        elif glob[index] == "?":
            out, index = out + "[^/]", index + 1
        elif glob[index] == "[" and (end := glob.find("]", index + 2)) > 0:
            inside = glob[index + 1 : end].replace("\\", "\\\\")
            inside = "^" + inside[1:] if inside.startswith("!") else inside
            out, index = f"{out}[{inside}]", end + 1
        else:
            out, index = out + re.escape(glob[index]), index + 1
    return out


def _files(
    workspace: Workspace,
    folder: PurePosixPath,
    inherited: list[tuple[PurePosixPath, list[IgnoreRule]]],
    depth: int,
) -> Generator[PurePosixPath, None, None]:
    if depth > _MAX_DEPTH:
        return
    try:
        with workspace.open_folder(str(folder)) as (fd, _):
            names = sorted(os.listdir(fd), key=os.fsencode)
            modes = {name: _mode(name, fd) for name in names}
    except ToolError:
        return  # unreadable or removed meanwhile, as ripgrep would pass over it
    rules = inherited
    if stat.S_ISREG(modes.get(".gitignore", 0)):
        rules = [*inherited, (folder, _ignore_file(workspace, folder / ".gitignore"))]
    for name in names:
        path = folder / name
        if name == ".git" or _is_ignored(path, stat.S_ISDIR(modes[name]), rules):
            continue
        if stat.S_ISDIR(modes[name]):
            yield from _files(workspace, path, rules, depth + 1)
        elif stat.S_ISREG(modes[name]):
            yield path


def _ignore_file(workspace: Workspace, path: PurePosixPath) -> list[IgnoreRule]:
    try:
        data = workspace.read_bytes(str(path), 1 << 20)
    except ToolError:
        return []
    return parse_ignore(data.decode("utf-8", errors="replace"))


def _is_ignored(
    path: PurePosixPath, is_folder: bool, rules: list[tuple[PurePosixPath, list[IgnoreRule]]]
) -> bool:
    ignored = False
    for base, base_rules in rules:
        relative = str(path.relative_to(base))
        for rule in base_rules:
            if rule.folders_only and not is_folder:
                continue
            if rule.pattern.fullmatch(relative):
                ignored = not rule.is_negated
    return ignored


def _file_matches(
    workspace: Workspace, path: PurePosixPath, pattern: re.Pattern[str]
) -> Generator[Match, None, None]:
    try:
        data = workspace.read_bytes(str(path), MAX_FILE_BYTES)
    except ToolError:
        return
    if b"\0" in data:
        return
    for index, line in enumerate(data.decode("utf-8", errors="replace").split("\n")):
        if pattern.search(line[:_MAX_MATCHED_CHARS]):
            yield path, index + 1, line.rstrip("\r")


def _mode(name: str, folder_fd: int) -> int:
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode
    except OSError:
        return 0
