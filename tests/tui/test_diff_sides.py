"""Diffs on wide screens: what was on the left, what is on the right."""

import pytest

from ds4agent.events import DiffShown, Phase, PhaseChanged
from ds4agent.tui.widgets.diff import diff_content
from ds4agent.tui.widgets.diff_sides import diff_for_screen, side_by_side
from tests.tui.fake_worker import ready
from tests.tui.screen import rows, text, until
from tests.tui.states import DIFF, STATES

BODY = DIFF.split("\n", 2)[2]


def _rows(diff: str, cells: int, **options) -> list[str]:
    return side_by_side(diff, cells, **options).plain.split("\n")


def test_removed_lines_stand_beside_the_added_lines_that_replace_them():
    assert _rows("@@ -1,4 +1,5 @@\n a\n-b\n-c\n+B\n+C\n+D\n e\n-f\n", 23) == [
        "@@ -1,4 +1,5 @@",
        " a         │  a",
        "-b         │ +B",
        "-c         │ +C",
        "           │ +D",
        " e         │  e",
        "-f         │ ",
    ]


def test_every_line_of_the_diff_is_there_once_on_its_side():
    sides = [row.split(" │ ") for row in _rows(BODY, 160)[1:]]
    old = [left.rstrip() for left, _ in sides if left.strip()]
    new = [right.rstrip() for _, right in sides if right.strip()]
    lines = BODY.rstrip("\n").split("\n")[1:]
    assert old == [line.rstrip() for line in lines if line[0] in " -"]
    assert new == [line.rstrip() for line in lines if line[0] in " +"]


def test_long_lines_go_on_below_and_wide_characters_keep_the_columns_straight():
    shown = _rows("-" + "x" * 25 + "\n+漢字漢字漢字漢\n", 23)
    assert [row.split(" │ ")[0] for row in shown] == ["-" + "x" * 9, "x" * 10, "x" * 6 + " " * 4]
    assert "".join(row.split(" │ ")[1] for row in shown) == "+漢字漢字漢字漢"
    content = side_by_side("-漢字\n+b\n", 23)
    assert content.cell_length == 10 + 3 + 2


def test_a_long_diff_is_cut_where_the_unified_one_is():
    long = "@@ -1,9 +1,9 @@\n" + "".join(f"-{n}\n+{n}{n}\n" for n in range(9))
    assert _rows(long, 100, limit=5)[-1] == "▸ 14 more lines"
    assert diff_content(long, 5).plain.endswith("▸ 14 more lines")


def test_a_header_is_no_removed_line():
    shown = _rows("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", 100)
    assert shown[:3] == ["--- a/x", "+++ b/x", "@@ -1 +1 @@"]


def test_screens_up_to_140_columns_show_the_unified_diff():
    assert diff_for_screen(BODY, 140, 130).plain == diff_content(BODY).plain
    assert " │ " in diff_for_screen(BODY, 141, 130).plain


SHOWING = {
    "card": STATES["conversation"],
    "question": STATES["approval"],
    "asked for": (ready(), PhaseChanged(Phase.IDLE), DiffShown(DIFF)),
}
OLD, NEW = '-        name, value = line.split(":")', "+        if not line.strip():"


@pytest.mark.parametrize("where", SHOWING)
async def test_a_diff_changes_its_form_with_the_width(open_screen, where):
    def is_beside() -> bool:
        return any(OLD in row and NEW in row for row in rows(app))

    async with open_screen(*SHOWING[where], size=(150, 40)) as (app, _, pilot):
        await until(pilot, is_beside)
        await pilot.resize_terminal(100, 40)
        await until(pilot, lambda: OLD in text(app) and not is_beside())
        await pilot.resize_terminal(160, 40)
        await until(pilot, is_beside)
