"""Replies of three interfaces, event by event, as deepseek-recipe writes them."""

import json
import lzma
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ds4agent.server.api import reading
from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece, Reply, Usage
from ds4agent.server.api.reading import ReplyReader
from ds4agent.server.api.replies import reply_to
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import CallArguments, Thinking, ToolSpec
from engine.chat.stop_sequences import StopSequences
from tests.server.api.events import DONE, forget_newer_fields, joined, read_events

PATH = Path(__file__).parents[2] / "fixtures" / "prompt" / "streams.json.xz"
CASES = json.loads(lzma.open(PATH).read())["cases"]
APIS = {"chat": Api.CHAT, "responses": Api.RESPONSES, "messages": Api.MESSAGES}
MODEL = ServedModel.of_format("MODEL", 1 << 20, "deepseek_v4", can_think=True)
NAMES = ("read_file", "f", "write", "bash", "edit")
TOOLS = [ToolSpec(name, "", {}) for name in NAMES]
FILE = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
DECLARED = {"type": "function", "name": "f", "description": "Read a file", "parameters": FILE}
# There the recipe runs a call that stands inside thinking; our parser takes it for thinking, so
# this reply is given in pieces as the recipe reads it.
IN_THINKING = "dsml_inside_thinking_closed"
AS_THE_RECIPE_READS_IT = [
    Thinking("I could write "),
    CallOpened(0, "call_{0}", "read_file"),
    CallArguments(0, '{"path": "src/main.rs"}'),
    CallClosed(0),
]


def by_name(case: dict) -> str:
    return f"{case['name']}-{case['protocol']}"


def request_of(case: dict) -> ApiRequest:
    body: dict[str, Any] = {"model": "MODEL", "stream": True}
    if case["protocol"] == "responses":
        body |= {"input": "hi", "tools": [{**DECLARED, "strict": None}]}
        body["reasoning"] = {"effort": "high" if case["thinking"] else "none", "summary": "auto"}
    else:
        body |= {"messages": [{"role": "user", "content": "hi"}], "thinking": {"type": "disabled"}}
        if case["thinking"]:
            body["thinking"] = {"type": "enabled"}
    return parse(APIS[case["protocol"]], body, MODEL)


def pieces_of(case: dict) -> tuple[list[list[Piece]], Finish, str]:
    """Run the sampled pieces through parser and reader: the pieces of each, how it ended."""
    if case["name"] == IN_THINKING:
        return [[piece] for piece in AS_THE_RECIPE_READS_IT], Finish.TOOL_CALLS, ""
    parser = StopSequences(DsmlParser(TOOLS, case["thinking"]), case["stop_sequences"])
    reader = ReplyReader(APIS[case["protocol"]], streams=True)
    groups = [reader.take(parser.feed(piece.encode())) for piece in case["pieces"]]
    finish = Finish.STOP_SEQUENCE if parser.found else Finish(case["finish"])
    last, finish = reader.end(parser.finish(case["finish"] == "stop"), finish)
    return [*groups, last], finish, parser.found


def usage_of(case: dict) -> Usage:
    usage = case["final"]["usage"]
    return Usage(100, 64, usage.get("completion_tokens", usage.get("output_tokens")))


def reply_of(case: dict) -> Reply:
    return reply_to(request_of(case), "ID", 0, clock=lambda: 0.0)


@pytest.fixture(autouse=True)
def numbered_ids(monkeypatch) -> None:
    numbers = count()
    monkeypatch.setattr(reading, "new_call_id", lambda prefix: f"call_{{{next(numbers)}}}")


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_events_have_the_structure_and_text_of_the_recipe(case: dict) -> None:
    groups, finish, found = pieces_of(case)
    reply = reply_of(case)
    sent = reply.start(usage_of(case))
    for group in groups:
        for piece in group:
            sent += reply.piece(piece)
    events = read_events(sent + reply.finish(finish, usage_of(case), found))
    if case["done_data"] is not None:
        assert events.pop() == (None, DONE) == (None, case["done_data"])
    assert joined(events) == joined([tuple(event) for event in case["events"]])
    if case["protocol"] == "responses":
        assert [data["sequence_number"] for _, data in events] == list(range(len(events)))


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_whole_reply_is_that_of_the_recipe(case: dict) -> None:
    groups, finish, found = pieces_of(case)
    reply = reply_of(case)
    for group in groups:
        for piece in group:
            reply.piece(piece)
    assert forget_newer_fields(reply.whole(finish, usage_of(case), found)) == case["final"]


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_pieces_of_single_bytes_give_the_same_reply(case: dict) -> None:
    whole = "".join(case["pieces"]).encode()
    parser = StopSequences(DsmlParser(TOOLS, case["thinking"]), case["stop_sequences"])
    reader = ReplyReader(APIS[case["protocol"]], streams=True)
    reply = reply_of(case)
    for byte in whole:
        for piece in reader.take(parser.feed(bytes([byte]))):
            reply.piece(piece)
    finish = Finish.STOP_SEQUENCE if parser.found else Finish(case["finish"])
    last, finish = reader.end(parser.finish(case["finish"] == "stop"), finish)
    for piece in last:
        reply.piece(piece)
    final = forget_newer_fields(reply.whole(finish, usage_of(case), parser.found))
    if case["name"] != IN_THINKING:
        assert final == case["final"]
    else:
        assert "could write" in json.dumps(final) and "tool_use" not in json.dumps(final)


def test_every_fixture_is_used() -> None:
    assert len(CASES) == 33
