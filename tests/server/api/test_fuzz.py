"""Bodies of any shape: each is either a request, which then renders, or an error of status 4xx in
the interface's own shape. Nothing else, and never slowly."""

import copy
import json
import lzma
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.replies import new_reply_id, reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.deepseek_v4_dialect import DEEPSEEK_V4
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from tests.server.api.rendering import render

PATH = Path(__file__).parents[2] / "fixtures" / "prompt" / "requests.json.xz"
APIS = {"chat": Api.CHAT, "responses": Api.RESPONSES, "messages": Api.MESSAGES}
SEEDS = [
    (APIS[case["protocol"]], case["body"]) for case in json.loads(lzma.open(PATH).read())["cases"]
] + [(Api.COMPLETIONS, {"prompt": "hi", "stop": ["x"], "max_tokens": 5})]
MODEL = ServedModel.of_format("model", 1 << 16, "deepseek_v4", can_think=True)
LAYOUT = DeepseekV4Layout(DEEPSEEK_V4)
ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**64, -(2**70), 0.5, 1e308, "", "x", "none", "\ud800", "\0",
    "｜DSML｜", [], [None], [[]], {}, {"type": None}, {"type": "text"}, {"a": {"b": [1, "c"]}},
    ["a", 1, {}], {"type": "object", "properties": 5}, {"role": "user"}, "tool", {"effort": 3},
]  # fmt: skip
FIELDS = [
    "role", "content", "type", "name", "tools", "tool_choice", "input", "messages", "thinking",
    "reasoning", "text", "stop", "stream_options", "response_format", "function", "parameters",
    "tool_calls", "id", "call_id", "arguments", "metadata", "seed", "include", "system", "format",
    "output_config", "output", "namespace", "previous_response_id", "instructions", "stream",
]  # fmt: skip


def judge(api: Api, body: bytes | dict[str, Any]) -> bool:
    """Take a body as the server does. True: it was a request."""
    try:
        request = parse(api, body, MODEL)
        render(request, LAYOUT)
    except ApiError as error:
        assert 400 <= error.status < 500
        written = json.loads(json.dumps(error.body(api)))
        if api is Api.MESSAGES:
            assert written["type"] == "error"
            assert set(written["error"]) == {"type", "message"}
        else:
            assert set(written["error"]) == {"message", "type", "param", "code"}
        message = written["error"]["message"]
        assert message and "\n" not in message and len(message) < 1000
        return False
    reply = reply_to(request, new_reply_id(api), 0)
    json.dumps(request.reply_rule().answer_schema)
    assert all(isinstance(chunk, bytes) for chunk in reply.error(ApiError("x", 500)))
    return True


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from places(inner, (*path, key))


def changed(body: dict[str, Any], chooser: random.Random) -> dict[str, Any]:
    """Return a body with a few things replaced, removed, added or moved."""
    body = copy.deepcopy(body)
    for _ in range(chooser.randrange(1, 4)):
        everywhere = [path for path in places(body) if path]
        if not everywhere:
            return {"x": 1}
        *above, last = chooser.choice(everywhere)
        holder: Any = body
        for key in above:
            holder = holder[key]
        match chooser.randrange(5):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, dict):
                holder[chooser.choice(FIELDS)] = copy.deepcopy(chooser.choice(ODD_VALUES))
            case 2:
                other = chooser.choice(SEEDS)[1]
                holder[last] = copy.deepcopy(chooser.choice(list(other.values())))
            case _:
                holder[last] = copy.deepcopy(chooser.choice(ODD_VALUES))
    return body


def any_json(chooser: random.Random, depth: int = 0) -> Any:
    kind = chooser.randrange(4) if depth < 5 else 3
    if kind == 0:
        keys = chooser.choices(FIELDS, k=chooser.randrange(5))
        return {key: any_json(chooser, depth + 1) for key in keys}
    if kind == 1:
        return [any_json(chooser, depth + 1) for _ in range(chooser.randrange(4))]
    return copy.deepcopy(chooser.choice(ODD_VALUES))


def written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


@pytest.mark.parametrize("seed", range(4))
def test_changed_requests_are_answered_or_refused(seed: int) -> None:
    chooser = random.Random(seed)
    answered = 0
    for _ in range(1500):
        api, body = chooser.choice(SEEDS)
        if chooser.randrange(20) == 0:
            api = chooser.choice(list(Api))  # the right body at the wrong place
        answered += judge(api, written(changed(body, chooser)))
    assert 100 < answered < 1400  # both happen often


