import pytest
from rich.cells import cell_len

from ds4agent.events import Phase
from ds4agent.requests import Mode
from ds4agent.tui.plain import age, count, short_count
from ds4agent.tui.theme import ANSI_LIGHT, DARK, LIGHT, may_animate, theme_name
from ds4agent.tui.widgets.diff import clean_diff, diff_content, diff_path, diff_totals
from ds4agent.tui.widgets.status_line import StatusLine, bar


def full_status() -> StatusLine:
    line = StatusLine()
    status = line.status
    status.mode, status.model, status.quant = Mode.ASK, "qwen2.5-coder-1.5b-instruct", "Q4_K_M"
    status.device, status.sandbox, status.phase = "cpu", "bubblewrap", Phase.GENERATING
    status.context_tokens, status.context_size = 1234, 8192
    status.generated, status.tokens_per_s = 321, 9.87
    return line


@pytest.mark.parametrize("width", [1, 8, 20, 40, 60, 80, 100, 140])
def test_status_always_fits(width):
    assert cell_len(full_status().line(width).plain) <= width


def test_status_gives_up_detail_step_by_step():
    line = full_status()
    wide, usual, narrow = (line.line(width).plain for width in (140, 76, 46))
    assert "qwen2.5-coder-1.5b-instruct Q4_K_M cpu" in wide
    assert "█" in wide
    assert "generating 321 tokens 9.9 tok/s" in wide
    for part in ("ask", "1.2k/8.2k", "321 at 9.9 tok/s"):
        assert part in usual
        assert part in narrow
    for part in ("qwen2.5", "Q4_K_M", "cpu", "bubblewrap"):
        assert part in usual
    assert "bubblewrap" not in narrow


def test_a_missing_sandbox_is_said_even_when_narrow():
    line = full_status()
    line.status.sandbox = "off: no user namespaces"
    assert "no sandbox" in line.line(64).plain
    assert "!sandbox" in line.line(46).plain


def test_nearly_full_context_is_marked_by_a_character():
    line = full_status()
    line.status.context_tokens = 7000
    assert "7k/8.2k" in line.line(140).plain
    assert " ! " in line.line(140).plain


def test_bar_is_filled_in_proportion():
    assert bar(5, 10, 4) == "██░░"
    assert bar(20, 10, 4) == "████"
    assert bar(0, 0, 4) == "░░░░"


def test_diff_marks_the_changed_words():
    content = diff_content("@@ -1 +1 @@\n-return a + b\n+return a + c")
    marked = {
        content.plain[span.start : span.end]
        for span in content.spans
        if "underline" in str(span.style)
    }
    assert marked == {"b", "c"}


def test_diff_is_cut_with_a_count_and_totals_ignore_the_header():
    diff = "--- a/x\n+++ b/x\n@@ -1 +1,3 @@\n-a\n+b\n+c\n+d"
    assert diff_totals(diff) == "+3 -1"
    assert clean_diff(diff).split("\n")[0].startswith("@@")
    assert diff_content(diff, 3).plain.endswith("▸ 4 more lines")


def test_theme_follows_the_terminals_background():
    assert theme_name("auto", {}) == DARK
    assert theme_name("auto", {"COLORFGBG": "0;15"}) == LIGHT
    assert theme_name("auto", {"COLORFGBG": "15;0"}) == DARK
    assert theme_name("auto", {"COLORFGBG": "15;0", "TEXTUAL_THEME": LIGHT}) == LIGHT
    assert theme_name("dark", {"COLORFGBG": "0;15"}) == DARK
    assert theme_name("ansi", {"COLORFGBG": "0;15"}) == ANSI_LIGHT


def test_nothing_moves_over_ssh_or_on_request():
    assert may_animate(False, {})
    assert not may_animate(True, {})
    assert not may_animate(False, {"SSH_CONNECTION": "a b c d"})
    assert not may_animate(False, {"TEXTUAL_ANIMATIONS": "none"})


async def test_no_color_is_honoured(open_screen, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_screen(no_animation=True) as (app, worker, pilot):
        assert app.no_color
        assert app.animation_level == "none"


def test_numbers_are_short():
    assert [short_count(n) for n in (950, 12_500, 100_000, 128_000)] == [
        "950",
        "12.5k",
        "100k",
        "128k",
    ]
    assert [age(s) for s in (5, 300, 7_300, 900_000)] == ["5s", "5m", "2h", "10d"]
    assert [count(1, "line"), count(1200, "line")] == ["1 line", "1,200 lines"]


def test_code_of_a_diff_has_the_colours_of_its_language_and_its_signs_stay():
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-return None\n+return 42\n"
    content = diff_content(clean_diff(diff), path=diff_path(diff))
    assert content.plain == "@@ -1 +1 @@\n-return None\n+return 42"
    styles = {content.plain[start:end]: str(style) for start, end, style in content.spans}
    assert styles["return"] == "$text-accent"
    assert styles["+"] == "$text-success"
    assert "on $success" in styles["+return 42"]
    assert diff_content(clean_diff(diff), path="x.unknown").plain == content.plain
