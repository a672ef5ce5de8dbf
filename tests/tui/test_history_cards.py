"""Cards of a saved conversation: how a call went is shown where it was kept."""

from ds4agent.events import HistoryEntry
from ds4agent.tui.widgets.history import recipes
from ds4agent.tui.widgets.tool_card import Call, CallState


def cards(*results: HistoryEntry) -> list[Call]:
    calls = [HistoryEntry("call", "{}", result.name, {"path": "a.py"}) for result in results]
    return [recipe.args[0] for recipe in recipes([*calls, *results])]


def test_a_result_that_was_kept_is_shown_as_it_was() -> None:
    kept = HistoryEntry("result", "out", "edit", ok=True, title="Edit a.py", diff="-a\n+b\n")
    failed = HistoryEntry("result", "no such file", "bash", ok=False, exit_code=2)
    edited, ran = cards(kept, failed)
    assert (edited.state, edited.title, edited.diff) == (CallState.OK, "Edit a.py", "-a\n+b\n")
    assert (ran.state, ran.exit_code, ran.title) == (CallState.FAILED, 2, "bash: a.py")


def test_one_that_was_not_kept_says_nothing_of_success() -> None:
    (call,) = cards(HistoryEntry("result", "out", "read"))
    assert (call.state, call.output, call.title) == (CallState.DONE, "out", "read: a.py")
