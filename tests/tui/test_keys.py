import pytest

from ds4agent.events import Phase, PhaseChanged, QueueChanged, TextDelta, TurnStarted
from ds4agent.requests import Mode, Quit, SetMode, Submit, TakeBackQueued
from ds4agent.tui.widgets.composer import Composer
from tests.tui.screen import rows, until, until_gone, until_shown


def composer(app) -> Composer:
    return app.screen_stack[0].query_one(Composer)


async def test_enter_sends_the_text_and_empties_the_composer(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: worker.commands)
        assert worker.commands == [Submit("hello")]
        assert composer(app).text == ""


async def test_enter_on_an_empty_composer_sends_nothing(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("enter", "space", "enter")
        assert worker.commands == []


async def test_a_message_typed_while_the_model_loads_is_sent(open_screen):
    async with open_screen(PhaseChanged(Phase.LOADING, "tiny")) as (app, worker, pilot):
        await until_shown(pilot, "loading")
        await pilot.press(*"hi", "enter")
        await until(pilot, lambda: worker.commands == [Submit("hi")])


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter"])
async def test_newline_keys_insert_a_line(open_screen, key):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("a", key, "b", "enter")
        await until(pilot, lambda: worker.commands)
        assert worker.commands == [Submit("a\nb")]


async def test_trailing_backslash_and_enter_is_a_newline(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("a", "backslash", "enter", "b")
        assert composer(app).text == "a\nb"
        assert worker.commands == []


async def test_composer_grows_to_ten_lines_and_no_further(open_screen):
    async with open_screen() as (app, worker, pilot):
        await until(pilot, lambda: composer(app).content_size.height == 1)
        composer(app).set_text("\n" * 4)
        await until(pilot, lambda: composer(app).content_size.height == 5)
        composer(app).set_text("\n" * 24)
        await until(pilot, lambda: composer(app).content_size.height == 10)


async def test_up_and_down_walk_through_what_was_sent_and_keep_the_draft(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).remember("one")
        await pilot.press("2", "enter", "d")
        await pilot.press("up")
        assert composer(app).text == "2"
        await pilot.press("up", "up")
        assert composer(app).text == "one"
        await pilot.press("down", "down")
        assert composer(app).text == "d"


async def test_up_inside_a_text_moves_the_cursor_first(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"old", "enter", "a", "ctrl+j", "b", "up")
        assert composer(app).text == "a\nb"
        await pilot.press("up")
        assert composer(app).text == "old"


async def test_queue_is_listed_and_up_takes_the_newest_back(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.is_busy = True
        await pilot.press(*"one", "enter", *"two", "enter")
        await until_shown(pilot, "queued: one", "queued: two", "2 queued")
        await pilot.press("up")
        await until(pilot, lambda: composer(app).text == "two")
        assert worker.commands[-1] == TakeBackQueued()
        await until_gone(pilot, "queued: two")
        await until_shown(pilot, "queued: one")


async def test_a_message_delivered_before_it_came_back_is_not_left_in_the_composer(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(QueueChanged(("hurry",)))
        await until_shown(pilot, "queued: hurry")
        await pilot.press("up")  # this worker holds nothing to take back: it was delivered
        worker.emit(QueueChanged(()), TurnStarted("hurry"))
        await until_gone(pilot, "queued")
        await until(pilot, lambda: composer(app).text == "")


async def test_taking_back_what_was_delivered_meanwhile_does_nothing(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(Composer.TakeBackAsked())
        await pilot.press("x")
        await until(pilot, lambda: composer(app).text == "x")
        assert TakeBackQueued() not in worker.commands


async def test_escape_interrupts_a_running_turn_and_keeps_the_text(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"), PhaseChanged(Phase.GENERATING), TextDelta("partial"))
        await until_shown(pilot, "partial")
        await pilot.press(*"next", "escape")
        assert worker.interrupts == 1
        assert composer(app).text == "next"


async def test_escape_when_idle_does_nothing(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"text", "escape")
        assert worker.interrupts == 0
        assert composer(app).text == "text"


async def test_ctrl_c_copies_selected_text_and_does_nothing_else(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"), PhaseChanged(Phase.GENERATING))
        await until_shown(pilot, "generating")
        await pilot.press(*"copy me", "shift+home", "ctrl+c")
        assert app.clipboard == "copy me"
        assert worker.interrupts == 0
        assert composer(app).text == "copy me"


async def test_ctrl_c_interrupts_a_running_turn(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"), PhaseChanged(Phase.GENERATING))
        await until_shown(pilot, "generating")
        await pilot.press("x", "ctrl+c")
        assert worker.interrupts == 1
        assert composer(app).text == "x"


async def test_ctrl_c_clears_the_composer_and_up_brings_it_back(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"precious", "ctrl+c")
        assert composer(app).text == ""
        assert "again to quit" not in "".join(rows(app))
        await pilot.press("up")
        assert composer(app).text == "precious"


async def test_ctrl_c_twice_quits_and_leaves_the_resume_id(open_screen):
    async with open_screen(resume_id="ab" * 20) as (app, worker, pilot):
        await pilot.press("ctrl+c")
        await until_shown(pilot, "again to quit")
        assert worker.commands == []
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.controller.is_closed)
        assert worker.commands == [Quit()]
        assert app.resume_id == "ab" * 20
        assert app.return_value == 0


async def test_ctrl_c_twice_stops_loading(open_screen):
    async with open_screen(PhaseChanged(Phase.LOADING)) as (app, worker, pilot):
        await pilot.press("ctrl+c")
        await until_shown(pilot, "again to stop loading and quit")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: worker.commands == [Quit()])


async def test_ctrl_c_twice_too_slowly_does_not_quit(open_screen, monkeypatch):
    monkeypatch.setattr("ds4agent.tui.app.QUIT_AGAIN_S", 0.05)
    async with open_screen() as (app, worker, pilot):
        await pilot.press("ctrl+c")
        await until_gone(pilot, "again to quit")
        await pilot.press("ctrl+c")
        assert worker.commands == []


async def test_ctrl_d_quits_only_on_an_empty_composer(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("x", "ctrl+d")
        assert worker.commands == []
        await pilot.press("ctrl+c", "ctrl+d")
        await until(pilot, lambda: worker.commands == [Quit()])


async def test_shift_tab_cycles_the_modes(open_screen):
    async with open_screen() as (app, worker, pilot):
        for mode in (Mode.AUTO, Mode.PLAN, Mode.ASK):
            await pilot.press("shift+tab")
            await until(pilot, lambda mode=mode: rows(app)[-1].split()[0] == mode.value)
        assert worker.commands == [SetMode(Mode.AUTO), SetMode(Mode.PLAN), SetMode(Mode.ASK)]


async def test_typing_with_a_card_focused_goes_to_the_composer(open_screen):
    async with open_screen() as (app, worker, pilot):
        app.set_focus(None)
        await pilot.press(*"hey")
        assert composer(app).text == "hey"
        assert composer(app).has_focus


async def test_paste_with_newlines_stays_text_without_control_characters(open_screen):
    from textual.events import Paste

    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(Paste("one\r\ntwo\x1b[31m\n"))
        await until(pilot, lambda: composer(app).text == "one\ntwo\n")
        assert worker.commands == []
