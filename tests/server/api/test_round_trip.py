"""A reply that comes back as history becomes exactly the text that was sampled, in each interface:
then the next prompt begins with the tokens that the state already has."""

import json
from typing import Any

import pytest

from ds4agent.server.api.output import Finish, Usage
from ds4agent.server.api.reading import ReplyReader
from ds4agent.server.api.replies import new_reply_id, reply_to
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.chatml import ChatmlFormat
from engine.chat.chatml_layout import ChatmlLayout
from engine.chat.chatml_parser import ChatmlParser
from engine.chat.deepseek_v4_dialect import DEEPSEEK_V4, EOS
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from engine.chat.dsml_parser import DsmlParser
from engine.chat.replay import CallReplay
from engine.chat.segments import join, plain_text, split_marks
from engine.tokenizer import Tokenizer
from tests.server.api.rendering import render

# As many letters as a layout needs to look its control tokens up.
VOCABULARY = (["a", "<|im_start|>", "<|im_end|>"], [], [1, 3, 3], "qwen2", 2)
MODEL = ServedModel.of_format("model", 1 << 16, "deepseek_v4", can_think=True)
LAYOUT = DeepseekV4Layout(DEEPSEEK_V4, escapes_closing_tags=True)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "lines": {}}}
# Not as it would be rendered again: spaces in the JSON, an escape, numbers spelled oddly.
SAMPLED = (
    "both files, é first</think>Opening.\n\n"
    "<｜DSML｜tool_calls>\n"
    '<｜DSML｜invoke name="read">\n'
    '<｜DSML｜parameter name="path" string="true">a "é".rs</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="lines" string="false">[1,1e1, "\\u00e9"]</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
    '<｜DSML｜invoke name="read">\n'
    '<｜DSML｜parameter name="path" string="true">b</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>"
)


def first_body(api: Api) -> dict[str, Any]:
    function = {"name": "read", "description": "Read a file"}
    match api:
        case Api.CHAT:
            tool = {"type": "function", "function": {**function, "parameters": SCHEMA}}
            return {"messages": [{"role": "user", "content": "read"}], "tools": [tool]}
        case Api.RESPONSES:
            tool = {"type": "function", **function, "parameters": SCHEMA}
            item = {"role": "user", "content": [{"type": "input_text", "text": "read"}]}
            return {"input": [item], "tools": [tool], "instructions": "Be brief"}
    tool = {**function, "input_schema": SCHEMA}
    return {
        "max_tokens": 99,
        "system": "Be brief",
        "messages": [{"role": "user", "content": "read"}],
        "tools": [tool],
    }


def next_body(api: Api, body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """Return what a client sends next: it writes arguments in its own way, results in any order."""
    match api:
        case Api.CHAT:
            message = reply["choices"][0]["message"]
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                call["function"]["arguments"] = json.dumps(arguments, sort_keys=True, indent=1)
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": call["id"]}
                for call in reversed(message["tool_calls"])
            ]
            return {**body, "messages": [*body["messages"], message, *results]}
        case Api.RESPONSES:
            ids = [item["call_id"] for item in reply["output"] if "call_id" in item]
            results = [
                {"type": "function_call_output", "call_id": i, "output": i} for i in reversed(ids)
            ]
            return {**body, "input": [*body["input"], *reply["output"], *results]}
    ids = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": i, "content": i} for i in reversed(ids)]
    said = [
        {"role": "assistant", "content": reply["content"]},
        {"role": "user", "content": results},
    ]
    return {**body, "messages": [*body["messages"], *said]}


def answered(request: ApiRequest, sampled: str, replay: CallReplay) -> dict[str, Any]:
    parser, reader = DsmlParser(request.callable_tools, request.thinking), ReplyReader(request.api)
    reply = reply_to(request, new_reply_id(request.api), 0)
    for piece in reader.take(parser.feed(sampled.encode())):
        reply.piece(piece)
    last, finish = reader.end(parser.finish(stopped=True), Finish.STOP)
    assert not last and finish is Finish.TOOL_CALLS
    replay.remember(reader.call_ids, reader.block.encode())
    return reply.whole(finish, Usage(1))


APIS = (Api.CHAT, Api.RESPONSES, Api.MESSAGES)


@pytest.mark.parametrize("api", APIS)
def test_next_prompt_begins_with_all_that_was_sampled(api: Api) -> None:
    replay, body = CallReplay(), first_body(api)
    request = parse(api, body, MODEL)
    before = render(request, LAYOUT, replay)
    reply = json.loads(json.dumps(answered(request, SAMPLED, replay)))
    later = parse(api, next_body(api, body, reply), MODEL)
    after = join(render(later, LAYOUT, replay))
    # Control tokens as well as text: the state has what the model sampled, mark for mark.
    sampled = list(split_marks(SAMPLED + EOS, ("｜DSML｜", "</think>", EOS)))
    expected = join([*before, *sampled])
    assert after[: len(expected)] == expected
    rest = plain_text(after[len(expected) :])
    ids = list(later.result_ids)
    assert rest.startswith("<｜User｜><tool_result>") and rest.endswith("<｜Assistant｜><think>")
    assert rest.index(ids[1]) < rest.index(ids[0])  # in the order of the calls


