"""Small rules of the interfaces, one test each."""

from typing import Any

import pytest

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.output import Finish, Usage
from ds4agent.server.api.replies import reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.format import Text, Thinking
from tests.server.api.events import read_events

MODEL = ServedModel("small", 4096)
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLER = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "x"}


def refused(api: Api, body: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        parse(api, body, MODEL)
    return caught.value.param


# --- calls and results ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        [USER, CALLER],
        [USER, CALLER, USER, RESULT],
        [USER, CALLER, CALLER, RESULT],
        [USER, RESULT],
        [USER, CALLER, RESULT, RESULT],
        [USER, CALLER, RESULT, USER, RESULT],
    ],
)
def test_chat_needs_each_result_right_after_its_call(said: list[dict[str, Any]]) -> None:
    assert refused(Api.CHAT, {"messages": said}) == "messages"
    parse(Api.CHAT, {"messages": [USER, CALLER, RESULT, USER]}, MODEL)


def test_other_interfaces_allow_a_text_between_a_call_and_its_result() -> None:
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    blocks = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}, result]
    caller = {"role": "assistant", "content": [use]}
    said = [USER, caller, {"role": "user", "content": blocks}]
    request = parse(Api.MESSAGES, {"messages": said}, MODEL)
    roles = [(m.role, m.content) for m in request.conversation.messages[2:]]
    assert roles == [("user", "first\n\nsecond"), ("tool", "x")]
    later = [USER, caller, {"role": "assistant", "content": "no"}, said[2]]
    assert refused(Api.MESSAGES, {"messages": later}) == "messages"
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    parse(Api.RESPONSES, {"input": [USER, call, USER, output]}, MODEL)
    assert refused(Api.RESPONSES, {"input": [USER, call]}) == "input"
    replies = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert refused(Api.RESPONSES, {"input": [USER, call, *replies]}) == "input"


# --- Chat and Completions ------------------------------------------------------------------------


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS])
def test_usage_has_a_chunk_of_its_own_where_it_is_asked_for(api: Api) -> None:
    body: dict[str, Any] = {"messages": [USER], "prompt": "hi", "stream": True}
    for asked in (True, False):
        body["stream_options"] = {"include_usage": asked}
        reply = reply_to(parse(api, body, MODEL), "id", 0)
        sent = [*reply.start(Usage(3)), *reply.piece(Text("a"))]
        events = [data for _, data in read_events(sent + reply.finish(Finish.STOP, Usage(3, 1, 2)))]
        *chunks, last, done = events
        assert done == "[DONE]" and last["usage"]["total_tokens"] == 5
        assert bool(last["choices"]) is not asked
        assert not any(chunk.get("usage") for chunk in chunks)


def test_thinking_that_nobody_asked_for_is_thinking_all_the_same() -> None:
    request = parse(Api.CHAT, {"messages": [USER]}, MODEL)
    assert not request.thinking
    reply = reply_to(request, "id", 0)
    (_, data), *_ = read_events(reply.piece(Thinking("hm")))
    assert data["choices"][0]["delta"] == {"content": None, "reasoning_content": "hm"}


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": None},
        {"prompt": ["a", "b"]},
        {"prompt": []},
        {"prompt": [1, 2]},
        {"prompt": "a", "n": 2},
        {"prompt": "a", "echo": True},
        {"prompt": "a", "suffix": "b"},
        {"prompt": "a", "best_of": 3},
        {"prompt": "a", "logprobs": 1},
    ],
)
def test_completion_that_can_not_be_given_is_refused(fields: dict[str, Any]) -> None:
    assert refused(Api.COMPLETIONS, fields) in fields


def test_completion_is_an_answer_without_thinking() -> None:
    thinker = ServedModel.of_format("big", 4096, "deepseek_v4", can_think=True)
    body = {"prompt": ["once"], "echo": False, "suffix": "", "best_of": 1, "logprobs": None}
    request = parse(Api.COMPLETIONS, body, thinker)
    assert request.conversation.messages[-1].content == "once" and not request.thinking


def test_chat_refuses_logprobs_and_takes_false() -> None:
    assert refused(Api.CHAT, {"messages": [USER], "logprobs": True}) == "logprobs"
    parse(Api.CHAT, {"messages": [USER], "logprobs": False, "n": 1}, MODEL)


def test_prefix_is_the_last_message_and_has_no_calls() -> None:
    prefix = {"role": "assistant", "content": "a", "prefix": True}
    assert refused(Api.CHAT, {"messages": [prefix, USER]}) == "messages[0].prefix"
    calls = prefix | {"tool_calls": [CALL]}
    assert refused(Api.CHAT, {"messages": [USER, calls]}) == "messages[1].tool_calls"


def test_reasoning_goes_by_two_names() -> None:
    for name in ("reasoning_content", "reasoning"):
        said = [USER, {"role": "assistant", "content": "a", name: "hm"}, USER]
        request = parse(Api.CHAT, {"messages": said}, MODEL)
        assert request.conversation.messages[1].reasoning == "hm"


# --- Responses -----------------------------------------------------------------------------------


