"""Collecting a conversation from events, and writing it down."""

import time
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ds4agent.errors import UsageError
from ds4agent.events import (
    HistoryEntry,
    Outcome,
    TextDelta,
    ThinkingDelta,
    ToolCallReady,
    ToolFinished,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.record.export import export
from ds4agent.record.html import to_html
from ds4agent.record.markdown import fenced, to_markdown
from ds4agent.record.record import Record
from tests.tui.fake_worker import ready

CODE = "Look:\n\n```python\nprint('a')\n```\nand\n\n~~~\nlast\n~~~\ndone"


def told(*events) -> Record:
    record = Record()
    for event in events:
        record.take(event)
    return record


def one_turn() -> Record:
    return told(
        ready(),
        TurnStarted("What is\nthis?"),
        ThinkingDelta("hm"),
        ThinkingDelta("m"),
        TextDelta("I look. "),
        ToolCallReady("call-1", "read", {"path": "a.py"}, "read: a.py"),
        ToolFinished("call-1", "read", True, "read: a.py", "1 import os"),
        TextDelta("It is "),
        TextDelta("`os`."),
        TurnEnded(Outcome.DONE, Usage()),
    )


def test_pieces_of_one_text_become_one_entry() -> None:
    record = one_turn()
    assert [(entry.role, entry.text) for entry in record.entries] == [
        ("user", "What is\nthis?"),
        ("thinking", "hmm"),
        ("assistant", "I look. "),
        ("call", ""),
        ("result", "1 import os"),
        ("assistant", "It is `os`."),
    ]
    assert record.title == "What is"


def test_a_text_that_still_streams_is_there_and_goes_on() -> None:
    record = told(TurnStarted("a"), TextDelta("one "))
    assert record.last_answer() == "one "
    record.take(TextDelta("two"))
    assert record.last_answer() == "one two"
    assert len(record.entries) == 2


def test_ready_replaces_what_was_there() -> None:
    record = one_turn()
    record.take(ready(title="Old", history=(HistoryEntry("user", "before"),)))
    assert [entry.text for entry in record.entries] == ["before"]
    assert record.title == "Old"


def test_last_code_is_the_newest_block_of_the_model() -> None:
    record = told(TurnStarted("```\nmine\n```"), TextDelta(CODE))
    assert record.last_code() == "last\n"
    assert told(TurnStarted("x"), TextDelta("a\n```sh\nls -l")).last_code() == "ls -l"
    assert told(TurnStarted("```\nmine\n```")).last_code() == ""


def test_an_interrupted_turn_says_so() -> None:
    record = told(TurnStarted("a"), TurnEnded(Outcome.INTERRUPTED, Usage()))
    assert "*interrupted*" in to_markdown(record.entries)


def test_markdown_has_headings_a_diff_and_what_was_said() -> None:
    record = one_turn()
    record.take(ToolFinished("c", "edit", True, "edit: a", "ok", "@@ -1 +1 @@\n-a\n+b"))
    text = to_markdown(record.entries, "T", "tiny")
    for part in ("# T", "*tiny*", "## You", "## Assistant", "> hmm", "```diff\n@@", "It is `os`."):
        assert part in text
    assert text.count("## Assistant") == 1


def test_markdown_keeps_what_a_tool_said_inside_its_fence() -> None:
    nasty = "```\n# heading\n````\n<script>x</script>\x1b[31m"
    assert fenced(nasty).startswith("`````\n") and fenced(nasty).endswith("\n`````")
    text = to_markdown((HistoryEntry("result", nasty, "bash", ok=True),))
    kinds = [token.type for token in MarkdownIt().parse(text)]
    assert kinds.count("heading_open") == 2 and kinds.count("fence") == 1  # title, Assistant
    assert "\x1b" not in text


def test_markdown_closes_a_fence_that_was_cut_off() -> None:
    entries = (HistoryEntry("assistant", "a\n```py\nx = 1"), HistoryEntry("user", "next"))
    kinds = [token.type for token in MarkdownIt().parse(to_markdown(entries))]
    assert kinds.count("heading_open") == 3


def test_html_escapes_everything_and_allows_nothing() -> None:
    nasty = "</pre><script>alert(1)</script> [a](javascript:alert(1)) <img src=x onerror=y>"
    entries = tuple(
        HistoryEntry(role, nasty, nasty, {"a": nasty}, title=nasty, diff=diff)
        for role in ("user", "assistant", "thinking", "call", "result", "note")
        for diff in ("", f"+{nasty}")
    )
    page = to_html(entries, nasty, nasty)
    assert "<script" not in page and "<img" not in page and 'href="javascript' not in page
    assert "default-src 'none'" in page
    assert page.count("&lt;script&gt;") >= 12


def test_export_chooses_the_format_by_the_name(tmp_path: Path) -> None:
    record = one_turn()
    assert export(record, "a.html", tmp_path).read_text("utf-8").startswith("<!doctype html>")
    assert export(record, "a.md", tmp_path).read_text("utf-8").startswith("# What is")


def test_export_without_a_name_makes_one(tmp_path: Path) -> None:
    now = time.mktime((2026, 12, 3, 10, 20, 30, 0, 0, -1))
    path = export(one_turn(), "", tmp_path, now)
    assert path == tmp_path / "what-is-20261203-102030.md"


@pytest.mark.parametrize("name", ["a.exe", "no/such/folder.md", "there.md", "a\0.md"])
def test_export_says_why_it_cannot(tmp_path: Path, name: str) -> None:
    (tmp_path / "there.md").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError):
        export(one_turn(), name, tmp_path)
    assert (tmp_path / "there.md").read_text("utf-8") == "mine"


def test_export_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing"):
        export(told(ready()), "", tmp_path)
