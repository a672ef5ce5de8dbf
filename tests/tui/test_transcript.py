from ds4agent.events import HistoryEntry, Phase, PhaseChanged, TextDelta, TurnStarted
from ds4agent.tui.widgets.answer import Answer
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


async def test_long_history_mounts_its_end_and_earlier_on_demand(open_screen):
    async with open_screen(ready(history=long_talk(150))) as (app, worker, pilot):
        await until_shown(pilot, "answer 149")
        transcript = app.query_one(Transcript)
        assert len(transcript.query("*")) <= MOUNTED_LIMIT
        before = transcript.n_older
        await pilot.press("ctrl+up")
        await until(pilot, lambda: transcript.n_older < before)
        mounted = {getattr(block, "source", "") for block in transcript.blocks}
        assert "question 130" in mounted
        assert "answer 149" in mounted


async def test_mounted_widgets_stay_bounded_while_turns_go_on(open_screen):
    async with open_screen() as (app, worker, pilot):
        transcript = app.query_one(Transcript)
        for n in range(10):
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


async def test_a_long_answer_goes_on_in_new_widgets_but_never_inside_a_fence(open_screen):
    fence = "```\n" + "code\n\n" * 12 + "```\n\n"
    pieces = [f"paragraph {n}\n\n" for n in range(30)] + fence.splitlines(keepends=True) + ["end"]
    async with open_screen() as (app, worker, pilot):
        for piece in pieces:
            await app.controller.apply([TextDelta(piece)])
        await until_shown(pilot, "end")
        sources = [answer.source for answer in app.query(Answer)]
        assert len(sources) > 1
        assert all(source.count("```") % 2 == 0 for source in sources)
        assert "".join(sources).split() == "".join(pieces).split()
