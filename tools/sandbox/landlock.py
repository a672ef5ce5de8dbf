"""Landlock with a system call filter: for systems that refuse namespaces. Weaker than those.

Landlock lets a process give up rights to files for itself and its children. What it cannot do is
in ``README.md`` beside this file. All rights the kernel knows of are required, none is optional:
a kernel that lacks one is refused, with the name of what is missing.
"""

import ctypes
import functools
import marshal
import os
import platform
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

from tools.sandbox.landlock_rules import ALL, WRITE, landlock_rules
from tools.sandbox.mechanism import Launch
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.seccomp import ARCHITECTURES, assemble_filter

_SYS_CREATE_RULESET = 444
_VERSION_FLAG = 1  # LANDLOCK_CREATE_RULESET_VERSION
_NETWORK = 0b11  # LANDLOCK_ACCESS_NET_BIND_TCP and CONNECT_TCP
_SCOPED = 0b11  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and SIGNAL
NEEDED_ABI = 6
# What each version of the interface brought, as far as it is needed here.
_BROUGHT = (
    (3, "truncating files"),
    (4, "TCP"),
    (5, "device control"),
    (6, "abstract sockets and signals"),
)
_BOOT = "import marshal,os,sys;j=marshal.loads(os.fdopen({fd},'rb').read());exec(j['code'])"
# Without the interpreter's own clearing up, which takes a while and serves nobody here.
_START = """
j["status"] = int(sys.argv[1])
code = main(j)
sys.stderr.flush()
os._exit(code)
"""
_REFUSALS = ("Permission denied", "PermissionError", "EACCES", "Invalid cross-device link")


class Landlock:
    """File rights by Landlock, everything else by the system call filter and a supervisor."""

    key = "landlock"
    name = "landlock (weaker)"
    needs_masks = False  # the workspace's own folder is not writable, so nothing can be made there
    is_supervisor = True

    def missing(self, root: Path) -> tuple[str, str]:
        """Look at the kernel, and at the Python that confines."""
        if platform.system() != "Linux" or platform.machine() not in ARCHITECTURES:
            return f"Landlock needs Linux on {' or '.join(ARCHITECTURES)}", "Use another machine."
        abi = landlock_abi()
        if abi < NEEDED_ABI:
            lacking = ", ".join(what for version, what in _BROUGHT if version > abi)
            if not abi:
                return (
                    "this kernel has no Landlock, or it is switched off",
                    "Use Linux 6.12 or newer with landlock in its list of security modules.",
                )
            return (
                f"Landlock of this kernel (interface {abi}) lacks {lacking}",
                "Use Linux 6.12 or newer.",
            )
        if Path(_python()).is_relative_to(root):
            return "the Python that confines lies in the workspace", "Use a Python outside of it."
        return "", ""

    @contextmanager
    def launch(self, policy: SandboxPolicy, shell: str, command: str) -> Iterator[Launch]:
        """Translate the policy; the payload is the launcher's code and its job."""
        temporary = f"{tempfile.gettempdir()}/ds4-command-{secrets.token_hex(8)}"
        environment = dict(policy.environment)
        environment |= {"HOME": f"{temporary}/home", "TMPDIR": temporary}

        def arguments(payload: int, status: int, is_gated: bool) -> list[str]:
            return [_python(), "-I", "-S", "-c", _BOOT.format(fd=payload), str(status)]

        job = {
            "code": _code(),
            "parent": os.getpid(),
            "rules": [(rule.path, int(rule.rights)) for rule in landlock_rules(policy)],
            "files": int(ALL),
            "network": _NETWORK,
            "scoped": _SCOPED,
            "filter": assemble_filter(alone=False),
            "environment": environment,
            "temporary": temporary,
            "temporary_rights": int(WRITE),
            "root": str(policy.root),
            "shell": shell,
            "command": command,
            "user": policy.run_as,
            "file_bytes": policy.limits.file_bytes,
        }
        before = _shared_memory()
        try:
            yield Launch(arguments, marshal.dumps(job))
        finally:
            user = policy.run_as[0] if policy.run_as is not None else os.geteuid()
            _clear_shared_memory(before, user)

    def hint(self, reason: str) -> str:
        """There is nothing to switch on: the kernel was asked before."""
        return "Run doctor for details."

    def failure_note(self, root: Path, output: str) -> str:
        """Tell a model why a file of the workspace could not be made."""
        if not any(word in output for word in _REFUSALS):
            return ""
        return (
            "(This sandbox lets no command create, rename or remove what lies directly in the "
            "workspace folder or beside a protected entry: work in a subfolder, or use the write "
            "tool. Temporary files go below $TMPDIR.)"
        )


def landlock_abi() -> int:
    """Return the version of Landlock's interface in this kernel, 0 where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(
        ctypes.c_long(_SYS_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(_VERSION_FLAG),
    )
    return max(0, int(version))  # below 0: no such call, switched off, or forbidden by a container


def _python() -> str:
    """The interpreter of this program, the real one: that of an environment is only a link."""
    return os.path.realpath(sys.executable)


@functools.cache
def _code() -> CodeType:
    """The launcher, compiled: as trustworthy as this process, whatever becomes of the file."""
    return compile(_SOURCE + _START, "landlock_launcher", "exec")


def _shared_memory() -> set[str]:
    try:
        return set(os.listdir("/dev/shm"))
    except OSError:
        return set()


def _clear_shared_memory(before: set[str], user: int) -> None:
    """Remove what the command left in /dev/shm, unless another program uses it."""
    for name in _shared_memory() - before:
        path = f"/dev/shm/{name}"
        try:
            if os.lstat(path).st_uid == user and not _is_used(path):
                os.unlink(path)
        except OSError:
            pass


def _is_used(path: str) -> bool:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/maps", encoding="utf-8", errors="replace") as file:
                    if path in file.read():
                        return True
                for fd in os.listdir(f"/proc/{name}/fd"):
                    if os.readlink(f"/proc/{name}/fd/{fd}") == path:
                        return True
            except OSError:
                continue
    return False


# Read when this module is imported, before a command could change the file in its workspace. Not
# imported itself: it asks for functions that only Linux has.
_SOURCE = Path(__file__).with_name("landlock_launcher.py").read_text(encoding="utf-8")
