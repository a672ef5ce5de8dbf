"""What a list of saved conversations shows of one, and taking back any queued message."""

import queue

import pytest

from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.session_preview import readable_end
from ds4agent.events import QueueChanged, SessionPreview, SessionsFound
from ds4agent.requests import (
    EditPermissions,
    ListSessions,
    Mode,
    PreviewSession,
    Save,
    SearchSessions,
    Submit,
    TakeBackQueued,
)
from tests.agent.test_worker import REPLIES

DEEPSEEK = (
    "<｜begin▁of▁sentence｜>Be kind.<｜User｜>hi\x1b[31m<｜Assistant｜>hello<｜end▁of▁sentence｜>"
)
CHATML = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n" * 2


def test_preview_is_the_end_of_what_was_said(open_rig, tmp_path) -> None:
    rig = open_rig(REPLIES, store_folder=tmp_path / "kv")
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    rig.send(PreviewSession(end.session_id))
    preview = rig.wait(SessionPreview)
    assert preview.session_id == end.session_id
    assert "It says alpha." in preview.text and "You: what is in notes.txt?" in preview.text
    assert "<|im_" not in preview.text


def test_preview_of_what_is_not_there_says_so(open_rig, tmp_path) -> None:
    rig = open_rig(REPLIES, store_folder=tmp_path / "kv")
    rig.ready()
    rig.send(PreviewSession("ab" * 20))
    assert "no saved session" in rig.wait(SessionPreview).text


def test_search_finds_by_what_was_said(open_rig, tmp_path) -> None:
    rig = open_rig(REPLIES, store_folder=tmp_path / "kv")
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    rig.send(SearchSessions("READ alpha"))
    assert rig.wait(SessionsFound) == SessionsFound("READ alpha", (end.session_id,))
    rig.send(SearchSessions("zebra"))
    assert rig.wait(SessionsFound).ids == ()


def test_readable_end_names_the_roles_and_is_short() -> None:
    assert readable_end(DEEPSEEK) == "You: hi\nAssistant: hello"
    assert readable_end(CHATML).count("You: hi") == 2
    assert len(readable_end("x" * 100_000)) == 3000


def test_a_running_turn_is_no_obstacle_to_looking_and_to_rules() -> None:
    stream = EventStream(queue.Queue())
    mailbox = Mailbox(stream, Mode.ASK)
    mailbox.opened()
    wanted = [EditPermissions("deny", "bash"), PreviewSession("a"), ListSessions()]
    for command in (wanted[0], Save(), *wanted[1:]):
        mailbox.post(command)
    assert [mailbox.next_look() for _ in range(4)] == [*wanted, None]
    assert mailbox.next() == Save()
    stream.close()


@pytest.mark.parametrize(
    ("text", "left"), [("", ("a", "b", "a")), ("a", ("a", "b", "c")), ("gone", None)]
)
def test_any_queued_message_can_be_taken_back(text: str, left: tuple[str, ...] | None) -> None:
    events: queue.Queue = queue.Queue()
    stream = EventStream(events)
    mailbox = Mailbox(stream, Mode.ASK)  # the model loads: messages are queued
    for message in ("a", "b", "a", "c"):
        mailbox.post(Submit(message))
    while not events.empty():
        events.get()
    mailbox.post(TakeBackQueued(text))
    told = [] if events.empty() else [events.get()]
    assert told == ([] if left is None else [QueueChanged(left)])
    stream.close()
