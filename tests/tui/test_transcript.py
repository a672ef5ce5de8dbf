import re

from ds4agent.events import HistoryEntry, Phase, PhaseChanged, TextDelta, TurnStarted
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.transcript import MOUNTED_LIMIT, Transcript
from tests.tui.fake_worker import ready
from tests.tui.screen import text, until, until_gone, until_shown

TALK = (
    HistoryEntry("system", "secret system prompt"),
    HistoryEntry("user", "What is in a.py?"),
    HistoryEntry("thinking", "I should look"),
    HistoryEntry("assistant", "Let me **look**."),
    HistoryEntry("call", '{"path": "a.py"}', "read", {"path": "a.py"}),
    HistoryEntry("call", '{"command": "ls"}', "bash", {"command": "ls"}),
    HistoryEntry("result", "import os", "read"),
    HistoryEntry("result", "a.py", "bash"),
    HistoryEntry("assistant", "It imports os."),
)


def long_talk(n_turns: int) -> tuple[HistoryEntry, ...]:
    turns = []
    for n in range(n_turns):
        turns += [HistoryEntry("user", f"question {n}"), HistoryEntry("assistant", f"answer {n}")]
    return tuple(turns)


async def test_restored_conversation_is_shown_with_how_it_was_opened(open_screen):
    opened = ready(history=TALK, title="Reading", context_tokens=900, seconds=0.04)
    async with open_screen(opened, size=(80, 34)) as (app, worker, pilot):
        await until_shown(
            pilot,
            "▌ What is in a.py?",
            "▸ thought, 3 words",
            "Let me look.",
            "· read: a.py",
            "import os",
            "· bash: ls",
            "It imports os.",
            "Opened “Reading”: 900 tokens, nothing read again, 0.0 s",
        )
        assert "secret" not in text(app)
        await pilot.press("up")
        assert app.query_one(Composer).text == "What is in a.py?"


async def test_opening_says_when_tokens_had_to_be_read_again(open_screen):
    async with open_screen(ready(history=TALK, prefilled_tokens=321)) as (app, worker, pilot):
        await until_shown(pilot, "321 tokens read again")


async def test_opening_another_conversation_replaces_the_first(open_screen):
    async with open_screen(ready(history=TALK), size=(80, 34)) as (app, worker, pilot):
        await until_shown(pilot, "It imports os.")
        worker.emit(ready(history=long_talk(1)))
        await until_shown(pilot, "answer 0")
        assert "It imports os." not in text(app)


async def test_scrolling_up_shows_all_of_a_long_history_and_down_again(open_screen):
    async with open_screen(ready(history=long_talk(70))) as (app, worker, pilot):
        await until_shown(pilot, "answer 69")
        transcript = app.query_one(Transcript)
        seen: set[str] = set()
        most = 0
        for key in ("pageup", "pagedown"):
            seen.clear()
            for _ in range(200):
                seen.update(re.findall(r"question \d+|answer \d+", text(app)))
                most = max(most, len(transcript.query("*")))
                done = transcript.scroll_y <= 0 if key == "pageup" else transcript.is_following
                if done and not transcript.n_older * (key == "pageup"):
                    break
                await pilot.press(key)
                await pilot.pause(0.02)
            assert len(seen) == 140, (key, len(seen), text(app))
        assert most <= MOUNTED_LIMIT + 12


async def test_ctrl_up_mounts_a_page_and_end_goes_back(open_screen):
    async with open_screen(ready(history=long_talk(150))) as (app, worker, pilot):
        await until_shown(pilot, "answer 149")
        transcript = app.query_one(Transcript)
        before = transcript.n_older
        await pilot.press("ctrl+up")
        await until(pilot, lambda: transcript.n_older < before)
        for _ in range(60):
            await pilot.press("pageup")
            await pilot.pause(0.01)
        assert transcript.n_newer > 0
        worker.emit(TurnStarted("a new one"), TextDelta("streams on"))
        await until_shown(pilot, "new ↓ End")
        worker.emit(TextDelta(" below"))
        await pilot.press("end")
        await until_shown(pilot, "answer 149", "▌ a new one", "streams on below")
        await until(pilot, lambda: transcript.n_newer == 0)


async def test_mounted_widgets_stay_bounded_while_turns_go_on(open_screen):
    async with open_screen() as (app, worker, pilot):
        transcript = app.query_one(Transcript)
        for n in range(16):
            worker.emit(TurnStarted(f"question {n}"), TextDelta("text\n\n" * 24))
        worker.emit(TurnStarted("the last one"))
        await until_shown(pilot, "the last one")
        assert len(transcript.query("*")) <= MOUNTED_LIMIT
        assert transcript.n_older > 0


async def test_new_text_is_followed_until_the_person_scrolls_up(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"), PhaseChanged(Phase.GENERATING))
        worker.emit(TextDelta("\n\n".join(f"row {n}" for n in range(60))))
        await until_shown(pilot, "row 59")
        await pilot.press("pageup")
        await until_gone(pilot, "row 59")
        worker.emit(TurnStarted("more"))
        await until_shown(pilot, "1 new ↓ End")
        assert "more" not in text(app).replace("more line", "")
        await pilot.press("end")
        await until_shown(pilot, "▌ more")
        await until_gone(pilot, "new ↓ End")


async def test_a_short_conversation_begins_at_the_top(open_screen):
    async with open_screen() as (app, worker, pilot):
        await until_shown(pilot, "type a message")
        assert "type a message" in text(app).split("\n")[1]


async def test_narrow_screens_do_not_crash(open_screen):
    async with open_screen(ready(history=TALK), size=(10, 5)) as (app, worker, pilot):
        worker.emit(TurnStarted("go"), TextDelta("| a | b |\n|---|---|\n| 1 | 2 |\n"))
        await until(pilot, lambda: worker.events.empty())
        for size in ((20, 8), (3, 2), (40, 12), (80, 24)):
            await pilot.resize_terminal(*size)
        await until_shown(pilot, "bubblewrap")
