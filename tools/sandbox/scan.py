"""Finding the places in a workspace that a command must not change or read.

Walks the workspace before each command. Folders of installed packages are skipped by their names:
they hold published files, many thousands. Never skip by what a folder contains, as a command could
put that into a folder to make the next scan blind.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from tools.errors import SandboxUnavailable
from tools.protected import (
    PROTECTED_FILES,
    PROTECTED_FOLDERS,
    PROTECTED_NESTED,
    is_hidden,
    is_protected_name,
)

MAX_ENTRIES = 300_000  # about one second; beyond, a command would start too slowly
_MAX_LINK_CANDIDATES = 50_000
_SKIPPED = frozenset(("node_modules", "site-packages", "__pycache__"))
_HOOKS_PATH = re.compile(r"^\s*hooksPath\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_POINTER_BYTES = 4096  # more than any path


@dataclass(frozen=True, slots=True)
class WorkspaceScan:
    """What was found. All paths are absolute; folders come before what is in them."""

    protected: tuple[Path, ...] = ()  # existing files and folders, to be read-only
    pinned: tuple[Path, ...] = ()  # their parents below the root, which must not be renamed
    masks: tuple[Path, ...] = ()  # protected folders of the root that do not exist
    hidden_files: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()  # protected names that are links, and their targets
    absent_files: tuple[Path, ...] = ()  # protected files of the root that do not exist
    git_folders: tuple[Path, ...] = ()  # repositories elsewhere that this is a worktree of


def scan_workspace(root: Path) -> WorkspaceScan:
    """Scan a workspace, given as an absolute path without links.

    Raises:
        SandboxUnavailable: too many files, or a protected folder is a link into the workspace.
    """
    found = _Found(root)
    outer, inner = PROTECTED_NESTED
    pending = [str(root)]
    n_entries = 0
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue  # unreadable for us; the command runs with our rights at most
        n_entries += len(entries)
        if n_entries > MAX_ENTRIES:
            raise SandboxUnavailable(
                f"the workspace {root} has more than {MAX_ENTRIES} files to check",
                "Start in a smaller folder.",
            )
        is_outer = os.path.basename(folder).casefold() == outer
        for entry in entries:
            name = entry.name
            if is_protected_name(name) or (is_outer and name.casefold() == inner):
                found.add_protected(Path(entry.path))
            elif entry.is_dir(follow_symlinks=False) and name not in _SKIPPED:
                pending.append(entry.path)
            if is_hidden(name):
                found.add_hidden(Path(entry.path))
    return found.result()


def shared_files(root: Path, max_found: int = 100) -> list[Path]:
    """Find regular files with more than one hard link, for a warning by ``doctor``.

    A command that changes such a file also changes it under its other names, which may lie
    outside the workspace. No mount can prevent that. Stops at ``max_found`` of them, or after
    50,000 files: a fraction of a second.
    """
    found: list[Path] = []
    n_seen = 0
    for folder, folders, names in os.walk(root):
        n_seen += len(names)
        if n_seen > _MAX_LINK_CANDIDATES:
            break
        folders[:] = sorted(set(folders) - _SKIPPED - {".git"})
        for name in sorted(names):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue  # gone since it was listed
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                found.append(path)
                if len(found) == max_found:
                    return found
    return found


class _Found:
    """Collects the parts of a scan."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.protected: set[Path] = set()
        self.hidden: set[Path] = set()
        self.links: list[tuple[Path, str]] = []
        self.git_folders: set[Path] = set()

    def add_protected(self, path: Path) -> None:
        if path.is_symlink():
            self._add_link(path)
            return
        self.protected.add(path)
        if path.name.casefold() == ".git":
            git = path if path.is_dir() else _pointer(path, "gitdir:")
            if git is not None:
                self._add_git(git, path.parent == self.root)

    def _add_link(self, path: Path) -> None:
        target = Path(os.path.realpath(path))
        self.links.append((path, os.readlink(path)))
        if not target.exists():
            return
        if target.is_relative_to(self.root):
            if target.is_dir():
                raise SandboxUnavailable(
                    f"{path} is a link to a folder of this workspace, which cannot be protected",
                    "Replace the link by the folder itself.",
                )
            self.protected.add(target)
        elif path.name.casefold() == ".git":
            self._add_git(target, path.parent == self.root)

    def _add_git(self, git: Path, is_main: bool) -> None:
        """Protect or show the folders a repository really lies in, and its hooks.

        Folders outside are shown only for the workspace's own ``.git``, which no command can
        make. A command can make one in a subfolder, and it could name any repository.
        """
        folders = [git, _pointer(git / "commondir", "") or git]
        for folder in folders:
            if not (folder / "HEAD").is_file():
                continue  # a pointer to anything but a repository is not followed
            if folder.is_relative_to(self.root):
                self.protected.add(folder)
            elif is_main and ((folder / "objects").is_dir() or (folder / "commondir").is_file()):
                self.git_folders.add(folder)
            for hooks in _HOOKS_PATH.findall(_text(folder / "config").replace("\0", "")):
                path = Path(os.path.realpath(self.root / os.path.expanduser(hooks.strip('"'))))
                if path.is_dir() and path != self.root and path.is_relative_to(self.root):
                    self.protected.add(path)

    def add_hidden(self, path: Path) -> None:
        target = Path(os.path.realpath(path))
        try:
            is_file = stat.S_ISREG(target.stat().st_mode)
        except OSError:
            return
        if is_file and target.is_relative_to(self.root):
            self.hidden.add(target)

    def result(self) -> WorkspaceScan:
        root = self.root
        # What lies in a protected folder is protected with it.
        protected = sorted(
            path for path in self.protected if self.protected.isdisjoint(path.parents)
        )
        pinned = {
            parent
            for path in (*protected, *(link for link, _ in self.links))
            for parent in path.parents
            if parent != root and parent.is_relative_to(root)
        }
        folders = [root / name for name in PROTECTED_FOLDERS] + [root.joinpath(*PROTECTED_NESTED)]
        files = [root / name for name in PROTECTED_FILES]
        return WorkspaceScan(
            protected=tuple(protected),
            pinned=tuple(sorted(pinned)),
            masks=tuple(path for path in folders if _can_be_made(path)),
            hidden_files=tuple(sorted(self.hidden)),
            links=tuple(sorted(self.links)),
            absent_files=tuple(path for path in files if not os.path.lexists(path)),
            git_folders=tuple(sorted(self.git_folders)),
        )


def _can_be_made(path: Path) -> bool:
    """True when nothing is there and the parent is missing or a real folder, not a link."""
    if os.path.lexists(path):
        return False
    parent = path.parent
    return not os.path.lexists(parent) or (parent.is_dir() and not parent.is_symlink())


def _pointer(path: Path, prefix: str) -> Path | None:
    """Read a file that names another folder, as git's worktrees and submodules have them."""
    text = _text(path).strip()
    named = text.removeprefix(prefix).strip()
    if not named or not text.startswith(prefix) or "\0" in named:
        return None
    return Path(os.path.realpath(path.parent / named))


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_POINTER_BYTES * 16)
    except OSError:
        return ""
