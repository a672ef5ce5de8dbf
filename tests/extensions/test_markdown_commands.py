"""Commands from Markdown files."""

from pathlib import Path

import pytest

from ds4agent.extensions.markdown_commands import read_commands


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    return mine, theirs


def test_commands_are_read_and_the_first_folder_wins(folders) -> None:
    mine, theirs = folders
    (mine / "review.md").write_text("# Look at a change\nReview $ARGUMENTS twice.\n", "utf-8")
    (theirs / "review.md").write_text("Not this one.", "utf-8")
    (theirs / "fix.md").write_text("Fix it.", "utf-8")
    commands, problems = read_commands([mine, theirs, mine / "nothing"])
    assert not problems
    assert [command.name for command in commands] == ["fix", "review"]
    fix, review = commands
    assert review.help == "Look at a change" and review.message("a.py") == "Review a.py twice."
    assert fix.message("") == "Fix it." and fix.message("now") == "Fix it.\n\nnow"


def test_files_that_are_none_are_told(folders) -> None:
    mine, _ = folders
    (mine / "quit.md").write_text("x", "utf-8")
    (mine / "two words.md").write_text("x", "utf-8")
    (mine / "empty.md").write_text("# only a title\n", "utf-8")
    (mine / "large.md").write_text("x" * (65 << 10), "utf-8")
    (mine / "folder.md").mkdir()
    commands, problems = read_commands([mine], taken=["quit"])
    assert not commands and len(problems) == 5


def test_help_holds_no_control_sequence(folders) -> None:
    mine, _ = folders
    (mine / "a.md").write_text("# \x1b[31mred\nx", "utf-8")
    assert "\x1b" not in read_commands([mine])[0][0].help
