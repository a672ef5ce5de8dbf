"""The stable screens, cell by cell, in three sizes and two themes; and the pictures of README.

After a change that is meant: ``DS4_UPDATE_SNAPSHOTS=1 pytest tests/tui/test_snapshots.py``, then
read the difference. Each snapshot holds the rows as text, and below them every run of styled
cells: row, first column, length, style.
"""

import os
import re
from pathlib import Path

import pytest
from textual.app import App

from tests.tui.screen import until_shown
from tests.tui.states import STATES

HERE = Path(__file__).parent / "snapshots"
PICTURES = Path(__file__).parent.parent.parent / "pictures"
UPDATES = bool(os.environ.get("DS4_UPDATE_SNAPSHOTS"))
SIZES = ((60, 20), (80, 24), (140, 40))
THEMES = {"dark": "textual-dark", "light": "textual-light"}
AWAITED = {
    "conversation": ("Opened", "ready"),
    "working": ("cut once", "queued"),
    "approval": ("Allow", "waiting"),
}


def snapshot(app: App) -> str:
    """Return the cells of the screen: text, then runs of styles."""
    rows, runs = [], []
    for y, strip in enumerate(app.screen._compositor.render_strips(app.size)):
        rows.append(strip.text.rstrip())
        x = 0
        for text, style, _ in strip:
            if style is not None and text:
                runs.append(f"{y} {x} {len(text)} {style}")
            x += len(text)
    return "\n".join([*rows, "---", *runs]) + "\n"


def picture(app: App) -> str:
    """Return the screen as SVG with the fonts of whoever looks at it."""
    svg = app.export_screenshot(title="ds4-agent")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "terminal", svg) + "\n"


def check(path: Path, found: str) -> None:
    if UPDATES:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert path.exists(), f"there is no {path.name}; DS4_UPDATE_SNAPSHOTS=1 makes it"
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
@pytest.mark.parametrize("state", STATES)
async def test_screens_look_as_they_did(open_screen, monkeypatch, state, size, theme):
    monkeypatch.setenv("TEXTUAL_THEME", THEMES[theme])
    async with open_screen(*STATES[state], size=size) as (app, worker, pilot):
        await until_shown(pilot, *(AWAITED[state] if size[0] >= 80 else AWAITED[state][:1]))
        await pilot.pause(0.1)
        check(HERE / f"{state}-{size[0]}x{size[1]}-{theme}.txt", snapshot(app))


@pytest.mark.parametrize("state", ["conversation", "approval"])
async def test_wide_screens_show_diffs_side_by_side(open_screen, monkeypatch, state):
    monkeypatch.setenv("TEXTUAL_THEME", THEMES["dark"])
    async with open_screen(*STATES[state], size=(160, 40)) as (app, worker, pilot):
        await until_shown(pilot, *AWAITED[state], " │ +")
        await pilot.pause(0.1)
        check(HERE / f"{state}-160x40-dark.txt", snapshot(app))


@pytest.mark.parametrize(
    ("state", "theme"), [("conversation", "dark"), ("approval", "light"), ("working", "dark")]
)
async def test_pictures_of_the_readme_are_current(open_screen, monkeypatch, state, theme):
    monkeypatch.setenv("TEXTUAL_THEME", THEMES[theme])
    async with open_screen(*STATES[state], size=(100, 34)) as (app, worker, pilot):
        await until_shown(pilot, *AWAITED[state])
        await pilot.pause(0.1)
        check(PICTURES / f"{state}.svg", picture(app))
        assert f"pictures/{state}.svg" in (PICTURES.parent / "README.md").read_text("utf-8")
