"""Folders of sessions, and a user without the rights of root."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.store import SessionStore

_NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sessions folder that doesn't exist yet."""
    return tmp_path / "ds4" / "kvcache"


@pytest.fixture
def store(folder: Path) -> SessionStore:
    return SessionStore(folder)


@pytest.fixture
def plain_folder() -> Iterator[Path]:
    """An existing folder, used by a process that permissions apply to."""
    path = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(path, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield path
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(0o700)
        shutil.rmtree(path)
