"""The policy as Landlock rules.

A rule allows rights for everything below one folder, or for one file, and nothing can be taken
back below it. So a folder with a protected place in it gets no rule for writing: the entries
around that place get rules of their own. The price: in such a folder, and in the workspace's own,
nothing can be made, removed or renamed. Listing is the exception, allowed for the whole of it.
"""

import os
import stat
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from tools.errors import SandboxUnavailable
from tools.sandbox.policy import SandboxPolicy


class Right(IntFlag):
    """Access rights of the kernel, ``LANDLOCK_ACCESS_FS_*`` of linux/landlock.h, ABI 6."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


ALL = Right((1 << 16) - 1)
READ = Right.EXECUTE | Right.READ_FILE | Right.READ_DIR
WRITE = (
    READ
    | Right.WRITE_FILE
    | Right.TRUNCATE
    | Right.REMOVE_DIR
    | Right.REMOVE_FILE
    | Right.MAKE_DIR
    | Right.MAKE_REG
    | Right.MAKE_SYM
    | Right.MAKE_FIFO
    | Right.REFER
)
_OF_FILES = Right.EXECUTE | Right.READ_FILE | Right.WRITE_FILE | Right.TRUNCATE
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Facts about the machine that programs read. Nothing about a process: a rule for a process's own
# folder would have to be made by itself, and one for /proc would show all processes of the person.
_PROC = (
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
)
SHARED_MEMORY = "/dev/shm"
_MAX_RULES = 50_000  # about 0.3 s


@dataclass(frozen=True, slots=True)
class Rule:
    """Rights for a folder and all below it, or for a file."""

    path: str
    rights: Right


def landlock_rules(policy: SandboxPolicy) -> list[Rule]:
    """Return the rules of one command, one a path.

    Raises:
        SandboxUnavailable: there are too many.
    """
    hidden = frozenset((*policy.hidden_files, *policy.hidden_folders, *policy.hidden_homes))
    closed = hidden | {*policy.protected, *policy.masks}
    rights: dict[str, Right] = {}
    for path in (*policy.system, *policy.readable):
        _grant(str(path), READ, _Closed(hidden), rights)
    _grant(str(policy.root), READ, _Closed(hidden, {policy.root}), rights)
    pinned = {policy.root, *policy.pinned}
    _grant(str(policy.root), WRITE, _Closed(closed, pinned), rights)
    # The folders around what is hidden or protected can be listed, also where they were closed.
    for path in _PROC:
        if os.path.exists(path):
            rights[path] = Right.READ_FILE
    for path in _DEVICES:
        rights[path] = Right.READ_FILE | Right.WRITE_FILE | Right.TRUNCATE
    if shared_memory_is_free(policy.run_as[0] if policy.run_as else os.geteuid()):
        rights[SHARED_MEMORY] = (
            READ | Right.WRITE_FILE | Right.TRUNCATE | Right.MAKE_REG | Right.REMOVE_FILE
        )
    if len(rights) > _MAX_RULES:
        raise SandboxUnavailable(
            f"the workspace has {len(rights)} entries beside protected ones, more than "
            f"{_MAX_RULES}",
            "Start in a smaller folder.",
        )
    return [Rule(path, right) for path, right in rights.items()]


def shared_memory_is_free(user: int) -> bool:
    """True when nothing in ``/dev/shm`` could be read or changed by this user.

    POSIX semaphores, which process pools need, live there under a fixed name. Where other programs
    of the person share memory there, commands get none.
    """
    try:
        entries = list(os.scandir(SHARED_MEMORY))
        return not any(_is_open_to(entry.stat(follow_symlinks=False), user) for entry in entries)
    except OSError:
        return False


def _is_open_to(status: os.stat_result, user: int) -> bool:
    return user == 0 or status.st_uid == user or bool(status.st_mode & 0o077)


class _Closed:
    """Places that get no rights, and the folders around them that get rights entry by entry."""

    def __init__(self, paths: frozenset[Path], split: set[Path] | None = None) -> None:
        self.paths = frozenset(map(str, paths))
        around = {str(parent) for path in paths for parent in path.parents}
        self.split = around | set(map(str, split or ()))


def _grant(path: str, wanted: Right, closed: _Closed, rights: dict[str, Right]) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # gone since it was listed
    pending = [(path, mode)]
    while pending:
        path, mode = pending.pop()
        if path in closed.paths:
            continue
        is_folder = stat.S_ISDIR(mode)
        if is_folder and path in closed.split:
            rights[path] = rights.get(path, Right(0)) | Right.READ_DIR
            pending += _entries(path)
        elif is_folder:
            rights[path] = rights.get(path, Right(0)) | wanted
        elif stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
            rights[path] = rights.get(path, Right(0)) | (wanted & _OF_FILES)


def _entries(folder: str) -> list[tuple[str, int]]:
    """Entries that are no links: a link needs no right, what it leads to has its own."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.path, stat.S_IFDIR))
                elif entry.is_file(follow_symlinks=False):
                    found.append((entry.path, stat.S_IFREG))
    except OSError:
        pass  # not readable for us, so neither for the command
    return found
