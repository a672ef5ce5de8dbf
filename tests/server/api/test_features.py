"""What the recorded requests don't have: choices of tools, forms of answers, odd items, memory."""

import json
from typing import Any

import pytest

from ds4agent.server.api.errors import ApiError, context_exceeded
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Usage
from ds4agent.server.api.replies import reply_to
from ds4agent.server.api.request import Api, ApiRequest, CalledAs, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.deepseek_v4_dialect import DEEPSEEK_V4
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from engine.chat.format import CallArguments, Text
from engine.chat.segments import plain_text
from tests.server.api.events import read_events
from tests.server.api.rendering import render

THINKER = ServedModel.of_format("big", 1 << 20, "deepseek_v4", can_think=True)
SMALL = ServedModel.of_format("small", 4096, "chatml", can_think=False)
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


def chat(model: ServedModel = SMALL, /, **fields: Any) -> ApiRequest:
    return parse(Api.CHAT, {"messages": HI, **fields}, model)


def responses(model: ServedModel = SMALL, /, **fields: Any) -> ApiRequest:
    return parse(Api.RESPONSES, {"input": "hi", **fields}, model)


def messages(model: ServedModel = SMALL, /, **fields: Any) -> ApiRequest:
    return parse(Api.MESSAGES, {"messages": HI, **fields}, model)


def names(request: ApiRequest) -> list[str]:
    return [tool.name for tool in request.callable_tools]


# --- what a model is, decides what is taken ------------------------------------------------------


def test_options_of_the_client_count_where_the_model_does_not_think() -> None:
    request = chat(temperature=0, top_p=0, top_k=-1, min_p=0, seed=7, max_tokens=5)
    assert request.sampling.temperature == 0 and 0 < request.sampling.top_p < 1e-6
    assert (request.sampling.top_k, request.sampling.min_p, request.sampling.seed) == (0, 0, 7)
    assert chat(seed=-1).sampling.seed is None and chat(seed=2**63 + 5).sampling.seed == 5


def test_trained_options_count_while_the_model_thinks() -> None:
    request = chat(THINKER, temperature=0, top_p=0.1, top_k=3)
    assert (request.sampling.temperature, request.sampling.top_p) == (1.0, 1.0)
    assert chat(THINKER, tools=[function("f")]).sampling.top_p == 0.95
    assert chat(THINKER, temperature=0, thinking=False).sampling.temperature == 0


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"thinking": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"think": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"model": "deepseek-chat"}, False),
        ({"model": "deepseek-chat", "thinking": True}, True),
        ({"model": "deepseek-chat", "reasoning_effort": "high"}, True),
        ({"model": "deepseek-reasoner"}, True),
    ],
)
def test_thinking_is_switched_in_many_ways(fields: dict[str, Any], thinks: bool) -> None:
    assert chat(THINKER, **fields).thinking is thinks
    assert not chat(SMALL, **fields).thinking  # a model that can't


def test_limit_is_what_was_asked_or_a_default_and_fits() -> None:
    assert chat(max_completion_tokens=7, max_tokens=9).output_limit(10, 4096) == 7
    assert chat().output_limit(10, 1 << 20) == 8192
    assert chat(THINKER).output_limit(10, 1 << 20) == 65_536
    assert chat(THINKER, reasoning_effort="max").output_limit(10, 1 << 20) == 131_072
    assert chat(max_tokens=9).output_limit(4090, 4096) == 6
    assert chat(max_tokens=9).output_limit(5000, 4096) == 1


# --- tools -------------------------------------------------------------------------------------


