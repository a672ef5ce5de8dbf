"""Selecting with the mouse copies, and the clipboard of the right machine gets it."""

from ds4agent.events import Outcome, TextDelta, TurnEnded, TurnStarted, Usage
from ds4agent.tui import clipboard
from tests.tui.screen import rows, until, until_shown


async def test_selecting_with_the_mouse_copies_the_text_alone(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"), TextDelta("first line of it\n\nsecond line"))
        worker.emit(TurnEnded(Outcome.DONE, Usage()))
        await until_shown(pilot, "first line of it", "second line")
        shown = rows(app)
        top = next(y for y, row in enumerate(shown) if "first line" in row)
        end = next(y for y, row in enumerate(shown) if "second line" in row)
        await pilot.mouse_down(offset=(shown[top].index("line"), top))
        await pilot.hover(offset=(shown[end].index("line") - 1, end))
        await pilot.mouse_up(offset=(shown[end].index("line") - 1, end))
        await until(pilot, lambda: "line of it" in app.clipboard)
        assert app.clipboard.split() == ["line", "of", "it", "second"]
        await until_shown(pilot, "copied")


async def test_osc_52_is_written_unless_it_is_too_long(open_screen):
    async with open_screen() as (app, worker, pilot):
        written: list[str] = []
        app._driver.write = written.append
        clipboard.copy(app, "ä")
        assert "\x1b]52;c;w6Q=\x07" in "".join(written)
        written.clear()
        clipboard.copy(app, "x" * 100_000)
        assert "\x1b]52" not in "".join(written)
        assert len(app.clipboard) == 100_000


def test_the_platforms_tool_is_not_used_on_another_machine(tmp_path):
    for name in ("xclip", "wl-copy", "pbcopy"):
        (tmp_path / name).write_text("", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    here = {"PATH": str(tmp_path), "DISPLAY": ":0"}
    assert clipboard.clipboard_tool(here, "linux")[0] == "xclip"
    assert clipboard.clipboard_tool(here | {"WAYLAND_DISPLAY": "w"}, "linux") == ("wl-copy",)
    assert clipboard.clipboard_tool({"PATH": str(tmp_path)}, "darwin") == ("pbcopy",)
    assert clipboard.clipboard_tool({"PATH": str(tmp_path)}, "linux") == ()
    assert clipboard.clipboard_tool(here | {"SSH_CONNECTION": "a"}, "linux") == ()


def test_the_tool_gets_the_text(tmp_path):
    taken = tmp_path / "taken"
    clipboard._feed(("sh", "-c", f"cat > {taken}"), "grüße")
    assert taken.read_text(encoding="utf-8") == "grüße"
    clipboard._feed(("/no/such/tool",), "x")  # says nothing
