"""Replies as they stream: recorded pieces, and random damage at random cuts."""

import json
import random

import pytest

from engine.chat.chatml_parser import ChatmlParser
from engine.chat.dsml_parser import DsmlParser
from engine.chat.dsml_tags import FAMILIES
from engine.chat.format import CallArguments, CallComplete, CallStarted, Text, Thinking, ToolSpec
from engine.chat.stop_sequences import StopSequences
from engine.chat.syntax import Syntax
from tests.engine.chat.streams import mutations, random_cuts, run, run_all_splits
from tests.engine.chat.test_dsml_parser import CASES, TOOLS, recorded

STREAMS = {case["name"]: case for case in recorded("streams") if case["protocol"] == "chat"}
# The recording runs a block that is quoted in thinking; for us it is thinking.
IN_THINKING = STREAMS.pop("dsml_inside_thinking_closed")
# Recorded with half a call at the end: for us the block is malformed.
CUT_OFF = {name for name in STREAMS if "trunc" in name or "length" in name}
CHATML_TOOLS = (ToolSpec("read", "", {}), ToolSpec("ls", "", {}))
CHATML_SEEDS = [
    b'<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>',
    b'Text\n```json\n{"name": "read", "arguments": {"path": "a\\n"}}\n```\n',
    '{"name": "ls", "arguments": {}} </tool_call> «x»'.encode(),
    b'<think>\nhm\n</think>\n\nfine: {"a": [1, {}]}',
    b'<tool_call>{{"name": "ls", "arguments": {}}}</tool_call>',
]


@pytest.mark.parametrize("case", STREAMS.values(), ids=STREAMS)
def test_recorded_stream_gives_the_recorded_message(case: dict) -> None:
    names = {
        call["function"]["name"]
        for call in case["final"]["choices"][0]["message"].get("tool_calls") or ()
    }
    assert names <= {tool.name for tool in TOOLS}
    pieces = [piece.encode() for piece in case["pieces"]]
    events, _ = run(
        lambda: StopSequences(DsmlParser(TOOLS, case["thinking"]), case["stop_sequences"]), pieces
    )
    message = case["final"]["choices"][0]["message"]
    texts = {
        kind: "".join(e.text for e in events if isinstance(e, kind)) for kind in (Text, Thinking)
    }
    assert texts[Text] == (message.get("content") or "")
    assert texts[Thinking] == (message.get("reasoning_content") or "")
    calls = message.get("tool_calls") or []
    assert [e.name for e in events if isinstance(e, CallStarted)] == [
        call["function"]["name"] for call in calls
    ]
    for index, call in enumerate(calls):
        shown = "".join(e.text for e in events if isinstance(e, CallArguments) and e.index == index)
        assert shown == call["function"]["arguments"]
    completed = [e.call.arguments for e in events if isinstance(e, CallComplete)]
    if case["name"] in CUT_OFF:
        assert completed == []
    else:
        assert completed == [json.loads(call["function"]["arguments"]) for call in calls]


@pytest.mark.parametrize("case", [*STREAMS.values(), IN_THINKING], ids=lambda case: case["name"])
def test_recorded_stream_at_every_split(case: dict) -> None:
    def make() -> StopSequences:
        return StopSequences(DsmlParser(TOOLS, case["thinking"]), case["stop_sequences"])

    pieces = [piece.encode() for piece in case["pieces"]]
    assert run_all_splits(make, b"".join(pieces)) == run(make, pieces)


def test_recorded_stream_with_a_block_in_thinking_is_no_call() -> None:
    pieces = [piece.encode() for piece in IN_THINKING["pieces"]]
    thought, answer = run(lambda: DsmlParser(TOOLS, True), pieces)[0]
    assert "<｜DSML｜tool_calls>" in thought.text and answer == Text("Answer.")


def check_damaged(n: int, seed: int) -> None:
    """Damage replies, cut them anywhere: the same events, no exception, known tools only."""
    chooser = random.Random(seed)
    dsml = [case["input"]["raw"].encode() for case in CASES.values()]
    known = {tool.name for tool in (*TOOLS, *CHATML_TOOLS)}
    for number, raw in enumerate(mutations([*dsml, *CHATML_SEEDS], n, seed)):
        is_dsml = number % 4 > 0
        thinking, stopped = chooser.random() < 0.3, chooser.random() < 0.5
        families = tuple(FAMILIES.values())[: 2 + 2 * (number % 8 == 1)]
        sequences = ["\n\n", "ok"] if number % 10 == 1 else []

        def make():
            if is_dsml:  # noqa: B023 used at once
                parser = DsmlParser(TOOLS, thinking, families=families)  # noqa: B023
            else:
                parser = ChatmlParser(CHATML_TOOLS)
            return StopSequences(parser, sequences) if sequences else parser  # noqa: B023

        whole = run(make, [raw], stopped=stopped)
        assert run(make, random_cuts(raw, chooser), stopped=stopped) == whole, raw
        parser = make()
        parser.feed(raw)
        assert isinstance(parser.syntax, Syntax)
        for event in whole[0]:
            if isinstance(event, CallComplete):
                assert event.call.name in known and isinstance(event.call.arguments, dict)


def test_damaged_replies_at_random_cuts() -> None:
    check_damaged(1500, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_hundred_thousand_damaged_replies_at_random_cuts(seed: int) -> None:
    check_damaged(10_000, seed)