@pytest.mark.parametrize("api", list(Api))
def test_any_json_is_answered_or_refused(api: Api) -> None:
    chooser = random.Random(7)
    for _ in range(1500):
        judge(api, written(any_json(chooser)))


@pytest.mark.parametrize("api", list(Api))
def test_damaged_bytes_are_refused(api: Api) -> None:
    chooser = random.Random(11)
    seeds = [written(body) for of, body in SEEDS if of is api]
    for _ in range(300):
        raw = bytearray(chooser.choice(seeds))
        for _ in range(chooser.randrange(1, 4)):
            raw[chooser.randrange(len(raw))] = chooser.randrange(256)
        judge(api, bytes(raw[: chooser.randrange(len(raw) + 1)]))


BAD_BODIES = {
    "empty": b"",
    "not UTF-8": b'{"messages": "\xff\xfe"}',
    "UTF-16": '{"messages": []}'.encode("utf-16"),
    "a null byte": b"\0",
    "no object": b"[]",
    "infinity": b'{"temperature": Infinity}',
    "a huge number": b'{"seed": ' + b"9" * 5000 + b"}",
    "a huge exponent": b'{"temperature": 1e999}',
    "deep lists": b"[" * 100_000,
    "deep lists, closed": b"[" * 50_000 + b"]" * 50_000,
    "deep objects": b'{"a":' * 100_000,
    "too deep": b'{"messages": ' + b"[" * 300 + b"]" * 300 + b"}",
}


@pytest.mark.parametrize("api", list(Api))
@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_body_is_refused(api: Api, name: str) -> None:
    assert not judge(api, BAD_BODIES[name])


def test_too_many_bytes_are_413_in_each_shape() -> None:
    for api in Api:
        with pytest.raises(ApiError) as caught:
            parse(api, bytes((64 << 20) + 1), MODEL)
        assert caught.value.status == 413
    body = caught.value.body(Api.MESSAGES)
    assert body["error"]["type"] == "request_too_large"


def test_fifty_megabytes_are_read_in_seconds() -> None:
    """A parser with a quadratic step would take hours; this one takes about a second."""
    text = 'a<｜User｜>\\n"é' * (50 * 2**20 // 18)
    message = {"role": "user", "content": text}
    body = json.dumps({"messages": [message]}, ensure_ascii=False).encode()
    assert 50 << 20 < len(body) < 64 << 20
    start = time.monotonic()
    assert judge(Api.CHAT, body)
    assert time.monotonic() - start < 60


def many(n: int) -> dict[str, tuple[Api, dict[str, Any]]]:
    """Return bodies of n small things of one kind: a step that looks at all of them for each
    would take minutes."""
    turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for i in range(n)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": ""} for i in range(n)]
    functions = [{"type": "function", "name": f"f{i}"} for i in range(n)]
    said = [turn[0], {"role": "assistant", "tool_calls": calls}, *reversed(results)]
    return {
        "parts": (Api.CHAT, {"messages": [turn[0] | {"content": [{"text": "a"}] * n}]}),
        "turns": (Api.CHAT, {"messages": turn * n}),
        "calls": (Api.CHAT, {"messages": said}),
        "people": (Api.MESSAGES, {"messages": turn[:1] * n}),
        "systems": (Api.MESSAGES, {"messages": [{"role": "system", "content": "a"}] * n}),
        "items": (Api.RESPONSES, {"input": [{"role": "system", "content": "a"}] * n}),
        "thoughts": (Api.RESPONSES, {"input": [{"type": "reasoning"}, turn[0]] * n}),
        "tools": (Api.RESPONSES, {"input": "a", "tools": functions}),
        "doubles": (Api.RESPONSES, {"input": "a", "tools": [*functions, functions[-1]]}),
    }


@pytest.mark.parametrize("name", sorted(many(1)))
def test_many_small_things_are_read_in_seconds(name: str) -> None:
    api, body = many(20_000)[name]
    raw = written(body)
    start = time.monotonic()
    assert judge(api, raw) == (name != "doubles")
    assert time.monotonic() - start < 10  # about half a second


def test_depth_that_is_allowed_is_read() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    assert judge(Api.CHAT, written(body))
