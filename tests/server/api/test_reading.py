"""From parsers to pieces: strict arguments, broken and cut-off calls, stop texts, split letters."""

import json

import pytest

from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece, Usage
from ds4agent.server.api.reading import ReplyReader
from ds4agent.server.api.replies import reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.chatml_parser import ChatmlParser
from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import CallArguments, StreamParser, Text, ToolSpec
from engine.chat.stop_sequences import StopSequences
from tests.server.api.events import read_events

TOOL = ToolSpec("read", "", {"type": "object", "properties": {"path": {"type": "string"}}})
MODEL = ServedModel("model", 4096)
PARAMETER = '<｜DSML｜parameter name="path">a</｜DSML｜parameter>'
ONE = f'<｜DSML｜invoke name="read">{PARAMETER}</｜DSML｜invoke>'
OPEN, CLOSE = "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"


def read(
    parser: StreamParser, text: str, finish: Finish = Finish.STOP, *, streams: bool = True
) -> tuple[list[Piece], Finish, ReplyReader]:
    """Read a reply byte by byte; neighbouring texts and arguments are joined."""
    reader = ReplyReader(Api.CHAT, streams=streams)
    pieces: list[Piece] = []
    for byte in text.encode():
        pieces += reader.take(parser.feed(bytes([byte])))
        if parser.finished:
            break
    last, finish = reader.end(parser.finish(stopped=finish is Finish.STOP), finish)
    result: list[Piece] = []
    for piece in [*pieces, *last]:
        old = result[-1] if result else None
        if isinstance(piece, Text) and isinstance(old, Text):
            result[-1] = Text(old.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(old, CallArguments):
            result[-1] = CallArguments(piece.index, old.text + piece.text)
        else:
            result.append(piece)
    return result, finish, reader


def arguments(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces if isinstance(piece, CallArguments)]


TOLERATED = {
    "a line break in a text": ('{"path": "a\nb\tc"}', '{"path": "a\\nb\\tc"}'),
    "a last comma": ('{"path": "a", }', '{"path": "a"}'),
    "a comma in a text": ('{"path": "a,}"}', '{"path": "a,}"}'),
    "a comma in a list": ('{"path": [1 , 2 , ]}', '{"path": [1 , 2 ]}'),
    "an escaped quote": ('{"path": "\\"a\\\\"}', '{"path": "\\"a\\\\"}'),
    "a text of JSON": ('"{\\"path\\": \\"a\\"}"', '{"path": "a"}'),
    "nothing": ("null", "{}"),
}


@pytest.mark.parametrize("name", TOLERATED)
def test_arguments_that_a_parser_tolerates_become_strict_json(name: str) -> None:
    written, expected = TOLERATED[name]
    text = f'<tool_call>\n{{"name": "read", "arguments": {written}}}\n</tool_call>'
    pieces, finish, reader = read(ChatmlParser([TOOL]), text)
    assert arguments(pieces) == [expected] and json.loads(expected) is not None
    assert finish is Finish.TOOL_CALLS and pieces[-1] == CallClosed(0)
    assert reader.block == text and len(reader.call_ids) == 1


def test_arguments_are_given_out_while_they_are_written() -> None:
    reader, parser = ReplyReader(Api.CHAT, streams=True), DsmlParser([TOOL], False)
    head = OPEN + '<｜DSML｜invoke name="read"><｜DSML｜parameter name="path" string="true">abc'
    pieces = reader.take(parser.feed(head.encode()))
    assert "".join(arguments(pieces)) == '{"path": "abc'
    assert isinstance(pieces[0], CallOpened) and not reader.call_ids


def test_calls_of_one_block_are_closed_one_by_one() -> None:
    pieces, finish, reader = read(DsmlParser([TOOL], False), OPEN + ONE + ONE + CLOSE)
    kinds = [type(piece).__name__ for piece in pieces]
    assert kinds == ["CallOpened", "CallArguments", "CallClosed"] * 2
    assert finish is Finish.TOOL_CALLS and [p.call_id for p in pieces[::3]] == reader.call_ids


BROKEN = OPEN + ONE + '<｜DSML｜invoke name="read">what?'


def test_broken_call_ends_a_stream_in_an_error() -> None:
    pieces, finish, reader = read(DsmlParser([TOOL], False), BROKEN)
    assert finish is Finish.ERROR and pieces[-1] == CallClosed(1, is_whole=False)
    assert not reader.call_ids and not reader.block and "only tags" in reader.reason


def test_broken_call_is_text_where_the_client_has_seen_nothing_of_it() -> None:
    pieces, finish, reader = read(DsmlParser([TOOL], False), BROKEN, streams=False)
    assert finish is Finish.STOP and not reader.call_ids
    assert pieces[-1].text.startswith(OPEN + ONE)
    unknown = OPEN + '<｜DSML｜invoke name="rm">'
    pieces, finish, _ = read(DsmlParser([TOOL], False), unknown)
    assert (pieces, finish) == ([Text(unknown)], Finish.STOP)


@pytest.mark.parametrize("end", range(len(OPEN), len(OPEN + ONE)))
def test_call_that_the_limit_cuts_off_is_never_whole(end: int) -> None:
    for streams in (True, False):
        text = (OPEN + ONE)[:end]
        pieces, finish, reader = read(
            DsmlParser([TOOL], False), text, Finish.LENGTH, streams=streams
        )
        assert finish is Finish.LENGTH and not reader.call_ids
        assert not any(isinstance(piece, Text) for piece in pieces)  # no tag is ever text
        closed = [piece.is_whole for piece in pieces if isinstance(piece, CallClosed)]
        assert closed == [False] * sum(isinstance(piece, CallOpened) for piece in pieces)


def test_cut_off_call_is_in_no_whole_reply() -> None:
    pieces, finish, _ = read(DsmlParser([TOOL], False), OPEN + ONE[:60], Finish.LENGTH)
    for api, body in BODIES.items():
        reply = reply_to(parse(api, body, MODEL), "id", 0)
        for piece in pieces:
            reply.piece(piece)
        assert "call_" not in json.dumps(reply.whole(finish, Usage(1))), api


def test_closing_tags_that_the_model_forgot_are_no_error() -> None:
    pieces, finish, reader = read(DsmlParser([TOOL], False), OPEN + ONE)
    assert finish is Finish.TOOL_CALLS and pieces[-1] == CallClosed(0) and reader.call_ids


BODIES = {
    Api.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"input": "hi"},
    Api.MESSAGES: {"messages": [{"role": "user", "content": "hi"}]},
    Api.COMPLETIONS: {"prompt": "hi"},
}


