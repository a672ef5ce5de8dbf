"""more continues each file on its own; todo keeps a list; multi_edit is all or nothing."""

from pathlib import Path

import pytest

from tools.toolbox import Toolbox


def lines(n: int) -> str:
    return "".join(f"line {i}\n" for i in range(1, n + 1))


def test_more_goes_on_where_the_last_read_ended(toolbox: Toolbox, root: Path) -> None:
    (root / "a").write_text(lines(10), encoding="utf-8")
    (root / "b").write_text(lines(7), encoding="utf-8")
    toolbox.run("read", {"path": "a", "max_lines": 4})
    toolbox.run("read", {"path": "./b", "max_lines": 5})
    assert "6 line 6\n7 line 7" in toolbox.run("more", {}).text
    assert "5 line 5\n6 line 6" in toolbox.run("more", {"path": "a", "max_lines": 2}).text
    assert "7 line 7" in toolbox.run("more", {"path": str(root / "a")}).text
    done = toolbox.run("more", {"path": "b"})
    assert not done.ok and "read to its end" in done.text


def test_more_without_a_read_is_told(toolbox: Toolbox, root: Path) -> None:
    assert "no file was read yet" in toolbox.run("more", {}).text
    assert "b was not read yet" in toolbox.run("more", {"path": "b"}).text


def test_todo_list_is_kept_and_shown(toolbox: Toolbox) -> None:
    items = [{"text": "look", "status": "done"}, {"text": "fix\nit", "status": "Doing"}]
    result = toolbox.run("todo", {"items": items})
    assert result.ok and result.title == "todo: 1 of 2 done"
    assert toolbox.todo.text() == "[x] look\n[>] fix it"
    as_text = '[{"text": "only", "status": "pending"}]'
    assert toolbox.run("todo", {"items": as_text}).text == "[ ] only"


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"text": "x", "status": "soon"}], "must be one of pending, doing, done, not 'soon'"),
        ([{"text": "x"}], "must be an object with text, status"),
        ("none", "must be an object"),
        ([{"text": "x", "status": "done"}] * 31, "a list of 31 steps is too long"),
        (7, "must be of type array"),
    ],
)
def test_bad_todo_list_is_one_line(toolbox: Toolbox, items: object, said: str) -> None:
    result = toolbox.run("todo", {"items": items})
    assert not result.ok and said in result.text and "\n" not in result.text


def edits(*pairs: tuple[str, str]) -> dict:
    return {"path": "a", "edits": [{"old": old, "new": new} for old, new in pairs]}


def test_several_edits_are_made_in_order(toolbox: Toolbox, root: Path) -> None:
    (root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    result = toolbox.run("multi_edit", edits(("one", "1\n1"), ("1\n1\ntwo", "2"), ("three", "3")))
    assert result.ok and (root / "a").read_bytes() == b"2\r\n3\r\n"
    assert result.text.count("at line") == 3 and "-two" in result.diff


def test_one_edit_that_fails_leaves_the_file_as_it_was(toolbox: Toolbox, root: Path) -> None:
    (root / "a").write_text("one\ntwo\n", encoding="utf-8")
    result = toolbox.run("multi_edit", edits(("one", "1"), ("twoo", "2")))
    assert not result.ok and "edit 2: old is not in a; no edit was made" in result.text
    assert "2 two" in result.text  # the nearest line
    assert (root / "a").read_text(encoding="utf-8") == "one\ntwo\n"


def test_no_edits_and_edits_without_effect_are_refused(toolbox: Toolbox, root: Path) -> None:
    (root / "a").write_text("one\n", encoding="utf-8")
    assert "edits is empty" in toolbox.run("multi_edit", {"path": "a", "edits": []}).text
    result = toolbox.run("multi_edit", edits(("one", "1"), ("1", "one")))
    assert not result.ok and "would be as it is" in result.text
