"""The policy as arguments of bubblewrap.

bubblewrap starts from an empty file system and mounts in the order of its arguments, so a later
mount covers an earlier one: system, devices, private temporary folder, tool chains, workspace,
what is read-only in it, what is hidden. Then everything of the skeleton itself is made read-only.
"""

from pathlib import Path

from tools.sandbox.policy import PRIVATE_HOME, SandboxPolicy

_NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
)
# Runs inside, before the command: no core files, a bound on file size, first to go when the
# machine runs out of memory. Then the shell replaces itself.
_LAUNCH = (
    "ulimit -c 0; ulimit -f {blocks}; echo 1000 2>/dev/null >/proc/self/oom_score_adj; "
    'exec "$0" -c "$1"'
)
# Before that: nothing runs until the program that started it says that it is still there.
_GATE = "read -r _ || exit 125; exec </dev/null; "


def bwrap_arguments(
    policy: SandboxPolicy,
    shell: str,
    command: str,
    seccomp_fd: int,
    status_fd: int,
    *,
    is_gated: bool = False,
) -> list[str]:
    """Return bubblewrap's arguments, without its own name.

    Args:
        policy: what the command may see and change.
        shell: absolute path of the shell, in the sandbox.
        command: the text the shell runs.
        seccomp_fd: descriptor from which bubblewrap reads the system call filter.
        status_fd: descriptor to which it writes the id of the first process and the exit code.
        is_gated: the command begins with a line on its standard input, which is empty after that.
    """
    limits = policy.limits
    arguments = [*_NAMESPACES, "--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    arguments += ["--hostname", "sandbox", "--clearenv"]
    for name, value in policy.environment:
        arguments += ["--setenv", name, value]
    for path in policy.system:
        arguments += _bind("--ro-bind", path)
    for target, path in policy.links:
        arguments += ["--symlink", target, str(path)]
    arguments += ["--dev", "/dev", "--size", str(limits.temporary_bytes), "--tmpfs", "/dev/shm"]
    arguments += ["--remount-ro", "/dev", "--proc", "/proc"]
    # Without capabilities user id 0 still owns the files of kernel settings.
    arguments += _bind("--ro-bind", Path("/proc/sys"))
    for path in policy.hidden_homes:
        # Stays writable until the end: tool chains are mounted into it.
        arguments += ["--perms", "0555", "--tmpfs", str(path)]
    for folder in ("/tmp", "/var/tmp"):
        arguments += ["--size", str(limits.temporary_bytes), "--tmpfs", folder]
    arguments += ["--dir", PRIVATE_HOME, "--dir", "/run"]
    # After the temporary folder: an environment may lie below /tmp.
    for path in policy.readable:
        arguments += _bind("--ro-bind", path)
    arguments += _bind("--bind", policy.root)
    for path in policy.pinned:
        arguments += _bind("--bind", path)  # a mount point cannot be renamed
    for path in (*policy.protected, *policy.masks):
        arguments += _bind("--ro-bind", path)
    for path in policy.hidden_folders:
        arguments += _hide_folder(path)
    for path in policy.hidden_files:
        # A device on a mount without devices: it cannot be opened by anybody.
        arguments += ["--ro-bind", "/dev/null", str(path)]
    for path in (*policy.hidden_homes, Path("/")):
        arguments += ["--remount-ro", str(path)]
    arguments += ["--chdir", str(policy.root)]
    arguments += ["--seccomp", str(seccomp_fd), "--json-status-fd", str(status_fd)]
    gate = _GATE if is_gated else ""
    launch = gate + _LAUNCH.format(blocks=limits.file_bytes // 1024)
    return [*arguments, "--", shell, "-c", launch, shell, command]


def _bind(kind: str, path: Path) -> list[str]:
    return [kind, str(path), str(path)]


def _hide_folder(path: Path) -> list[str]:
    return ["--perms", "0555", "--tmpfs", str(path), "--remount-ro", str(path)]
