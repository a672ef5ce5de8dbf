"""What is checked in the workspace after a command, where no mount could protect before.

A protected file that did not exist could be created, and a protected name that is a link could be
replaced. Both are undone by renaming: nothing is deleted.
"""

import os
from pathlib import Path

from tools.errors import SandboxUnavailable
from tools.sandbox.scan import WorkspaceScan, scan_workspace

_MAX_NAMED = 5


def check_after(root: Path, before: WorkspaceScan) -> list[str]:
    """Undo forbidden changes and return one line for each thing the model should know.

    Runs while the masks still stand, so that they are told from what the command made.
    """
    notes = []
    for path in before.absent_files:
        if os.path.lexists(path):
            aside = _move_aside(path)
            notes.append(f"{path.name} is protected; the new file was renamed to {aside.name}.")
    for path, target in before.links:
        # Its folder was a mount point, so it cannot have been replaced; look again all the same,
        # because this process could write where a link in its place leads.
        if Path(os.path.realpath(path.parent)) != path.parent:
            continue
        if not path.is_symlink() or os.readlink(path) != target:
            if os.path.lexists(path):
                _move_aside(path)
            os.symlink(target, path)
            notes.append(f"{path.relative_to(root)} is a protected link and was restored.")
    try:
        after = scan_workspace(root)
    except SandboxUnavailable:
        return notes  # the next command will be refused with this reason
    known = {*before.protected, *before.masks}
    new = [path for path in after.protected if path not in known]
    if new:
        names = ", ".join(str(path.relative_to(root)) for path in new[:_MAX_NAMED])
        notes.append(f"New and read-only from now on: {names}.")
    return notes


def _move_aside(path: Path) -> Path:
    number = 0
    while True:
        suffix = f".refused-{number}" if number else ".refused"
        aside = path.with_name(path.name + suffix)
        if not os.path.lexists(aside):
            os.rename(path, aside)
            return aside
        number += 1