@pytest.mark.parametrize("api", list(Api))
def test_stop_text_across_pieces_is_never_sent(api: Api) -> None:
    text = "é one STO two STOP three"
    for stops in (["STOP"], ["TOP", "STOP three"], ["STOP", "STOP"]):
        parser = StopSequences(DsmlParser([], False), stops)
        pieces, finish, _ = read(parser, text)
        assert parser.found and finish is Finish.STOP  # the worker says STOP_SEQUENCE by `found`
        reply = reply_to(parse(api, BODIES[api], MODEL), "id", 0)
        sent = [*reply.start(Usage(1)), *(e for p in pieces for e in reply.piece(p))]
        sent += reply.finish(Finish.STOP_SEQUENCE, Usage(1), parser.found)
        assert "three" not in b"".join(sent).decode()
        whole = json.dumps(reply.whole(Finish.STOP_SEQUENCE, Usage(1), parser.found))
        kept = "é one STO two S" if stops[0] == "TOP" else "é one STO two "
        assert json.dumps(kept)[1:-1] + '"' in whole


@pytest.mark.parametrize("api", list(Api))
def test_letters_that_are_split_over_tokens_are_sent_whole(api: Api) -> None:
    text = "é漢😀" * 20
    reply = reply_to(parse(api, BODIES[api], MODEL), "id", 0)
    parser, reader = ChatmlParser([]), ReplyReader(api)
    sent = reply.start(Usage(1))
    for byte in text.encode():
        for piece in reader.take(parser.feed(bytes([byte]))):
            sent += reply.piece(piece)
    sent += reply.finish(Finish.STOP, Usage(1))
    for chunk in sent:
        assert "\ufffd" not in chunk.decode("utf-8")
    assert json.dumps(text)[1:-1] in json.dumps(reply.whole(Finish.STOP, Usage(1)))
    assert len(read_events(sent)) >= 60