def test_choice_of_tools() -> None:
    tools = [function("f"), function("g")]
    assert names(chat(tools=tools)) == ["f", "g"] and not chat(tools=tools).is_forced
    assert names(chat(tools=tools, tool_choice="none")) == []
    required = chat(tools=tools, tool_choice="required")
    assert required.must_call and required.is_forced
    one = chat(tools=tools, tool_choice={"type": "function", "function": {"name": "g"}})
    assert names(one) == ["g"] and one.must_call and len(one.conversation.tools) == 2
    inner = {"mode": "auto", "tools": [function("g")]}
    allowed = chat(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": inner})
    assert names(allowed) == ["g"] and not allowed.must_call
    with pytest.raises(ApiError, match="one of the tools"):
        chat(tools=tools, tool_choice={"type": "function", "function": {"name": "h"}})
    with pytest.raises(ApiError, match="no tools"):
        chat(tool_choice="required")


def test_choice_of_tools_in_messages() -> None:
    tools = [{"name": "f", "input_schema": SCHEMA}, {"name": "g", "input_schema": SCHEMA}]
    chosen = messages(tools=tools, tool_choice={"type": "tool", "name": "g"})
    assert names(chosen) == ["g"] and chosen.must_call
    alone = messages(tools=tools, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert not alone.parallel_calls and not alone.must_call
    assert not messages(THINKER, tools=tools, tool_choice={"type": "tool", "name": "g"}).must_call


BAD_TOOLS: list[Any] = [
    {"name": 'a"b', "parameters": SCHEMA},
    {"name": "", "parameters": SCHEMA},
    {"name": "f", "parameters": {"type": "array"}},
    {"name": "f", "parameters": {"properties": {"a": 1}}},
    {"name": "f", "parameters": {"required": [1]}},
    {"name": "f", "parameters": []},
]


@pytest.mark.parametrize("tool", BAD_TOOLS)
def test_tool_that_no_prompt_can_hold_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        chat(tools=[{"type": "function", "function": tool}])
    assert caught.value.param.startswith("tools[0].function.")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ApiError, match="'f' twice"):
        chat(tools=[function("f"), function("f")])


# --- forms of an answer -------------------------------------------------------------------------


def test_form_of_an_answer_is_read_in_each_interface() -> None:
    wrapped = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    flat = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
    for request in (
        chat(response_format=wrapped),
        responses(text={"format": flat}),
        messages(output_config={"format": flat}),
        messages(output_format=flat),
    ):
        assert request.answer_form.schema == SCHEMA and request.is_forced
        assert request.reply_rule().answer_schema == SCHEMA
        assert request.conversation.response_format is None  # ChatML has no words for it
    assert chat(THINKER, response_format=wrapped).conversation.response_format.schema == SCHEMA
    assert chat(response_format={"type": "json_object"}).answer_form.schema == {"type": "object"}
    assert chat(response_format={"type": "text"}).answer_form is None
    assert chat(response_format={"type": "regex", "pattern": "a+"}).answer_form.regex == "a+"


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}},
        {"type": "json_schema", "json_schema": {"schema": True}},
        {"type": "json_schema"},
        {"type": "regex", "pattern": "("},
        {"type": "regex", "pattern": "(" * 5000 + ")" * 5000},
        {"type": "json_schema", "json_schema": {"schema": {"enum": [*map(str, range(150_000))]}}},
        {"type": "xml"},
    ],
)
def test_form_that_can_not_be_enforced_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        chat(response_format=form)
    assert caught.value.param.startswith("response_format") and len(caught.value.message) < 500


# --- Responses ----------------------------------------------------------------------------------

TOOLS_OF_CODEX = [
    {"type": "function", "name": "shell", "parameters": SCHEMA, "strict": False},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "definition": "x"}},
    {"type": "custom", "name": "note", "description": "Notes."},
    {"type": "web_search", "external_web_access": False},
    {
        "type": "namespace",
        "name": "mcp__fs__",
        "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}],
    },
    {"type": "tool_search", "execution": "client", "parameters": SCHEMA},
]


def test_tools_of_codex_become_functions() -> None:
    request = responses(tools=TOOLS_OF_CODEX)
    assert names(request) == ["shell", "apply_patch", "note", "mcp__fs__read", "tool_search"]
    assert dict(request.names) == {
        "apply_patch": CalledAs("custom", "apply_patch"),
        "note": CalledAs("custom", "note"),
        "mcp__fs__read": CalledAs("function", "read", "mcp__fs__"),
        "tool_search": CalledAs("tool_search", "tool_search"),
    }


