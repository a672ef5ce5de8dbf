"""Replies against the types of the official clients, which say what a client may rely on."""

import json
from functools import cache
from typing import Any, get_args

import pytest

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.models import describe_model, list_models
from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece, Usage
from ds4agent.server.api.replies import new_reply_id, reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.format import CallArguments, Text, Thinking
from tests.server.api.events import DONE, read_events

openai = pytest.importorskip("openai", reason="the official client is not installed (dev extra)")
anthropic = pytest.importorskip("anthropic", reason="the official client is not installed")
pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed (comes with both)")

MODEL = ServedModel("model", 4096, 1767225600, can_think=True)
ONE_CALL = [CallOpened(0, "call_1", "f"), CallArguments(0, '{"a": 1}'), CallClosed(0)]
TWO_CALLS = [*ONE_CALL, CallOpened(1, "call_2", "f"), CallArguments(1, "{}"), CallClosed(1)]
CUT_OFF = [CallOpened(0, "call_1", "f"), CallArguments(0, '{"a'), CallClosed(0, is_whole=False)]
REPLIES: dict[str, tuple[list[Piece], Finish]] = {
    "nothing": ([], Finish.STOP),
    "text": ([Text("a"), Text("b")], Finish.STOP),
    "thinking": ([Thinking("a")], Finish.LENGTH),
    "all": ([Thinking("a"), Text("b"), *TWO_CALLS], Finish.TOOL_CALLS),
    "call": (ONE_CALL, Finish.TOOL_CALLS),
    "stop text": ([Text("a")], Finish.STOP_SEQUENCE),
    "cut off": ([Text("a"), *CUT_OFF], Finish.LENGTH),
    "error": ([Text("a")], Finish.ERROR),
}
BODIES: dict[Api, dict[str, Any]] = {
    Api.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"input": "hi", "reasoning": {"effort": "high"}, "user": "me"},
    Api.MESSAGES: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    Api.COMPLETIONS: {"prompt": "hi"},
}
WHOLE = {
    Api.CHAT: openai.types.chat.ChatCompletion,
    Api.RESPONSES: openai.types.responses.Response,
    Api.MESSAGES: anthropic.types.Message,
    Api.COMPLETIONS: openai.types.Completion,
}
EVENT = {
    Api.CHAT: openai.types.chat.ChatCompletionChunk,
    Api.RESPONSES: openai.types.responses.ResponseStreamEvent,
    Api.MESSAGES: anthropic.types.RawMessageStreamEvent,
    Api.COMPLETIONS: openai.types.Completion,
}


@cache
def adapter(kind: Any) -> Any:
    return pydantic.TypeAdapter(kind)


def event_type(api: Api, data: dict[str, Any]) -> Any:
    """Return the one type of an event: of a union the member that has its name, so that an error
    says what is wrong with that one."""
    members = get_args(get_args(EVENT[api])[0]) if get_args(EVENT[api]) else ()
    for member in members:
        if data["type"] in get_args(member.model_fields["type"].annotation):
            return member
    return EVENT[api]


# What the official types lack and the service sends all the same, or what clients take from its
# place: not judged by the types.
UNTYPED = {"ping", "error"}


def is_possible(api: Api, name: str) -> bool:
    return api is not Api.COMPLETIONS or REPLIES[name][1] is not Finish.TOOL_CALLS


ALL = [(api, name) for api in Api for name in REPLIES if is_possible(api, name)]


@pytest.mark.parametrize(("api", "name"), ALL)
def test_events_are_of_the_official_types(api: Api, name: str) -> None:
    pieces, finish = REPLIES[name]
    for include in (False, True):
        body = dict(BODIES[api])
        if api in (Api.CHAT, Api.COMPLETIONS):
            body["stream_options"] = {"include_usage": include}
        reply = reply_to(parse(api, body, MODEL), new_reply_id(api), 1)
        sent = reply.start(Usage(9, 4))
        for piece in pieces:
            sent += reply.piece(piece)
        events = read_events(sent + reply.finish(finish, Usage(9, 4, 3, 1), "x"))
        assert events
        for event_name, data in events:
            if data == DONE or event_name in UNTYPED or "error" in data:
                continue
            if api is Api.COMPLETIONS and data["choices"]:
                # The service sends null in all chunks but the last, and the type forgets it.
                data["choices"][0]["finish_reason"] = "stop"
            adapter(event_type(api, data)).validate_python(data)


@pytest.mark.parametrize(("api", "name"), [pair for pair in ALL if pair[1] != "error"])
def test_whole_reply_is_of_the_official_type(api: Api, name: str) -> None:
    pieces, finish = REPLIES[name]
    reply = reply_to(parse(api, BODIES[api], MODEL), new_reply_id(api), 1)
    for piece in pieces:
        reply.piece(piece)
    WHOLE[api].model_validate(reply.whole(finish, Usage(9, 4, 3, 1), "x"))


@pytest.mark.parametrize("api", list(Api))
def test_reply_that_ended_in_an_error_is_no_reply(api: Api) -> None:
    reply = reply_to(parse(api, BODIES[api], MODEL), new_reply_id(api), 1)
    with pytest.raises(ApiError) as caught:
        reply.whole(Finish.ERROR, Usage(9))
    assert caught.value.status == 500


def test_stream_that_breaks_before_it_began_has_an_error_event() -> None:
    for api in (Api.RESPONSES, Api.MESSAGES):
        reply = reply_to(parse(api, BODIES[api], MODEL), new_reply_id(api), 1)
        ((name, data),) = read_events(reply.error(ApiError("no memory", 500)))
        assert name == data["type"] == "error" and "no memory" in json.dumps(data)
    data["error"]["type"] = "api_error"
    adapter(anthropic.types.ErrorResponse).validate_python(data | {"request_id": None})
    reply = reply_to(parse(Api.RESPONSES, BODIES[Api.RESPONSES], MODEL), "resp_1", 1)
    (_, data), *_ = read_events(reply.error(ApiError("no memory", 500)))
    adapter(openai.types.responses.ResponseErrorEvent).validate_python(data)


def test_models_are_of_the_official_types() -> None:
    openai.types.Model.model_validate(list_models(MODEL)["data"][0])
    found = list_models(MODEL)
    anthropic.types.ModelInfo.model_validate(found["data"][0])
    assert describe_model(MODEL, "model")["context_length"] == 4096
    with pytest.raises(ApiError) as caught:
        describe_model(MODEL, "gpt")
    assert caught.value.status == 404
