"""The policy as a Seatbelt profile for macOS, and the arguments of ``/usr/bin/sandbox-exec``.

Text only: no mechanism of this program starts it yet, since what cannot be tried on its own system
must not be relied on. On macOS commands are refused until then.

The profile starts from nothing allowed. Every path is a parameter (``-D``), so that no name of a
folder can become a rule. A later rule overrules an earlier one. Protected names are compared by
regular expression in any case of letters, as the usual file system of macOS does not tell them
apart. There is no rule for the network, Apple events, the pasteboard or the keychain.
"""

import re
from pathlib import Path

from tools.sandbox.policy import SandboxPolicy

SANDBOX_EXEC = "/usr/bin/sandbox-exec"  # always this one: a name could be found elsewhere
_PROGRAMS_AND_LIBRARIES = (
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/libexec",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/opt/homebrew",
    "/System/Library",
    "/System/Volumes/Preboot/Cryptexes",
    "/Library/Developer/CommandLineTools",
    "/Library/Frameworks",
    "/private/etc",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
)
_SECRETS = ("/private/etc/master.passwd", "/private/etc/sudoers", "/private/etc/ssh")
_HEAD = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow file-read* file-write-data
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))
(allow file-read-metadata (literal "/") (literal "/private") (literal "/private/tmp")
  (literal "/private/var") (literal "/tmp") (literal "/var") (literal "/etc"))
"""
_TERMINAL = """\
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))
"""


def seatbelt_profile(
    policy: SandboxPolicy, temporary: Path, *, has_terminal: bool = False
) -> tuple[str, dict[str, str]]:
    """Return the profile's text and the values of its parameters.

    Args:
        policy: what the command may see and change; its paths are canonical.
        temporary: the command's own temporary folder, canonical (``/private/var/...``).
        has_terminal: the job asked for a pseudo-terminal.
    """
    profile = _Profile()
    readable = [Path(path) for path in _PROGRAMS_AND_LIBRARIES]
    readable += [*policy.readable, policy.root, temporary]
    around = {
        parent for path in (*policy.readable, policy.root, temporary) for parent in path.parents
    }
    profile.rule("allow file-read-metadata", "literal", "AROUND", sorted(around - {Path("/")}))
    profile.rule("allow file-read*", "subpath", "READABLE", readable)
    profile.rule("allow file-write*", "subpath", "WRITABLE", [policy.root, temporary])
    closed = [*policy.protected, *policy.masks]
    profile.rule("deny file-write*", "regex", "PROTECTED", closed)
    # Renaming a folder around a protected place would carry it away under another name.
    profile.rule("deny file-write-unlink", "regex", "PINNED", [policy.root, *policy.pinned], "$")
    hidden = [Path(path) for path in _SECRETS] + [*policy.hidden_files, *policy.hidden_folders]
    profile.rule("deny file-read* file-write*", "regex", "HIDDEN", hidden)
    return _HEAD + (_TERMINAL if has_terminal else "") + profile.text, profile.values


def seatbelt_arguments(
    policy: SandboxPolicy,
    temporary: Path,
    shell: str,
    command: str,
    *,
    has_terminal: bool = False,
) -> list[str]:
    """Return the program and its arguments that run a command under the policy."""
    text, values = seatbelt_profile(policy, temporary, has_terminal=has_terminal)
    arguments = [SANDBOX_EXEC, "-p", text]
    for name, value in values.items():
        arguments += ["-D", f"{name}={value}"]
    environment = dict(policy.environment) | {"HOME": str(temporary), "TMPDIR": str(temporary)}
    arguments += ["/usr/bin/env", "-i", *(f"{k}={v}" for k, v in sorted(environment.items()))]
    launch = f'ulimit -c 0; ulimit -f {policy.limits.file_bytes // 512}; exec "$0" -c "$1"'
    return [*arguments, shell, "-c", launch, shell, command]


class _Profile:
    """Collects rules whose paths are parameters."""

    def __init__(self) -> None:
        self.text = ""
        self.values: dict[str, str] = {}

    def rule(self, what: str, kind: str, name: str, paths: list[Path], end: str = "(/|$)") -> None:
        if not paths:
            return
        filters = ""
        for number, path in enumerate(paths):
            parameter = f"{name}_{number}"
            self.values[parameter] = _any_case(path, end) if kind == "regex" else str(path)
            filters += f'\n  ({kind} (param "{parameter}"))'
        self.text += f"({what}{filters})\n"


def _any_case(path: Path, end: str) -> str:
    """Return a regular expression for the path, and what is below it, in any case of letters."""
    letters = (
        f"[{character.lower()}{character.upper()}]"
        if character.isascii() and character.isalpha()
        else re.escape(character)
        for character in str(path)
    )
    return "^" + "".join(letters) + end
