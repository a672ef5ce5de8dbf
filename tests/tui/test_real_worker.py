"""The screen over the real worker, engine and tools; only the model's weights are a script."""

from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.worker import AgentWorker
from ds4agent.requests import Mode, Start
from ds4agent.tui.app import AgentApp
from ds4agent.tui.widgets.composer import Composer
from tests.fakes.scripted_model import scripted_engine
from tests.tui.screen import until, until_shown

EDIT = (
    '<tool_call>\n{"name": "write", "arguments": {"path": "a.txt", "content": "hello\\n"}}\n'
    "</tool_call>"
)


async def test_a_turn_with_a_change_that_was_approved_is_saved_and_resumed(tmp_path):
    folder, store = tmp_path / "project", tmp_path / "store"
    folder.mkdir()
    settings = AgentSettings(folder, mode=Mode.ASK, store_folder=store)
    replies = [f"I will write it.\n{EDIT}", "It is **written**."]

    def open_engine(progress, cancel):
        return scripted_engine(replies, ctx=16384)

    worker = AgentWorker(open_engine, settings, Start())
    app = AgentApp(worker)
    async with app.run_test(size=(100, 40)) as pilot:
        app.query_one(Composer).set_text("Write a.txt")
        await pilot.press("enter")
        await until_shown(pilot, "Allow", "a.txt", "+hello")
        await until(pilot, lambda: not app.query_one("#approval").is_guarded)
        await pilot.press("y")
        await until_shown(pilot, "▌ Write a.txt", "✓ write", "It is written.", "ready")
        assert (folder / "a.txt").read_text(encoding="utf-8") == "hello\n"
        await pilot.press("ctrl+d")
        await until(pilot, lambda: app.controller.is_closed)
    assert app.resume_id

    again = AgentApp(AgentWorker(open_engine, settings, Start(resume_id=app.resume_id[:8])))
    async with again.run_test(size=(100, 40)) as pilot:
        shown = ("▌ Write a.txt", "✓ write", "+hello", "It is written.", "nothing read again")
        await until_shown(pilot, *shown)
        await pilot.press("ctrl+d")
        await until(pilot, lambda: again.controller.is_closed)