def test_calls_go_back_in_the_kind_of_their_tool() -> None:
    request = responses(tools=TOOLS_OF_CODEX)
    reply = reply_to(request, "resp_1", 0, clock=lambda: 0.0)
    said = {
        "apply_patch": '{"input": "*** Begin\\n"}',
        "mcp__fs__read": '{"a": 1}',
        "tool_search": '{"a": 2}',
    }
    sent = reply.start(Usage(1))
    for index, (name, arguments) in enumerate(said.items()):
        pieces = [CallOpened(index, f"call_{index}", name)]
        pieces += [CallArguments(index, letter) for letter in arguments]
        for piece in [*pieces, CallClosed(index)]:
            sent += reply.piece(piece)
    events = read_events(sent + reply.finish(Finish.TOOL_CALLS, Usage(1)))
    patch, local, search = events[-1][1]["response"]["output"]
    assert (patch["type"], patch["input"]) == ("custom_tool_call", "*** Begin\n")
    assert (local["name"], local["namespace"]) == ("read", "mcp__fs__")
    assert (search["type"], search["arguments"]) == ("tool_search_call", {"a": 2})
    inputs = [d["delta"] for n, d in events if n == "response.custom_tool_call_input.delta"]
    assert "".join(inputs) == "*** Begin\n"
    # And back again: what comes as history is what was called.
    results = [
        {"type": "custom_tool_call_output", "call_id": "call_0", "output": "ok"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        {"type": "tool_search_output", "call_id": "call_2", "tools": [
            {"type": "function", "name": "late", "parameters": SCHEMA}
        ]},
    ]  # fmt: skip
    items = [{"role": "user", "content": "hi"}, patch, local, search, *results]
    later = responses(input=items, tools=TOOLS_OF_CODEX)
    calls = later.conversation.messages[1].calls
    assert [call.name for call in calls] == list(said)
    assert [json.loads(call.arguments) for call in calls] == list(map(json.loads, said.values()))
    assert names(later)[-1] == "late"


def test_later_settings_and_instructions_leave_the_prompt_before_them_alone() -> None:
    items = [
        {"role": "system", "content": "first"},
        {"role": "user", "content": "hi"},
        {"type": "additional_tools", "role": "developer", "tools": [function("f")["function"] | {
            "type": "function"
        }]},
        {"type": "configuration_update", "reasoning": {"effort": "none"}},
    ]  # fmt: skip
    request = responses(THINKER, input=items)
    assert names(request) == ["f"] and not request.thinking
    before = plain_text(render(request, DeepseekV4Layout(DEEPSEEK_V4)))
    later = [
        {"role": "assistant", "content": "hello"},
        {"role": "system", "content": "later"},
        {"role": "developer", "content": "latest"},
    ]
    request = responses(THINKER, input=[*items, *later])
    after = plain_text(render(request, DeepseekV4Layout(DEEPSEEK_V4)))
    assert after.startswith(before + "hello") and "<｜User｜>later\n\nlatest<" in after


def test_later_system_texts_of_claude_code_leave_the_prompt_before_them_alone() -> None:
    said = [*HI, {"role": "system", "content": [{"type": "text", "text": "agents"}]}]
    before = plain_text(render(messages(messages=said), DeepseekV4Layout(DEEPSEEK_V4)))
    assert before.startswith("<｜begin▁of▁sentence｜>agents<｜User｜>hi<")
    said += [{"role": "assistant", "content": "hello"}, {"role": "system", "content": "later"}]
    after = plain_text(render(messages(messages=said), DeepseekV4Layout(DEEPSEEK_V4)))
    assert after.startswith(before + "hello") and "<｜User｜>later<" in after


@pytest.mark.parametrize("name", ["conversation", "prompt", "background"])
def test_what_needs_a_memory_of_the_server_is_refused(name: str) -> None:
    value: Any = True if name == "background" else {"id": "x"}
    with pytest.raises(ApiError, match="not supported"):
        responses(**{name: value})


def test_response_goes_on_from_an_earlier_one() -> None:
    memory = ResponseMemory()
    for store in (True, False):
        first = parse(Api.RESPONSES, {"input": "one", "store": store}, SMALL, memory=memory)
        reply = reply_to(first, f"resp_{store}", 0, memory=memory)
        reply.piece(Text("1"))
        reply.whole(Finish.STOP, Usage(1))
    body = {"input": "two", "previous_response_id": "resp_True", "instructions": "Count."}
    second = parse(Api.RESPONSES, body, SMALL, memory=memory)
    said = [(message.role, message.content) for message in second.conversation.messages]
    assert said == [("system", "Count."), ("user", "one"), ("assistant", "1"), ("user", "two")]
    for unknown in ("resp_False", "resp_0"):
        with pytest.raises(ApiError) as caught:
            parse(Api.RESPONSES, body | {"previous_response_id": unknown}, SMALL, memory=memory)
        assert caught.value.code == "previous_response_not_found"


def test_memory_of_responses_is_bounded() -> None:
    memory = ResponseMemory(max_bytes=1000)
    for index in range(50):
        memory.remember(str(index), ["x" * 98])
    assert memory.items("49") == ["x" * 98] and memory.items("40")
    with pytest.raises(ApiError):
        memory.items("39")
    memory.remember("large", ["x" * 2000])
    assert memory.items("49")


# --- live state ---------------------------------------------------------------------------------


def test_results_alone_need_the_live_state_that_called() -> None:
    item = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
    body = {"input": [item]}
    request = parse(Api.RESPONSES, body, SMALL, live_call_ids={"call_1"})
    assert request.needs_live_state and request.result_ids == ("call_1",)
    with pytest.raises(ApiError, match="call_1"):
        parse(Api.RESPONSES, body, SMALL, live_call_ids={"call_2"})
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
    body = {"messages": [{"role": "user", "content": [block]}]}
    assert parse(Api.MESSAGES, body, SMALL, live_call_ids={"toolu_1"}).needs_live_state
    with pytest.raises(ApiError, match="toolu_1"):
        parse(Api.MESSAGES, body, SMALL)


def test_a_whole_conversation_needs_no_live_state() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    block = {"type": "tool_result", "tool_use_id": "toolu_1"}
    said = [
        *HI,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [block]},
    ]
    request = messages(messages=said)
    assert not request.needs_live_state and request.result_ids == ("toolu_1",)
    assert messages(messages=[*said, *HI]).result_ids == ()


