"""Watching what a command's processes use up, because limits do not bind the root user.

Counts the descendants of the sandbox's first process and their private memory by reading
``/proc``. A process that detaches itself stays a descendant: orphans go to the first process of
their namespace.
"""

import os

from tools.sandbox.policy import Limits

INTERVAL_S = 0.2  # a fork loop makes about 1,000 processes in this time


class TreeWatch:
    """Checks one process tree against limits.

    Args:
        first_pid: the first process of the sandbox, as this process sees it.
    """

    def __init__(self, first_pid: int, limits: Limits) -> None:
        self._first_pid = first_pid
        self._limits = limits
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def exceeded(self) -> str:
        """Return what is used up, "" while all is within the limits."""
        pids = self._descendants()
        if len(pids) > self._limits.processes:
            return f"it had more than {self._limits.processes} processes"
        if sum(map(self._private_bytes, pids)) > self._limits.memory_bytes:
            return f"it used more than {self._limits.memory_bytes >> 20} MiB of memory"
        return ""

    def _descendants(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                stat = _read(f"/proc/{name}/stat")
                # The name in parentheses may itself hold blanks and parentheses.
                fields = stat.rpartition(b")")[2].split()
                if len(fields) > 1:
                    children.setdefault(int(fields[1]), []).append(int(name))
        found = [self._first_pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def _private_bytes(self, pid: int) -> int:
        fields = _read(f"/proc/{pid}/statm").split()
        if len(fields) < 3:
            return 0  # it has ended
        return (int(fields[1]) - int(fields[2])) * self._page_bytes


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
