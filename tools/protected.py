"""Names in a workspace that commands and tools may not change, and names they may not read.

Protected paths are those which something outside the sandbox executes or trusts: version control
hooks, editor tasks, our own configuration, shell start-up files. Hidden files are those which
usually hold secrets. The file tools and the sandbox policy use the same rules.
"""

import re
from pathlib import PurePosixPath

PROTECTED_FOLDERS = (".git", ".ds4", ".vscode", ".idea")
PROTECTED_NESTED = (".github", "workflows")  # a folder below a folder that is itself free
PROTECTED_FILES = (
    ".envrc",
    ".mcp.json",
    "AGENTS.md",
    ".gitconfig",
    ".gitmodules",
    ".gitattributes",
    ".profile",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".zshenv",
    ".zprofile",
    ".zshrc",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
)

_FOLDERS = frozenset(name.casefold() for name in PROTECTED_FOLDERS)
_FILES = frozenset(name.casefold() for name in PROTECTED_FILES)
# ``id_*`` means private ssh keys, which have no suffix: a source file ``id_map.py`` stays readable.
_HIDDEN = re.compile(r"(\.env.*|.+\.pem|id_[^.]+)", re.IGNORECASE | re.DOTALL)


def is_hidden(name: str) -> bool:
    """True for the name of a file that may hold secrets: ``.env*``, ``*.pem``, ``id_*``."""
    return _HIDDEN.fullmatch(name) is not None


def is_protected_name(name: str) -> bool:
    """True when a file or folder of this name is protected wherever it lies."""
    folded = name.casefold()  # some file systems do not tell upper case from lower case
    return folded in _FOLDERS or folded in _FILES


def protected_part(relative: PurePosixPath) -> str:
    """Return the first protected component of a workspace path, "" when it is free."""
    parts = relative.parts
    for index, part in enumerate(parts):
        if is_protected_name(part):
            return part
        folded = tuple(name.casefold() for name in parts[index : index + 2])
        if folded == PROTECTED_NESTED:
            return "/".join(parts[index : index + 2])
    return ""
