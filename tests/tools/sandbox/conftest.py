"""A repository to defend."""

from pathlib import Path

import pytest

from tests.tools.sandbox.commands import git


@pytest.fixture
def repository(root: Path) -> Path:
    git(root, "init")
    (root / "a.txt").write_text("a\n", encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    return root
