"""How past calls went, joined to the results of a history."""

from ds4agent.agent.past_events import PastEvents, joined
from ds4agent.events import HistoryEntry, Outcome, ToolFinished, TurnStarted
from ds4agent.requests import Start
from tests.agent.conftest import call


def result(name: str) -> HistoryEntry:
    return HistoryEntry("result", "text", name)


def event(name: str, ok: bool = True, **more) -> dict:
    return {"event": "call", "name": name, "ok": ok, "title": f"{name} it", **more}


def test_results_are_told_from_the_newest_back() -> None:
    history = [HistoryEntry("user", "hi"), result("read"), result("edit"), result("bash")]
    events = [event("edit", False, diff="-a\n+b"), {"event": "turn"}, event("bash", exit_code=3)]
    entries = joined(history, events)
    assert [entry.ok for entry in entries] == [None, None, False, True]
    assert (entries[2].diff, entries[3].exit_code, entries[3].title) == ("-a\n+b", 3, "bash it")


def test_a_result_of_no_call_is_passed_over() -> None:
    history = [result("read"), result("call error"), result("write")]
    entries = joined(history, [event("read", False), event("write")])
    assert [entry.ok for entry in entries] == [False, None, True]


def test_what_was_taken_back_tells_nothing_wrong() -> None:
    history = [result("read"), result("write")]
    entries = joined(history, [event("read"), event("write"), event("bash")])
    assert [entry.ok for entry in entries] == [None, None]


def test_nonsense_in_a_file_is_nothing() -> None:
    bad = {"event": "call", "name": "read", "ok": 1, "title": 5, "diff": None, "exit_code": True}
    (entry,) = joined([result("read")], [bad, {"event": ["call"]}])
    assert entry == result("read")


def test_only_finished_calls_and_turns_are_noted() -> None:
    past = PastEvents()
    past.see(TurnStarted("hi"))
    past.see(ToolFinished("1", "edit", True, "edit a.py", "done", "+" * 50_000, 0, 1.23456))
    past.ended(Outcome.DONE)
    first, second = past.waiting
    assert (first["name"], len(first["diff"]), first["seconds"]) == ("edit", 20_000, 1.235)
    assert (second["event"], second["outcome"]) == ("turn", "done")
    past.kept(1)
    assert past.waiting == (second,)


def test_a_resumed_conversation_tells_how_its_calls_went(open_rig, tmp_path, workspace) -> None:
    replies = [
        call("edit", path="notes.txt", old="alpha", new="gamma"),
        call("read", path="missing.txt"),
        "Done.",
    ]
    rig = open_rig(replies, store_folder=tmp_path / "kv")
    rig.ready()
    end = rig.turn("change it")
    rig.close()
    again = open_rig(replies, store_folder=tmp_path / "kv", start=Start(end.session_id))
    edited, read = (entry for entry in again.ready().history if entry.role == "result")
    assert edited.ok and "+gamma" in edited.diff and "notes.txt" in edited.title
    assert read.ok is False
