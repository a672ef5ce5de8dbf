import pytest

from ds4agent.errors import UsageError
from ds4agent.record.record import Record
from ds4agent.requests import Mode
from ds4agent.screen_requests import What
from ds4agent.screen_rules import TakingBack, next_mode, text_to_copy


def test_shift_tab_goes_through_three_modes_and_out_of_the_fourth():
    assert [next_mode(mode) for mode in (Mode.PLAN, Mode.ASK, Mode.AUTO)] == [
        Mode.ASK,
        Mode.AUTO,
        Mode.PLAN,
    ]
    assert next_mode(None) is Mode.ASK
    assert next_mode(Mode.FULL) is Mode.PLAN


@pytest.mark.parametrize("what", What)
def test_nothing_to_copy_is_told_by_name(what):
    with pytest.raises(UsageError, match="there is no .* to copy yet"):
        text_to_copy(Record(), what)


def test_a_message_comes_back_when_the_queue_lost_just_that():
    taking = TakingBack()
    assert not taking.ask(())
    assert taking.ask(("one", "two"))
    assert taking.came_back(("one", "two"), ("one", "two", "three")) == ""
    assert taking.came_back(("one", "two"), ()) == ""  # delivered, all of it
    assert taking.came_back(("one", "two"), ("one",)) == "two"
    assert taking.ask(("one", "two"), "one")
    assert taking.came_back(("one", "two"), ("two",)) == "one"


def test_a_message_that_was_delivered_first_does_not_come_back():
    taking = TakingBack()
    taking.ask(("one", "two"))
    assert taking.was_delivered("one\n\ntwo") == "two"
    assert taking.came_back(("two",), ()) == ""