@pytest.mark.parametrize("api", APIS)
def test_calls_that_are_not_known_are_written_as_trained(api: Api) -> None:
    body = first_body(api)
    reply = answered(parse(api, body, MODEL), SAMPLED, CallReplay())
    later = parse(api, next_body(api, body, reply), MODEL)
    text = plain_text(render(later, LAYOUT, CallReplay()))
    assert '[1, 10.0, "é"]' in text and "[1,1e1" not in text


@pytest.mark.parametrize("api", APIS)
def test_ids_are_those_of_the_interface_and_never_repeat(api: Api) -> None:
    request = parse(api, first_body(api), MODEL)
    prefix = "toolu_" if api is Api.MESSAGES else "call_"
    seen = set()
    for _ in range(20):
        reader = ReplyReader(api)
        parser = DsmlParser(request.callable_tools, True)
        reader.take(parser.feed(SAMPLED.encode()))
        seen.update(reader.call_ids)
    assert len(seen) == 40
    assert all(len(i) == len(prefix) + 32 and i.startswith(prefix) for i in seen)


def test_thinking_that_a_client_keeps_unread_comes_back(monkeypatch) -> None:
    """Codex sends back encrypted_content and not the text beside it."""
    replay, body = CallReplay(), first_body(Api.RESPONSES)
    body["include"] = ["reasoning.encrypted_content"]
    reply = answered(parse(Api.RESPONSES, body, MODEL), SAMPLED, replay)
    assert reply["output"][0].pop("content")[0]["text"] == "both files, é first"
    later = parse(Api.RESPONSES, next_body(Api.RESPONSES, body, reply), MODEL)
    assert later.conversation.messages[2].reasoning == "both files, é first"


@pytest.mark.parametrize("sealed", ["", "ID-0", "ds4-thinking-1:!!", "ds4-thinking-1:/w=="])
def test_what_others_sealed_is_not_read(sealed: str) -> None:
    content = [{"type": "reasoning_text", "text": "aha"}]
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "encrypted_content": sealed, "content": content, "summary": []},
        {"type": "message", "role": "assistant", "content": "hello"},
        {"role": "user", "content": "and?"},
    ]
    messages = parse(Api.RESPONSES, {"input": items}, MODEL).conversation.messages
    assert (messages[1].reasoning, messages[1].content) == ("aha", "hello")


SAMPLED_BY_A_SMALL_MODEL = [
    'I look.\n<tool_call>\n{"name":"read", "arguments":{"path":"a" , "lines":[1,]}}\n</tool_call>',
    '<tool_call>{"name": "read", "arguments": "{\\"path\\": \\"a\\"}"}</tool_call>',
    '\n\n<tool_call>\n{"name": "read", "arguments": {"path": "a\nb"}}\n</tool_call>',
    'So:\n```json\n{"name": "read", "arguments": {"path": "a"}}',
    '{"name": "read", "arguments": {"path": "a"}}',
]


@pytest.mark.parametrize("sampled", SAMPLED_BY_A_SMALL_MODEL)
@pytest.mark.parametrize("api", APIS)
def test_next_prompt_of_a_small_model_begins_with_all_that_was_sampled(
    api: Api, sampled: str
) -> None:
    tokenizer = Tokenizer(*VOCABULARY)
    layout = ChatmlLayout(ChatmlFormat(tokenizer))
    model = ServedModel.of_format("small", 4096, "chatml", can_think=False)
    replay, body = CallReplay(), first_body(api)
    request = parse(api, body, model)
    before = plain_text(render(request, layout, replay))
    parser, reader = ChatmlParser(request.callable_tools), ReplyReader(api)
    reply = reply_to(request, new_reply_id(api), 0)
    pieces = [*reader.take(parser.feed(sampled.encode()))]
    last, finish = reader.end(parser.finish(stopped=True), Finish.STOP)
    for piece in [*pieces, *last]:
        reply.piece(piece)
    assert finish is Finish.TOOL_CALLS
    replay.remember(reader.call_ids, reader.block.encode())
    whole = json.loads(json.dumps(reply.whole(finish, Usage(1))))
    later = parse(api, next_body(api, body, whole), model)
    after = plain_text(render(later, layout, replay))
    assert after.startswith(before + sampled + "<|im_end|>\n<|im_start|>user\n<tool_response>")
