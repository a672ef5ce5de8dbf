"""/undo and /diff as a person sees them."""

import pytest

from ds4agent.events import DiffShown, FilesRestored, Notice
from ds4agent.requests import Redo, ShowDiff, Undo
from ds4agent.tui.widgets.composer import Composer
from tests.tui.screen import until, until_shown


@pytest.mark.parametrize(
    ("line", "command"),
    [("/undo", Undo()), ("/redo", Redo()), ("/diff", ShowDiff()), ("/diff all", ShowDiff(True))],
)
async def test_command_reaches_the_worker(open_screen, line, command):
    async with open_screen() as (app, worker, pilot):
        app.query_one(Composer).load_text(line)
        await pilot.press("enter")
        await until(pilot, lambda: command in worker.commands)


async def test_what_was_undone_is_listed(open_screen):
    async with open_screen() as (app, worker, pilot):
        paths = tuple(f"src/file{number}.py" for number in range(15))
        worker.emit(FilesRestored("undone", "rename it", paths, ("big.bin",)))
        await until_shown(pilot, "Undone: rename it", "src/file0.py", "and 3 more")
        await until_shown(pilot, "Not covered, so left as they are: big.bin")


async def test_diff_is_shown_with_its_totals(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(DiffShown("--- a\n+++ a\n@@ -1,1 +1,2 @@\n-old\n+new[b]\n+more\n"))
        await until_shown(pilot, "-old", "+new[b]", "+2 -1")
        worker.emit(Notice("after"))
        await until_shown(pilot, "after")
