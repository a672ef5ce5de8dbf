"""Finding our own helper programs, never one that a model could have written."""

import os
import shutil
from pathlib import Path


def find_trusted(name: str, root: Path) -> str:
    """Return the absolute path of a program on ``PATH``, "" when there is none.

    Relative entries of ``PATH`` and those inside the workspace are passed over.
    """
    folders = os.environ.get("PATH", "").split(":")
    trusted = [
        folder
        for folder in folders
        if folder.startswith("/") and not Path(os.path.realpath(folder)).is_relative_to(root)
    ]
    found = shutil.which(name, path=":".join(trusted)) if trusted else None
    if found is None or Path(os.path.realpath(found)).is_relative_to(root):
        return ""
    return found
