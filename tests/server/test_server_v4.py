"""DeepSeek V4 through the server: the tiny random model computes, thinks, calls a tool in DSML and
goes on behind a restart, in every interface that has tools."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ds4agent.server.api.request import Api
from tests.fakes.scripted_v4 import FILE
from tests.fakes.server_process import ServerProcess
from tests.server.api.events import read_events
from tests.server.api.test_reply_properties import put_together, whole_of

PATHS = {
    Api.CHAT: "/v1/chat/completions",
    Api.RESPONSES: "/v1/responses",
    Api.MESSAGES: "/v1/messages",
    Api.COMPLETIONS: "/v1/completions",
}
# Not as it would be written again, so only the sampled bytes fit the state.
CALL = (
    "\n\n<｜DSML｜tool_calls>\n"
    '<｜DSML｜invoke name="sky">\n'
    '<｜DSML｜parameter name="n" string="false">[1,1e1]</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>"
)
SCRIPT = {
    "deepseek_v4": {
        "answers": {"weather": f"Hm.</think>I look.{CALL}", "<tool_result>": "So.</think>Sun."},
        "ctx": 4096,
    }
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "array"}}}
FUNCTION = {"name": "sky", "description": "Looks up.", "parameters": SCHEMA}


def first_turn(api: Api) -> dict[str, Any]:
    asked = [{"role": "user", "content": "weather?"}]
    match api:
        case Api.CHAT:
            return {"messages": asked, "tools": [{"type": "function", "function": FUNCTION}]}
        case Api.RESPONSES:
            return {"input": asked, "tools": [{"type": "function", **FUNCTION}]}
    tool = {"name": "sky", "description": "Looks up.", "input_schema": SCHEMA}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    return {"messages": asked, "tools": [tool], "max_tokens": 400, "thinking": thinking}


def second_turn(api: Api, body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """Return the request with the result of the call, the reply as clients send it back: some
    without its thinking."""
    ((call_id, arguments),) = reply["calls"]
    arguments = json.dumps(json.loads(arguments))
    match api:
        case Api.CHAT:
            call = {"id": call_id, "type": "function"}
            call["function"] = {"name": "sky", "arguments": arguments}
            said = {"role": "assistant", "content": reply["text"], "tool_calls": [call]}
            result = {"role": "tool", "tool_call_id": call_id, "content": "blue"}
            return {**body, "messages": [*body["messages"], said, result]}
        case Api.RESPONSES:
            said = {"role": "assistant", "content": reply["text"]}
            call = {"type": "function_call", "call_id": call_id, "name": "sky"}
            call["arguments"] = arguments
            result = {"type": "function_call_output", "call_id": call_id, "output": "blue"}
            return {**body, "input": [*body["input"], said, call, result]}
    content = [
        {"type": "thinking", "thinking": reply["thinking"], "signature": "s"},
        {"type": "text", "text": reply["text"]},
        {"type": "tool_use", "id": call_id, "name": "sky", "input": json.loads(arguments)},
    ]
    result = {"type": "tool_result", "tool_use_id": call_id, "content": "blue"}
    said = [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    return {**body, "messages": [*body["messages"], *said]}


def streamed(server: ServerProcess, api: Api, body: dict[str, Any]) -> dict[str, Any]:
    return put_together(api, read_events([server.read(PATHS[api], {**body, "stream": True})]))


def n_read(server: ServerProcess) -> float:
    return server.metric("ds4_prefill_tokens_total")


@pytest.mark.parametrize(
    "api",
    [
        Api.MESSAGES,
        Api.CHAT,
        pytest.param(Api.RESPONSES, marks=pytest.mark.slow),
    ],
)
def test_a_call_its_result_after_a_restart_and_on(api: Api, tmp_path: Path) -> None:
    body = first_turn(api)
    with ServerProcess(tmp_path, SCRIPT) as server:
        first = streamed(server, api, body)
        assert (first["thinking"], first["text"].strip()) == ("Hm.", "I look.")
        ((_, arguments),) = first["calls"]
        assert json.loads(arguments) == {"n": [1, 10.0]}
        assert n_read(server) > 600  # tools in letters
        assert server.stop() == 0
    with ServerProcess(tmp_path, SCRIPT) as server:
        body = second_turn(api, body, first)
        second = streamed(server, api, body)
        assert (second["thinking"], second["text"]) == ("So.", "Sun.")
        assert second["calls"] == []
        n_new = n_read(server)
        assert 0 < n_new < 60  # the result and its marks, nothing before them
        again = whole_of(api, server.post(PATHS[api], body))
        assert (again["thinking"], again["text"]) == ("So.", "Sun.")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The model as it is: it says what its random weights say."""
    options = ("-m", str(FILE), "--ctx", "4096", "--device", "cpu")
    with ServerProcess(tmp_path_factory.mktemp("v4"), None, options) as running:
        yield running


def limited(api: Api) -> dict[str, Any]:
    """A request for a few tokens without thinking."""
    asked = [{"role": "user", "content": "hi"}]
    return {
        Api.CHAT: {"messages": asked, "thinking": False, "max_tokens": 6, "temperature": 0},
        Api.RESPONSES: {
            "input": asked,
            "reasoning": {"effort": "none"},
            "max_output_tokens": 6,
            "temperature": 0,
        },
        Api.MESSAGES: {"messages": asked, "max_tokens": 6, "temperature": 0},
        Api.COMPLETIONS: {
            "prompt": "hi",
            "thinking": False,
            "max_tokens": 6,
            "temperature": 0,
        },
    }[api]


@pytest.mark.parametrize("api", list(Api))
def test_random_weights_say_the_same_in_a_stream(server: ServerProcess, api: Api) -> None:
    body = limited(api)
    if api is Api.MESSAGES:
        body["thinking"] = {"type": "disabled"}
    server.post(PATHS[api], body)  # from now on the prompt is in memory
    whole = whole_of(api, server.post(PATHS[api], body))
    stream = streamed(server, api, body)
    assert stream["text"] == whole["text"] != ""
    assert stream["end"] == whole["end"] in ("length", "incomplete", "max_tokens")


def test_random_weights_are_held_to_a_schema(server: ServerProcess) -> None:
    """The structure is forced; which of the words it is, the weights decide."""
    schema = {"type": "object", "properties": {"w": {"enum": ["ab", "cd", "ef"]}}}
    schema |= {"required": ["w"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = limited(Api.CHAT) | {"response_format": form, "max_tokens": 200}
    made = streamed(server, Api.CHAT, body)
    assert json.loads(made["text"])["w"] in ("ab", "cd", "ef")
    assert made["end"] == "stop"
