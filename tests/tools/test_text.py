"""Control sequences never survive, wherever a stream is cut."""

import time

import pytest

from tools.diff import unified_diff
from tools.shell import ShellTool
from tools.text import TerminalStream, one_line, spell_controls, strip_controls

NASTY = (
    "plain \x1b[1;31mred\x1b[0m \x1b]0;title\x07after \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ "
    "\x1bP1$tx\x1b\\dcs \x9b31mc1 \x9d0;t\x9cosc1 \x1b(Bcharset \x1b7save\x08\x00\x7f größe 日本\n"
)
CLEAN = "plain red after link dcs c1 osc1 charset save größe 日本\n"


def test_sequences_are_removed_whole() -> None:
    assert strip_controls(NASTY) == CLEAN


def test_stream_cut_at_any_byte_gives_the_same_text() -> None:
    data = NASTY.encode("utf-8")
    for cut in range(len(data) + 1):
        stream = TerminalStream()
        text = stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.feed(b"", is_last=True)
        assert text == CLEAN, cut


def test_stream_byte_by_byte_gives_the_same_text() -> None:
    stream = TerminalStream()
    text = "".join(stream.feed(bytes([byte])) for byte in NASTY.encode("utf-8"))
    assert text + stream.feed(b"", is_last=True) == CLEAN


def test_endless_sequence_is_not_held_for_ever() -> None:
    stream = TerminalStream()
    stream.feed(b"\x1b]0;" + b"x" * 10_000)
    assert stream.feed(b"\x07next\n").endswith("next\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("10%\r50%\r100%\n", "100%\n"), ("a\r\nb\r\n", "a\nb\n"), ("x\r", "x"), ("\r\r", "")],
)
def test_carriage_return_overwrites_the_line(text: str, wanted: str) -> None:
    assert strip_controls(text) == wanted


def test_one_line_joins_and_cuts() -> None:
    assert one_line("a\n b\x1b[31m\tc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


def test_diff_has_right_line_numbers_far_down() -> None:
    lines = [f"line {n}\n" for n in range(1000)]
    changed = [*lines[:500], "new\n", *lines[501:]]
    diff = unified_diff("".join(lines), "".join(changed), "f")
    assert "@@ -498,7 +498,7 @@" in diff
    assert "-line 500\n+new\n" in diff


def test_diff_shows_a_missing_final_newline() -> None:
    assert "\\ No newline at end of file" in unified_diff("a\n", "a", "f")


def test_diff_of_a_rewrite_is_bounded() -> None:
    old = "".join(f"a{n}\n" for n in range(20_000))
    new = "".join(f"b{n}\n" for n in range(20_000))
    diff = unified_diff(old, new, "f")
    assert len(diff.splitlines()) < 410 and "more lines of this diff" in diff


HIDING = [
    "echo hi \x1b]; rm -rf src \x07",  # a terminal would swallow it as a title
    "echo hi \x9d; rm -rf src \x9c",
    "rm -rf src #\recho hi",  # a terminal would overwrite it
    "echo \u202ecrs fr- mr",
]


@pytest.mark.parametrize("command", HIDING)
def test_preview_of_a_command_hides_nothing_of_it(command: str) -> None:
    preview = ShellTool(None, None, 1000).preview({"command": command})  # type: ignore[arg-type]
    wanted = "".join(ch if ch.isprintable() else ascii(ch)[1:-1] for ch in command)
    assert preview.detail.replace("\\x0d", "\\r") == wanted
    assert preview.title == f"bash: {preview.detail}"


@pytest.mark.parametrize("line", HIDING)
def test_diff_hides_nothing_of_a_line(line: str) -> None:
    assert "+" + spell_controls(line) + "\n" in unified_diff("", line + "\n", "f")


def test_spelled_text_keeps_lines_and_tabs_and_can_be_encoded() -> None:
    assert spell_controls("a\tb\r\nc\ud800") == "a\tb\nc\\ud800"


@pytest.mark.parametrize("start", ["\x90", "\x98", "\x9d", "\x1b]", "\x1bP", "\x9b", "\x1b"])
def test_cost_of_many_beginnings_is_linear(start: str) -> None:
    data = (start * 50_000 + "\n\x07").encode("utf-8")
    began = time.process_time()
    assert strip_controls(data.decode("utf-8")).strip() == ""
    assert TerminalStream().feed(data).strip() == ""
    assert time.process_time() - began < 2.0  # some 0.1 s; quadratic, it is 40 s
