"""Control sequences never reach a screen, however they are cut."""

import queue
import time

import pytest

from ds4agent.agent.event_stream import EventStream
from ds4agent.events import (
    GenerationProgress,
    ModeChanged,
    Notice,
    TextDelta,
    ToolCallReady,
    ToolOutput,
)
from ds4agent.plain import PlainStream, one_line, plain, plain_event
from ds4agent.requests import Mode

CASES = [
    ("plain text\twith\nlines", "plain text\twith\nlines"),
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07after", "after"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("a\x9b2Jb", "ab"),
    ("\x1bcreset", "reset"),
    ("bell\x07 back\x08space\x00", "bell backspace"),
    ("one\r\ntwo\rthree", "one\ntwo\nthree"),
    ("rm \u202efdp.exe\u202c", "rm fdp.exe"),
    ("\x1bP1$r0m\x1b\\dcs", "dcs"),
    ("naïve – 日本 👍🏽", "naïve – 日本 👍🏽"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_plain(text: str, expected: str) -> None:
    assert plain(text) == expected


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_stream_gives_the_same_at_every_cut(text: str, expected: str) -> None:
    for cut in range(len(text) + 1):
        stream = PlainStream()
        joined = stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish()
        assert joined == expected, cut


def test_stream_when_a_sequence_never_ends_does_not_swallow_everything() -> None:
    stream = PlainStream()
    text = stream.feed("\x1b]0;" + "x" * 1000) + stream.feed("more") + stream.finish()
    assert text.endswith("xmore") and "\x1b" not in text


def test_one_line_when_long_or_broken_is_one_short_line() -> None:
    assert one_line("a\n  b\x1b[1m c") == "a b c"
    assert len(one_line("x" * 500, 40)) == 40


def test_event_when_nested_values_hold_sequences_is_clean_and_keeps_types() -> None:
    event = ToolCallReady("call-1", "wri\x1b[0mte", {"a\x07": ["\x1b[1mb", 3]}, "t\x00")
    assert plain_event(event) == ToolCallReady("call-1", "write", {"a": ["b", 3]}, "t")
    mode = ModeChanged(Mode.PLAN)
    assert plain_event(mode).mode is Mode.PLAN


def test_event_stream_keeps_the_order_of_texts_and_events() -> None:
    events: queue.Queue = queue.Queue()
    stream = EventStream(events)
    for piece in ("a", "b", "\x1b["):
        stream.text(piece)
    stream.emit(GenerationProgress(1, 1.0, 1))
    stream.text("31mc")
    stream.tool_output("call-1", "out")
    stream.tool_output("call-2", "other")
    stream.emit(Notice("end"))
    stream.close()
    seen = list(events.queue)
    progress = seen.index(GenerationProgress(1, 1.0, 1))
    assert "".join(event.text for event in seen[:progress]) == "ab"
    assert seen[progress + 1 :] == [
        TextDelta("c"),
        ToolOutput("call-1", "out"),
        ToolOutput("call-2", "other"),
        Notice("end"),
    ]


def test_event_stream_when_nothing_follows_hands_text_over_soon() -> None:
    events: queue.Queue = queue.Queue()
    stream = EventStream(events)
    stream.text("first")
    stream.text("second")  # within the interval: waits for the flusher
    texts = events.get(timeout=5).text
    if texts == "first":
        texts += events.get(timeout=5).text
    assert texts == "firstsecond"
    stream.close()


@pytest.mark.parametrize("start", ["\x90", "\x98", "\x9d", "\x1b]", "\x1bP", "\x9b", "\x1b"])
@pytest.mark.parametrize("end", ["", "\n", "\x9b"])
def test_cost_of_many_beginnings_is_linear(start: str, end: str) -> None:
    text = start * 50_000 + end
    began = time.process_time()
    assert start not in plain(text)
    assert start not in PlainStream().feed(text)
    assert time.process_time() - began < 2.0  # some 0.1 s; quadratic, it is 40 s
