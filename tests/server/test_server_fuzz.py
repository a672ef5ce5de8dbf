"""Bodies of any shape through the real server: refused in the interface's shape, never a crash."""

import json
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.server_process import ServerProcess

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
SEEDS: dict[str, dict[str, Any]] = {
    PATHS[0]: {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        "tools": [TOOL],
        "tool_choice": "auto",
        "temperature": 0.5,
        "stop": ["x"],
        "seed": 1,
        "max_tokens": 5,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "stream_options": {"include_usage": True},
    },
    PATHS[1]: {
        "model": "m",
        "instructions": "i",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
        "max_output_tokens": 5,
    },
    PATHS[2]: {
        "model": "m",
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["x"],
        "max_tokens": 5,
    },
    PATHS[3]: {"model": "m", "prompt": "hello", "max_tokens": 5, "stop": "x"},
}
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**63, -(2**70), 0.5, 1e308, "", "x", "\ud800", "\x00", "auto"),
    *([], {}, [[]], [None], {"type": None}, {"type": "text"}, [{"a": 1}], "none", "required"),
    *({"$ref": "#"}, {"type": "object", "properties": 3}, {"anyOf": []}, {"pattern": "("}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("fuzz"), {"replies": ["yes"] * 9}) as running:
        yield running


def answer(server: ServerProcess, path: str, data: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(server.url + path, data)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def check(server: ServerProcess, path: str, data: bytes) -> int:
    """Send a body; the answer must be one of the interface."""
    status, body = answer(server, path, data)
    assert status == 200 or 400 <= status < 500, (status, path, data[:500], body[:500])
    if status != 200:
        refusal = json.loads(body)
        assert refusal["error"]["message"] and refusal["error"]["type"]
        assert (refusal.get("type") == "error") is path.startswith("/v1/messages")
    else:
        assert b"server_error" not in body and b"api_error" not in body, (path, data[:500], body)
    return status


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) of a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def mutated(seed: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    body = json.loads(json.dumps(seed))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        container, key = chance.choice(list(places(body)))
        match chance.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.insert(0, container[key])
            case _:
                container[key] = chance.choice(ODD)
        if not body:
            break
    if chance.random() < 0.3:
        body["stream"] = True
    return body


@pytest.mark.parametrize("path", PATHS)
def test_every_field_with_every_odd_value(server: ServerProcess, path: str) -> None:
    chance = random.Random(9)
    statuses = [
        check(server, path, json.dumps(mutated(SEEDS[path], chance)).encode()) for _ in range(150)
    ]
    assert 200 in statuses and 400 in statuses


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_many_more_mutations(server: ServerProcess, path: str) -> None:
    chance = random.Random(11)
    for _ in range(4000):
        check(server, path, json.dumps(mutated(SEEDS[path], chance)).encode())


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_json_object(server: ServerProcess, path: str) -> None:
    nested = b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    objects = b'{"a":' * 3000 + b"1" + b"}" * 3000
    for data in (b"", b"[]", b"1", b"null", b"{", b'{"a":}', b"\xff\xfe", nested, objects):
        assert check(server, path, data) == 400
    assert check(server, path, b'{"input":' + b"9" * 5000 + b"}") == 400
    assert check(server, path, b'{"temperature": NaN}') == 400


def test_a_body_of_50_mb(server: ServerProcess) -> None:
    big = {"messages": [{"role": "user", "content": "word " * 10_000_000}]}
    assert check(server, PATHS[0], json.dumps(big).encode()) == 400  # far beyond the context
    many = {"messages": [{"role": "user", "content": "x"}] * 300_000}
    assert check(server, PATHS[0], json.dumps(many).encode()) == 400
    assert json.loads(server.get("/health"))["status"] == "ok"


def test_a_body_that_is_too_long_is_not_read(server: ServerProcess) -> None:
    import socket

    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
