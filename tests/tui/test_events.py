"""Every event of the worker, and what a person sees of it."""

from ds4agent.events import (
    Closed,
    GenerationProgress,
    LoadProgress,
    MalformedCall,
    MessageDelivered,
    ModeChanged,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    PrefillProgress,
    Saved,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    ToolFinished,
    ToolOutput,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.requests import Mode, Quit
from ds4agent.tui.widgets.tool_card import ToolCard
from tests.tui.fake_worker import ready
from tests.tui.screen import rows, text, until, until_gone, until_shown

DIFF = (
    "--- a/add.py\n+++ b/add.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a\n+    return b\n"
)
USAGE = Usage(generated_tokens=123, prefilled_tokens=45, generate_seconds=12.3)


async def test_loading_shows_how_much_is_read(open_screen):
    opening = (PhaseChanged(Phase.LOADING, "tiny.gguf"), LoadProgress(500_000_000, 1_000_000_000))
    async with open_screen(*opening) as (app, worker, pilot):
        await until_shown(pilot, "loading", "0.5/1.0 GB")


async def test_ready_shows_mode_model_context_and_sandbox(open_screen):
    async with open_screen() as (app, worker, pilot):
        await until_shown(pilot, "ready")
        status = rows(app)[-1]
        for part in ("ask", "tiny-coder", "Q4_K_M", "cpu", "1.2k/8.2k", "bubblewrap"):
            assert part in status


async def test_a_missing_sandbox_is_a_warning_and_stays_in_the_status(open_screen):
    async with open_screen(ready(sandbox="off: no user namespaces")) as (app, worker, pilot):
        await until_shown(pilot, "! No sandbox: no user namespaces")
        assert "sandbox" in rows(app)[-1]


async def test_prefill_and_generation_show_numbers_and_rates(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(PhaseChanged(Phase.PREFILL), PrefillProgress(512, 2048, 800.5))
        await until_shown(pilot, "512/2,048 800.5 tok/s")
        worker.emit(PhaseChanged(Phase.GENERATING), GenerationProgress(77, 9.9, 2500))
        await until_shown(pilot, "77 at 9.9 tok/s", "2.5k/8.2k")


async def test_a_turn_shows_message_thinking_answer_and_its_cost(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("Why is it slow?"), ThinkingDelta("Let me look "))
        await until_shown(pilot, "Why is it slow?", "thinking …", "Let me look")
        worker.emit(ThinkingDelta("closely."), TextDelta("\n\nIt "), TextDelta("is **fast**."))
        await until_shown(pilot, "▸ thought, 4 words", "It is fast.")
        assert "Let me look" not in text(app)
        worker.emit(TurnEnded(Outcome.DONE, USAGE))
        await until_shown(pilot, "123 tokens · 10.0 tok/s · 45 read")
        await pilot.press("ctrl+o")
        await until_shown(pilot, "Let me look closely.")
        await pilot.press("ctrl+o")
        await until_gone(pilot, "Let me look")


async def test_a_command_goes_from_writing_to_its_exit_code(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(ToolCallStarted("call-1", "bash"), ToolCallDelta("call-1", '{"command": "ma'))
        await until_shown(pilot, "○ bash", "writing", '{"command": "ma')
        worker.emit(ToolCallReady("call-1", "bash", {"command": "make"}, "bash: make"))
        await until_shown(pilot, "○ bash: make", "waiting")
        worker.emit(PhaseChanged(Phase.TOOL, "bash"), ToolOutput("call-1", "compiling\n"))
        await until_shown(pilot, "● bash: make", "running", "compiling", "running bash 0 s")
        worker.emit(
            ToolFinished("call-1", "bash", False, "bash: make", "boom\n", "", 2, 1.25),
        )
        await until_shown(pilot, "✗ bash: make", "exit 2", "1.2 s", "boom")


async def test_long_output_is_folded_and_opens_by_click_and_enter(open_screen):
    output = "\n".join(f"line {n}" for n in range(8))
    async with open_screen() as (app, worker, pilot):
        worker.emit(ToolFinished("call-1", "read", True, "read: a.py", output))
        await until_shown(pilot, "✓ read: a.py", "▸ 8 lines")
        assert "line 7" not in text(app)
        await pilot.click(ToolCard)
        await until_shown(pilot, "line 7")
        await pilot.press("enter")
        await until_gone(pilot, "line 7")


async def test_an_edit_shows_its_diff_with_signs(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(ToolFinished("call-1", "edit", True, "edit: add.py", "ok", DIFF))
        await until_shown(pilot, "-    return a", "+    return b", "+1 -1")


async def test_a_long_diff_is_folded_with_a_count(open_screen):
    long_diff = "@@ -0,0 +1,60 @@\n" + "".join(f"+row {n}\n" for n in range(60))
    async with open_screen() as (app, worker, pilot):
        worker.emit(ToolFinished("call-1", "write", True, "write: a", "ok", long_diff))
        await until_shown(pilot, "▸ 37 more lines")
        await pilot.press("ctrl+o")
        await until_shown(pilot, "+row 59")


async def test_a_malformed_call_ends_the_card_that_was_begun(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(ToolCallStarted("call-1", "bash"), MalformedCall("no such tool", "<raw [/]>"))
        await until_shown(pilot, "✗ bash", "can't run", "no such tool", "<raw [/]>")
        assert len(app.query(ToolCard)) == 1


SHOWN = (
    (TurnEnded(Outcome.INTERRUPTED, USAGE), "! Interrupted"),
    (TurnEnded(Outcome.LIMIT, USAGE, error="context is full"), "! context is full"),
    (TurnEnded(Outcome.ERROR, USAGE, error="out of memory"), "✗ out of memory"),
    (Notice("a plain remark"), "a plain remark"),
    (Notice("take care", "warning"), "! take care"),
    (Notice("it broke", "error"), "✗ it broke"),
    (MessageDelivered("by the way"), "▌ by the way"),
    (ModeChanged(Mode.PLAN), "plan · "),
    (PhaseChanged(Phase.SAVING), "saving"),
    (Saved("ab" * 20, "title", 1234, 5_600_000, 0.1, False), "Saved abababab: 1,234 tokens"),
)


async def test_each_event_is_shown(open_screen):
    async with open_screen() as (app, worker, pilot):
        for event, shown in SHOWN:
            assert shown not in text(app)
            worker.emit(event)
            await until_shown(pilot, shown)


async def test_automatic_saving_is_quiet(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(Saved("ab" * 20, "title", 1234, 5_600_000, 0.1, True), Notice("after"))
        await until_shown(pilot, "after")
        assert "Saved" not in text(app)


async def test_a_cut_off_call_is_closed_at_the_end_of_the_turn(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"), ToolCallStarted("call-1", "bash"))
        worker.emit(TurnEnded(Outcome.INTERRUPTED, Usage()))
        await until_shown(pilot, "✗ bash", "not executed")


async def test_a_failed_load_is_shown_and_quit_still_works(open_screen):
    failure = "model file is truncated. Download it again."
    opening = (PhaseChanged(Phase.LOADING), Notice(failure, "error"), PhaseChanged(Phase.FAILED))
    async with open_screen(*opening) as (app, worker, pilot):
        await until_shown(pilot, f"✗ {failure}", "model not loaded")
        await pilot.press(*"/quit", "enter")
        await until(pilot, lambda: app.controller.is_closed)
        assert worker.commands == [Quit()]
        assert app.return_value == 1


async def test_closed_ends_the_screen(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(Closed("cd" * 20))
        await until(pilot, lambda: app.controller.is_closed)
        assert app.resume_id == "cd" * 20