def test_outputs_of_responses_are_text_whatever_they_hold() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    outputs: list[tuple[Any, str]] = [
        ("plain", "plain"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\n\nb"),
        (
            [{"type": "input_image", "image_url": "x"}],
            "[image left out: this model reads text only]",
        ),
        ([{"type": "input_file", "id": "x"}], '{"type": "input_file", "id": "x"}'),
        ({"ok": "é"}, '{"ok": "é"}'),
        ([1, 2], "[1, 2]"),
        (None, ""),
    ]
    for output, expected in outputs:
        item = {"type": "function_call_output", "call_id": "c", "output": output}
        request = parse(Api.RESPONSES, {"input": [USER, call, item]}, MODEL)
        assert request.conversation.messages[-1].content == expected


def test_grammar_of_a_custom_tool_is_told_in_words() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    tool = {"type": "custom", "name": "note", "description": "Notes.", "format": form}
    (spec,) = parse(Api.RESPONSES, {"input": "hi", "tools": [tool]}, MODEL).callable_tools
    assert spec.description == 'Notes.\n\nThe input must match this lark grammar:\nstart: "x"'
    free = tool | {"format": {"type": "text"}}
    (spec,) = parse(Api.RESPONSES, {"input": "hi", "tools": [free]}, MODEL).callable_tools
    assert spec.description == "Notes."
    assert spec.parameters["required"] == ["input"]


def test_items_of_one_reply_are_one_message() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    items = [
        USER,
        thought,
        {"role": "assistant", "content": "a"},
        call,
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "c"},
        thought,
        {"type": "compaction", "encrypted_content": "x"},
    ]
    said = parse(Api.RESPONSES, {"input": items}, MODEL).conversation.messages
    assert [(m.role, m.content, m.reasoning, len(m.calls)) for m in said] == [
        ("user", "hi", None, 0),
        ("assistant", "a", "hm", 1),
        ("tool", "x", None, 0),
        ("assistant", "b", None, 0),
        ("assistant", "c", None, 0),
        ("assistant", "", "hm", 0),
    ]


def test_unknown_items_and_tools_are_named() -> None:
    assert refused(Api.RESPONSES, {"input": [{"type": "magic"}]}) == "input[0].type"
    assert refused(Api.RESPONSES, {"input": "x", "tools": [{"type": "magic"}]}) == "tools[0].type"
    assert refused(Api.MESSAGES, {"messages": [USER], "tools": [{"type": "bash_20250124"}]}) == (
        "tools[0].type"
    )
    assert refused(Api.RESPONSES, {}) == "input" == refused(Api.RESPONSES, {"input": []})


# --- Messages ------------------------------------------------------------------------------------


def test_blocks_of_messages() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "page"}}
    reply = [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "thinking", "thinking": "b", "signature": "s"},
        {"type": "text", "text": "said"},
    ]
    said = [
        {"role": "user", "content": [document, {"type": "text", "text": "read"}]},
        {"role": "assistant", "content": reply},
        {"role": "user", "content": []},
    ]
    body = {"messages": said, "system": [{"type": "text", "text": "x-anthropic-a"}]}
    first, second, third = parse(Api.MESSAGES, body, MODEL).conversation.messages
    assert (first.content, second.content, second.reasoning) == ("page\n\nread", "said", "ab")
    assert third.content == ""
    assert refused(Api.MESSAGES, {"messages": []}) == "messages"
    assert refused(Api.MESSAGES, {"messages": [{"role": "user"}]}) == "messages[0].content"
    pdf = {"type": "document", "source": {"type": "base64", "data": ""}}
    body = {"messages": [{"role": "user", "content": [pdf]}]}
    assert refused(Api.MESSAGES, body) == "messages[0].content[0].source.type"


@pytest.mark.parametrize(
    ("thinking", "thinks"),
    [("enabled", True), ("adaptive", True), ("between_tools", True), ("disabled", False)],
)
def test_kinds_of_thinking_of_messages(thinking: str, thinks: bool) -> None:
    modest = ServedModel("modest", 4096, can_think=True)  # thinks only when told to
    body: dict[str, Any] = {"messages": [USER]}
    assert not parse(Api.MESSAGES, body, modest).thinking
    body["thinking"] = {"type": thinking, "budget_tokens": 1024}
    assert parse(Api.MESSAGES, body, modest).thinking is thinks
    assert parse(Api.MESSAGES, body | {"output_config": {"effort": "max"}}, modest).thinking is (
        thinks
    )
    assert refused(Api.MESSAGES, body | {"thinking": {"type": "sometimes"}}) == "thinking.type"


def test_error_within_a_response_says_what_it_is() -> None:
    for error, code in (
        (ApiError("x", 500), "server_error"),
        (ApiError("x", 500, code="out_of_memory"), "out_of_memory"),
    ):
        reply = reply_to(parse(Api.RESPONSES, {"input": "hi"}, MODEL), "resp_1", 0)
        sent = [*reply.start(Usage(1)), *reply.piece(Text("a")), *reply.error(error)]
        *_, (name, last) = read_events(sent)
        assert name == "response.failed" and last["response"]["status"] == "failed"
        assert last["response"]["error"] == {"code": code, "message": "x"}
        done = [data["item"]["status"] for n, data in read_events(sent) if n.endswith("item.done")]
        assert done == ["incomplete"]
