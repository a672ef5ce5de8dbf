"""The file of remembered rules: kept whole, kept apart, and kept private."""

import threading
from pathlib import Path

import pytest

from ds4agent.errors import ConfigError
from ds4agent.permissions.file import PermissionFile
from ds4agent.permissions.rules import Rule, Verdict


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings" / "permissions.toml"


def _rules(file: PermissionFile) -> list[str]:
    return [f"{owned.verdict} {owned.rule}" for owned in file.read()]


def test_rules_of_projects_are_kept_apart(path) -> None:
    one, two = PermissionFile(Path("/a"), path), PermissionFile(Path('/b "c"'), path)
    one.add(Verdict.ALLOW, Rule.exactly("bash", 'echo "x"\nls *'))
    two.add(Verdict.DENY, Rule("edit", "**"))
    assert _rules(one) == ['allow bash(=echo "x"\nls *)']
    assert _rules(two) == ["deny edit(**)"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_rule_has_one_verdict(path) -> None:
    file = PermissionFile(Path("/a"), path)
    file.add(Verdict.ALLOW, Rule("edit"))
    file.add(Verdict.DENY, Rule("edit"))
    assert _rules(file) == ["deny edit"]
    assert file.remove(Rule("edit")) and not file.remove(Rule("edit"))
    assert _rules(file) == []


def test_comments_of_a_person_survive(path) -> None:
    path.parent.mkdir()
    path.write_text('# mine\n["/a"]\nallow = ["edit"]  # of course\n', encoding="utf-8")
    PermissionFile(Path("/a"), path).add(Verdict.ALLOW, Rule("write"))
    text = path.read_text(encoding="utf-8")
    assert "# mine" in text and "# of course" in text and "write" in text


@pytest.mark.parametrize(
    "text",
    ["[", '["/a"]\nallow = "edit"\n', '["/a"]\ngrant = ["edit"]\n', '["/a"]\nallow = [1]\n',
     '["/a"]\nallow = ["edit("]\n', '"/a" = 3\n'],
)  # fmt: skip
def test_damaged_file_is_told_and_left_alone(path, text) -> None:
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    file = PermissionFile(Path("/a"), path)
    with pytest.raises(ConfigError, match="permissions.toml"):
        file.read()
    if "edit(" not in text:  # that one is a list of texts, so more can be added
        with pytest.raises(ConfigError):
            file.add(Verdict.ALLOW, Rule("write"))
        assert path.read_text(encoding="utf-8") == text


def test_two_writers_lose_nothing(path) -> None:
    def add(project: str) -> None:
        for n in range(20):
            PermissionFile(Path(project), path).add(Verdict.ALLOW, Rule("bash", f"={n}"))

    threads = [threading.Thread(target=add, args=(f"/{name}",)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(_rules(PermissionFile(Path(f"/{name}"), path))) for name in "ab"] == [20, 20]