# --- the rest -----------------------------------------------------------------------------------


def test_an_image_is_refused_but_not_one_in_a_result() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": ""}}
    with pytest.raises(ApiError, match="reads text only"):
        messages(messages=[{"role": "user", "content": [image]}])
    with pytest.raises(ApiError, match="reads text only"):
        parse(Api.CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, SMALL)
    with pytest.raises(ApiError, match="reads text only"):
        responses(input=[{"role": "user", "content": [{"type": "input_image"}]}])
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    said = [*HI, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert "image left out" in messages(messages=said).conversation.messages[-1].content


def test_last_message_of_an_assistant_is_continued() -> None:
    request = messages(THINKER, messages=[*HI, {"role": "assistant", "content": "Once"}])
    assert request.continues and not request.thinking
    text = plain_text(render(request, DeepseekV4Layout(DEEPSEEK_V4)))
    assert text.endswith("</think>Once")
    assert chat(messages=[*HI, {"role": "assistant", "content": "x", "prefix": True}]).continues


def test_errors_have_the_shape_of_their_interface() -> None:
    error = context_exceeded(Api.CHAT, 5000, 4096).body(Api.CHAT)["error"]
    assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (5000, 4096)
    whole = context_exceeded(Api.MESSAGES, 5000, 4096).body(Api.MESSAGES)
    assert whole["type"] == "error" and whole["error"]["type"] == "invalid_request_error"
    assert "5000" in whole["error"]["message"] and "4096" in whole["error"]["message"]
    kinds = {401: "authentication_error", 404: "not_found_error", 503: "overloaded_error"}
    for status, kind in kinds.items():
        assert ApiError("x", status).body(Api.MESSAGES)["error"]["type"] == kind
    assert ApiError("x", 500).body(Api.RESPONSES)["error"]["type"] == "server_error"


def test_whether_a_client_sends_thinking_back_is_seen_from_what_it_sent() -> None:
    (asked,), said = HI, {"role": "assistant", "content": "yes"}
    thought = {**said, "reasoning_content": "Hm."}
    for replies, expected in (([], False), ([said], False), ([said, thought], True)):
        before = [m for reply in replies for m in (asked, reply)]
        assert chat(THINKER, messages=[*before, asked]).gets_thinking_back is expected
    assert messages(THINKER, max_tokens=9).gets_thinking_back
    assert not messages(THINKER, messages=[asked, said, asked]).gets_thinking_back
    assert not responses(THINKER).gets_thinking_back
    assert responses(THINKER, include=["reasoning.encrypted_content"]).gets_thinking_back
