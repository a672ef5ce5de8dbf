"""Stop sequences: the same end at every cut, only in the answer."""

import pytest

from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import CallComplete, Text, Thinking, ToolSpec
from engine.chat.stop_sequences import StopSequences
from engine.chat.syntax import Syntax
from tests.engine.chat.streams import run_all_splits

TOOLS = (ToolSpec("status", "", {}),)
CALL = '<｜DSML｜tool_calls><｜DSML｜invoke name="status"></｜DSML｜invoke></｜DSML｜tool_calls>'


def read(raw: str, *sequences: str, thinking: bool = False) -> tuple[list, bool]:
    return run_all_splits(
        lambda: StopSequences(DsmlParser(TOOLS, thinking), sequences), raw.encode()
    )


@pytest.mark.parametrize(
    "raw, sequences, text, stops",
    [
        ("one STOP two", ["STOP"], "one ", True),
        ("one STO", ["STOP"], "one STO", False),
        ("aSSTOPb", ["STOP"], "aS", True),
        ("xabcy", ["abcd", "bc"], "xa", True),  # what is complete first wins, at every cut
        ("xabcd", ["abcd", "bc"], "xa", True),
        ("xabcd", ["abcd", "cd"], "x", True),  # complete at the same place: the longer one
        ("a\n\nb", ["\n\n"], "a", True),
        ("日本語", ["本"], "日", True),
        ("text", [""], "text", False),
        ("STOP", ["STOP"], "", True),
    ],
)
def test_the_text_ends_before_the_sequence(raw: str, sequences, text: str, stops: bool) -> None:
    events, was_finished = read(raw, *sequences)
    assert "".join(event.text for event in events) == text
    assert was_finished is stops


def test_thinking_and_calls_are_not_searched() -> None:
    events, _ = read(f"a status</think>b\n\n{CALL}", "status", thinking=True)
    assert events[:2] == [Thinking("a status"), Text("b")]
    assert isinstance(events[-1], CallComplete)


def test_held_text_comes_before_the_call_that_follows_it() -> None:
    events, _ = read(f"b st{CALL}", "status")
    assert events[0] == Text("b st") and isinstance(events[-1], CallComplete)


def test_after_the_end_nothing_counts() -> None:
    parser = StopSequences(DsmlParser(TOOLS, False), ["."])
    parser.feed(b"a.")
    assert parser.finished and parser.found == "."
    assert parser.feed(CALL.encode()) == [] and parser.syntax is Syntax.OUTSIDE
    assert parser.finish(True) == []
