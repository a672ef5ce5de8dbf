"""What a command may see and change, as plain data. Mechanisms only translate it.

Two parts: the system side is the same for every command of a workspace (``base_policy``); the
workspace side is scanned anew before each command (``with_scan``), because the command before may
have created files.
"""

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tools.errors import SandboxUnavailable
from tools.sandbox.scan import WorkspaceScan

# Read-only for every command. A folder that is a link, such as /bin, is made as a link.
SYSTEM_FOLDERS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
SYSTEM_SECRETS = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security/opasswd",
    "/etc/ssl/private",
    "/etc/ssh",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/netplan",
    "/etc/letsencrypt",
    "/etc/cloud",
)
# Tool chains and package caches below the home folder, read-only.
HOME_READABLE = (
    ".pyenv",
    ".rustup",
    ".cargo",
    ".nvm",
    ".volta",
    ".asdf/installs",
    ".asdf/shims",
    ".rbenv",
    ".sdkman/candidates",
    ".ghcup",
    ".opam",
    ".juliaup",
    ".dotnet",
    ".deno/bin",
    ".bun/bin",
    ".m2/repository",
    "go/bin",
    "go/pkg",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".local/share/pipx",
    ".cache/pip",
    ".cache/uv",
)
# Never readable, also when the workspace is the home folder itself.
HOME_SECRETS = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".password-store",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".vault-token",
    ".terraform.d",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".mozilla",
    ".thunderbird",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".local/share/fish/fish_history",
    ".psql_history",
    ".mysql_history",
    ".node_repl_history",
    ".lesshst",
    ".viminfo",
    ".cache/huggingface/token",
    ".ds4",
    ".config/ds4-agent",
    ".local/share/ds4-agent",
    ".local/state/ds4-agent",
    ".cache/ds4-agent",
)
_SKELETON = ("/tmp", "/var/tmp", "/run", "/dev", "/proc")  # made new for each command
PRIVATE_HOME = "/tmp/home"  # in the command's own temporary file system
MAX_MOUNTS = 600  # each mount costs bubblewrap time that grows with their number
_FIXED_ENVIRONMENT = ("LANG", "TERM", "TZ")
_TOOL_HOMES = (("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use up."""

    memory_bytes: int  # private memory of all its processes together
    processes: int = 1024  # a parallel build needs hundreds; a fork loop passes this at once
    file_bytes: int = 4 << 30  # largest single file
    temporary_bytes: int = 1 << 30  # private temporary files; they are kept in memory
    output_bytes: int = 64 << 20  # only the start and the end are kept anyway


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Everything a mechanism needs. All paths are absolute and free of links.

    Order of precedence, weakest first: system and readable (read-only), root (writable), pinned
    (writable, cannot be renamed), protected and masks (read-only), hidden.
    """

    root: Path
    system: tuple[Path, ...]
    links: tuple[tuple[str, Path], ...]  # (target, path) of links such as /bin -> usr/bin
    readable: tuple[Path, ...]
    hidden_files: tuple[Path, ...]
    hidden_folders: tuple[Path, ...]
    environment: tuple[tuple[str, str], ...]
    limits: Limits
    hidden_homes: tuple[Path, ...] = ()  # home folders that lie in a system folder
    run_as: tuple[int, int] | None = None  # user and group id to change to first, as root only
    pinned: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    masks: tuple[Path, ...] = ()  # protected folders that do not exist; empty while it runs


def base_policy(root: Path, homes: tuple[Path, ...], environ: Mapping[str, str]) -> SandboxPolicy:
    """Return the part that does not depend on the workspace's content.

    Args:
        root: the workspace, an absolute path without links.
        homes: the person's home folders, real paths; tool chains are looked for in the first.
        environ: the environment of this process; only a few values are taken over.

    Raises:
        SandboxUnavailable: the workspace contains the system.
    """
    if any(Path(folder).is_relative_to(root) for folder in (*SYSTEM_FOLDERS, *_SKELETON)):
        raise SandboxUnavailable(
            f"the workspace {root} contains system folders", "Start in a project folder."
        )
    home = homes[0] if homes else Path("/nonexistent")
    present = [Path(folder) for folder in SYSTEM_FOLDERS if os.path.exists(folder)]
    system = tuple(path for path in present if not path.is_symlink())
    links = tuple((os.readlink(path), path) for path in present if path.is_symlink())
    run_as = _unprivileged_owner(root)
    readable = _readable(home, system, root)
    if run_as is not None:
        readable = tuple(path for path in readable if _is_reachable(path, *run_as))
    private = environ.get("DS4_HOME", "")
    secrets = [Path(path) for path in SYSTEM_SECRETS]
    secrets += [folder / path for folder in homes for path in HOME_SECRETS]
    secrets += [Path(os.path.realpath(private))] if private else []
    visible = (*system, *readable, root)
    # A secret that contains the workspace would hide the workspace itself.
    secrets = [
        path
        for path in _existing(secrets)
        if _is_below(path, visible) and not root.is_relative_to(path)
    ]
    return SandboxPolicy(
        root=root,
        system=system,
        links=links,
        readable=readable,
        hidden_files=tuple(path for path in secrets if not path.is_dir()),
        hidden_folders=tuple(path for path in secrets if path.is_dir()),
        environment=_environment(environ, home, visible),
        limits=Limits(memory_bytes=_half_of_memory()),
        hidden_homes=tuple(folder for folder in homes if _is_below(folder, system)),
        run_as=run_as,
    )


def with_scan(base: SandboxPolicy, scan: WorkspaceScan) -> SandboxPolicy:
    """Add what a scan found in the workspace.

    Raises:
        SandboxUnavailable: more places to protect than can be mounted.
    """
    policy = replace(
        base,
        readable=(*base.readable, *scan.git_folders),
        pinned=scan.pinned,
        protected=scan.protected,
        masks=scan.masks,
        hidden_files=tuple(dict.fromkeys((*base.hidden_files, *scan.hidden_files))),
    )
    n_mounts = len(policy.pinned) + len(policy.protected) + len(policy.hidden_files)
    if n_mounts > MAX_MOUNTS:
        raise SandboxUnavailable(
            f"the workspace has {n_mounts} protected or hidden places, more than {MAX_MOUNTS}",
            "Start in a smaller folder.",
        )
    return policy


def read_only(policy: SandboxPolicy) -> SandboxPolicy:
    """Return the policy with a workspace in which nothing can be changed."""
    return replace(policy, pinned=(), protected=(policy.root,), masks=())


def _readable(home: Path, system: tuple[Path, ...], root: Path) -> tuple[Path, ...]:
    candidates = [home / path for path in HOME_READABLE]
    candidates += [Path(os.path.realpath(sys.prefix)), Path(os.path.realpath(sys.base_prefix))]
    found: list[Path] = []
    for path in _existing(candidates):
        if home.is_relative_to(path) or root.is_relative_to(path):
            continue  # would show the home folder, or what lies around the workspace
        if not _is_below(path, (*system, root, *found)):
            found.append(path)
    return tuple(found)


def _existing(paths: list[Path]) -> list[Path]:
    """Real paths of those that exist, each once; a mount cannot lie on a link."""
    real = (os.path.realpath(path) for path in paths if os.path.exists(path))
    return [Path(path) for path in dict.fromkeys(real)]


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _environment(
    environ: Mapping[str, str], home: Path, visible: tuple[Path, ...]
) -> tuple[tuple[str, str], ...]:
    values = {
        name: value
        for name, value in environ.items()
        if name in _FIXED_ENVIRONMENT or name.startswith("LC_")
    }
    folders = [os.path.realpath(part) for part in environ.get("PATH", "").split(":") if part]
    kept = [folder for folder in dict.fromkeys(folders) if _is_below(Path(folder), visible)]
    values["PATH"] = ":".join(kept or ["/usr/local/bin", "/usr/bin", "/bin"])
    values["HOME"] = PRIVATE_HOME
    values["TMPDIR"] = "/tmp"
    for name, folder in _TOOL_HOMES:
        if (home / folder).is_dir():
            values[name] = str(home / folder)
    return tuple(sorted(values.items()))


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _unprivileged_owner(root: Path) -> tuple[int, int] | None:
    """As root, run commands as the owner of the workspace, unless that is root too.

    A root-owned workspace would not be usable by anybody else; there the command keeps user id 0,
    but without any capability, inside its own user namespace.
    """
    if os.geteuid() != 0:
        return None
    status = root.stat()
    return (status.st_uid, status.st_gid) if status.st_uid != 0 else None


def _is_reachable(path: Path, user: int, group: int) -> bool:
    """True when a user may pass through all folders above the path, and enter it."""
    for folder in (path, *path.parents):
        status = folder.stat()
        bit = stat.S_IXOTH
        if status.st_uid == user:
            bit = stat.S_IXUSR
        elif status.st_gid == group:
            bit = stat.S_IXGRP
        if not status.st_mode & bit:
            return False
    return True
