"""The official package ``anthropic`` against the real server."""

from collections.abc import Iterator

import pytest

from tests.fakes.server_process import ServerProcess
from tests.server.dialogue import DESCRIPTION, KEY, SCHEMA, ask

anthropic = pytest.importorskip("anthropic", reason="needs the package anthropic")

WEATHER = {
    "name": "weather",
    "description": DESCRIPTION,
    "input_schema": SCHEMA,
}


@pytest.fixture(scope="module")
def client(keyed_server: ServerProcess) -> Iterator["anthropic.Anthropic"]:
    with anthropic.Anthropic(base_url=keyed_server.url, api_key=KEY, max_retries=0) as made:
        yield made


def test_message(client: "anthropic.Anthropic") -> None:
    answer = client.messages.create(model="scripted", max_tokens=100, messages=ask("hello"))
    assert [block.text for block in answer.content] == ["Good day to you."]
    assert answer.stop_reason == "end_turn"


def test_stream(client: "anthropic.Anthropic") -> None:
    with client.messages.stream(model="scripted", max_tokens=100, messages=ask("hello")) as stream:
        assert "".join(stream.text_stream) == "Good day to you."
        assert stream.get_final_message().usage.output_tokens == len("Good day to you.") + 1


def test_thinking(client: "anthropic.Anthropic") -> None:
    with client.messages.stream(
        model="scripted",
        max_tokens=2000,
        messages=ask("think: 2+2?"),
        thinking={"type": "enabled", "budget_tokens": 1024},
    ) as stream:
        answer = stream.get_final_message()
    thinking, text = answer.content
    assert (thinking.type, thinking.thinking.strip()) == ("thinking", "Two and two.")
    assert text.text.strip() == "Four."
    # It comes back with the next turn; nothing but that turn is read.
    messages = [*ask("think: 2+2?"), {"role": "assistant", "content": answer.content}]
    second = client.messages.create(
        model="scripted",
        max_tokens=2000,
        messages=[*messages, *ask("hello")],
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    assert second.content[0].text == "Good day to you."
    assert second.usage.cache_read_input_tokens >= answer.usage.output_tokens


def test_tools_in_two_turns(client: "anthropic.Anthropic") -> None:
    with client.messages.stream(
        model="scripted", max_tokens=500, messages=ask("weather in Graz?"), tools=[WEATHER]
    ) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert (call.name, call.input) == ("weather", {"city": "Graz"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    messages = [
        *ask("weather in Graz?"),
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(
        model="scripted", max_tokens=500, messages=messages, tools=[WEATHER]
    )
    assert second.content[0].text == "It is sunny in Graz."
    before = first.usage.input_tokens + first.usage.output_tokens
    assert second.usage.cache_read_input_tokens >= before - 1


def test_structured_output(client: "anthropic.Anthropic") -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    answer = client.messages.create(
        model="scripted",
        max_tokens=100,
        messages=ask("json please"),
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert answer.content[0].text == '{"ok": true}'


def test_stop_sequence(client: "anthropic.Anthropic") -> None:
    answer = client.messages.create(
        model="scripted", max_tokens=100, messages=ask("stop early"), stop_sequences=["three"]
    )
    assert answer.content[0].text == "one two "
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "three")


def test_count_tokens(client: "anthropic.Anthropic") -> None:
    counted = client.messages.count_tokens(model="scripted", messages=ask("hello"))
    answer = client.messages.create(model="scripted", max_tokens=9, messages=ask("hello"))
    used = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert counted.input_tokens == used


def test_errors_have_its_shape(keyed_server: ServerProcess, client: "anthropic.Anthropic") -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="scripted", max_tokens=9, messages=ask("x" * 20_000))
    assert caught.value.body["error"]["n_ctx"] == 16384
    with anthropic.Anthropic(base_url=keyed_server.url, api_key="wrong", max_retries=0) as other:
        with pytest.raises(anthropic.AuthenticationError):
            other.messages.create(model="scripted", max_tokens=9, messages=ask("hello"))
