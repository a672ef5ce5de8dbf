"""bubblewrap as a mechanism: what it needs, and what to say when it does not work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.executables import find_trusted
from tools.sandbox.linux_bwrap import bwrap_arguments
from tools.sandbox.mechanism import Launch
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.seccomp import assemble_filter

_USERNS_WORDS = ("namespace", "uid map", "Operation not permitted")


class Bubblewrap:
    """User, process, network and mount namespaces, with a system call filter."""

    key = "bwrap"
    name = "bubblewrap"
    needs_masks = True
    is_supervisor = False

    def missing(self, root: Path) -> tuple[str, str]:
        """Look for the program, outside the workspace."""
        if find_trusted("bwrap", root):
            return "", ""
        return "bwrap is not installed", "Install the package bubblewrap of your distribution."

    @contextmanager
    def launch(self, policy: SandboxPolicy, shell: str, command: str) -> Iterator[Launch]:
        """Translate the policy; the payload is the system call filter."""
        program = find_trusted("bwrap", policy.root)
        yield Launch(
            lambda payload, status, is_gated: [
                program,
                *bwrap_arguments(policy, shell, command, payload, status, is_gated=is_gated),
            ],
            assemble_filter(),
        )

    def failure_note(self, root: Path, output: str) -> str:
        """What is refused says so itself: a read-only file system, no such file."""
        return ""

    def hint(self, reason: str) -> str:
        """Say what a person can do about a failure."""
        if not any(word in reason for word in _USERNS_WORDS):
            return "Run doctor for details."
        restricted = _setting("kernel/apparmor_restrict_unprivileged_userns")
        if restricted == "1":
            return (
                "AppArmor restricts user namespaces here. Install and load the AppArmor profile "
                "that your distribution ships for bwrap (bwrap-userns-restrict, in the package "
                "apparmor-profiles on Ubuntu 24.04; part of the system since 25.04)."
            )
        if _setting("kernel/unprivileged_userns_clone") == "0":
            return "This kernel refuses user namespaces to users (unprivileged_userns_clone is 0)."
        if _setting("user/max_user_namespaces") == "0":
            return "This kernel allows no user namespaces (user.max_user_namespaces is 0)."
        if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
            return (
                "This container forbids new namespaces. Start it with a seccomp profile that "
                "allows unshare, mount and pivot_root."
            )
        return "This system refuses user namespaces, which bubblewrap needs."


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
