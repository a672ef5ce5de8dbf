"""The official package ``openai`` against the real server."""

import json

import pytest

from tests.server.dialogue import DESCRIPTION, SCHEMA, ask

openai = pytest.importorskip("openai", reason="needs the package openai")

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": DESCRIPTION,
        "parameters": SCHEMA,
    },
}


def test_models(openai_client: "openai.OpenAI") -> None:
    (model,) = openai_client.models.list().data
    assert model.id == "scripted"
    assert openai_client.models.retrieve("scripted").id == "scripted"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("other")


def test_chat(openai_client: "openai.OpenAI") -> None:
    answer = openai_client.chat.completions.create(model="scripted", messages=ask("hello"))
    assert answer.choices[0].message.content == "Good day to you."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len("Good day to you.") + 1


def test_chat_stream(openai_client: "openai.OpenAI") -> None:
    stream = openai_client.chat.completions.create(
        model="scripted",
        messages=ask("hello"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Good day to you."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0


def test_tools_in_two_turns(openai_client: "openai.OpenAI") -> None:
    messages = ask("weather in Graz?")
    first = openai_client.chat.completions.create(
        model="scripted", messages=messages, tools=[WEATHER]
    )
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    (call,) = message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Graz"}
    messages += [message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second = openai_client.chat.completions.create(
        model="scripted", messages=messages, tools=[WEATHER]
    )
    assert second.choices[0].message.content == "It is sunny in Graz."
    earlier = first.usage.total_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= earlier - 1


def test_streamed_tools(openai_client: "openai.OpenAI") -> None:
    stream = openai_client.chat.completions.create(
        model="scripted", messages=ask("weather in Graz?"), tools=[WEATHER], stream=True
    )
    name, arguments, reasons = "", "", []
    for chunk in stream:
        choice = chunk.choices[0]
        reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or ():
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert (name, json.loads(arguments)) == ("weather", {"city": "Graz"})
    assert reasons[-1] == "tool_calls"


def test_reasoning(openai_client: "openai.OpenAI") -> None:
    answer = openai_client.chat.completions.create(
        model="scripted", messages=ask("think: 2+2?"), reasoning_effort="high"
    )
    message = answer.choices[0].message
    assert message.content.strip() == "Four."
    assert message.reasoning_content.strip() == "Two and two."


def test_structured_output(openai_client: "openai.OpenAI") -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    answer = openai_client.chat.completions.create(
        model="scripted",
        messages=ask("json of Ada"),
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": schema, "strict": True},
        },
    )
    assert json.loads(answer.choices[0].message.content) == {"name": "Ada", "age": 36}


def test_a_schema_forces_a_model_that_says_something_else(openai_client: "openai.OpenAI") -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    answer = openai_client.chat.completions.create(
        model="scripted",
        messages=ask("hello"),
        max_tokens=200,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )
    assert type(json.loads(answer.choices[0].message.content)["ok"]) is bool


def test_stop_sequence_and_limit(openai_client: "openai.OpenAI") -> None:
    answer = openai_client.chat.completions.create(
        model="scripted", messages=ask("stop early"), stop=["three"]
    )
    assert answer.choices[0].message.content == "one two "
    assert answer.choices[0].finish_reason == "stop"
    answer = openai_client.chat.completions.create(
        model="scripted", messages=ask("stop early"), max_completion_tokens=3
    )
    assert answer.choices[0].message.content == "one"
    assert answer.choices[0].finish_reason == "length"


def test_responses(openai_client: "openai.OpenAI") -> None:
    answer = openai_client.responses.create(model="scripted", input="hello")
    assert answer.output_text == "Good day to you."
    assert answer.status == "completed"


def test_responses_stream_with_a_tool(openai_client: "openai.OpenAI") -> None:
    tool = {"type": "function", **WEATHER["function"]}
    with openai_client.responses.stream(
        model="scripted", input=ask("weather in Graz?"), tools=[tool]
    ) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    call = next(item for item in answer.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Graz"}
    # Nothing but the result: it goes on in memory.
    second = openai_client.responses.create(
        model="scripted",
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
        tools=[tool],
    )
    assert second.output_text == "It is sunny in Graz."
    assert second.usage.input_tokens_details.cached_tokens > 100
    with pytest.raises(openai.BadRequestError):
        openai_client.responses.create(
            model="scripted",
            input=[{"type": "function_call_output", "call_id": "call_x", "output": "sunny"}],
            tools=[tool],
        )


def test_completions(openai_client: "openai.OpenAI") -> None:
    answer = openai_client.completions.create(model="scripted", prompt="hello", max_tokens=50)
    assert answer.choices[0].text == "Good day to you."


def test_a_prompt_that_is_too_long(openai_client: "openai.OpenAI") -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(model="scripted", messages=ask("x" * 20_000))
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.body["n_ctx"] == 16384
