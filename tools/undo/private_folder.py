"""Making the folder of the log: what is kept there is the person's files."""

from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Create a folder and what is missing above it, each readable by its owner only.

    ``Path.mkdir`` gives its mode to the last folder alone.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
