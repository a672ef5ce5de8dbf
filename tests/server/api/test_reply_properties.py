"""Streams put together by clients are the whole answer: for random replies in each interface."""

import json
import random
from typing import Any

import pytest

from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece, Usage
from ds4agent.server.api.replies import reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.api.requests import parse
from engine.chat.format import CallArguments, Text, Thinking
from tests.server.api.events import DONE, Event, read_events

MODEL = ServedModel.of_format("model", 1 << 16, "deepseek_v4", can_think=True)
HI = [{"role": "user", "content": "hi"}]
BODIES: dict[Api, dict[str, Any]] = {
    Api.CHAT: {"messages": HI},
    Api.RESPONSES: {"input": "hi"},
    Api.MESSAGES: {"messages": HI},
    Api.COMPLETIONS: {"prompt": "hi"},
}
LETTERS = 'a é漢😀"\\\n\r\t\x00\x1f\x85\u2028\u2029<｜DSML｜>data: event:\n\n{}[],:'
USAGE = Usage(9, 4, 7, 2)


def pieces_of(text: str, chooser: random.Random) -> list[str]:
    cuts = sorted(chooser.sample(range(1, max(len(text), 2)), k=min(len(text) // 2, 4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if text[a:b]]


def random_text(chooser: random.Random) -> str:
    return "".join(chooser.choices(LETTERS, k=chooser.randrange(0, 30)))


def random_reply(chooser: random.Random) -> tuple[list[Piece], Finish]:
    pieces: list[Piece] = [Thinking(t) for t in pieces_of(random_text(chooser), chooser)]
    pieces += [Text(t) for t in pieces_of(random_text(chooser), chooser)]
    n_calls = chooser.choice((0, 0, 1, 2, 3))
    for index in range(n_calls):
        arguments = json.dumps({random_text(chooser): random_text(chooser)}, ensure_ascii=False)
        pieces.append(CallOpened(index, f"call_{index}", "f"))
        pieces += [CallArguments(index, t) for t in pieces_of(arguments, chooser)]
        pieces.append(CallClosed(index))
    ends = (Finish.TOOL_CALLS,) if n_calls else (Finish.STOP, Finish.LENGTH, Finish.STOP_SEQUENCE)
    return pieces, chooser.choice(ends)


def put_together(api: Api, events: list[Event]) -> dict[str, Any]:
    """Return thinking, text, calls and end of a reply, as a client reads them from its events."""
    put = {
        Api.CHAT: chat_of,
        Api.COMPLETIONS: completion_of,
        Api.MESSAGES: message_of,
        Api.RESPONSES: response_of,
    }
    return put[api](events)


def chat_of(events: list[Event]) -> dict[str, Any]:
    assert events.pop() == (None, DONE)
    made: dict[str, Any] = {"thinking": "", "text": "", "calls": []}
    for _, data in events:
        (choice,) = data["choices"]
        delta = choice["delta"]
        made["thinking"] += delta.get("reasoning_content") or ""
        made["text"] += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            if "id" in call:
                made["calls"].append([call["id"], ""])
            made["calls"][call["index"]][1] += call["function"]["arguments"]
    return made | {"end": choice["finish_reason"], "usage": data["usage"]}


def completion_of(events: list[Event]) -> dict[str, Any]:
    assert events.pop() == (None, DONE)
    text = "".join(data["choices"][0]["text"] for _, data in events)
    return {"text": text, "end": events[-1][1]["choices"][0]["finish_reason"]}


def message_of(events: list[Event]) -> dict[str, Any]:
    made: dict[str, Any] = {"thinking": "", "text": "", "calls": []}
    n_open, n_blocks = 0, 0
    for name, data in events:
        assert name == data["type"]
        match data:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert n_open == 0 and index == n_blocks
                n_open += 1
                if block["type"] == "tool_use":
                    made["calls"].append([block["id"], ""])
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert n_open == 1 and index == n_blocks
                match delta["type"]:
                    case "thinking_delta":
                        made["thinking"] += delta["thinking"]
                    case "text_delta":
                        made["text"] += delta["text"]
                    case "input_json_delta":
                        made["calls"][-1][1] += delta["partial_json"]
            case {"type": "content_block_stop", "index": index}:
                assert n_open == 1 and index == n_blocks
                n_open, n_blocks = 0, n_blocks + 1
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                made |= {"end": delta["stop_reason"], "usage": usage}
    assert n_open == 0 and n_blocks > 0 and events[-1][0] == "message_stop"
    return made


def response_of(events: list[Event]) -> dict[str, Any]:
    texts: dict[tuple[str, int], str] = {}
    for number, (name, data) in enumerate(events):
        assert name == data["type"] and data["sequence_number"] == number
        if name.endswith(".delta"):
            place = (data["type"], data["output_index"])
            texts[place] = texts.get(place, "") + data["delta"]
        if name.endswith("_text.done"):
            assert data["text"] == texts[name.replace(".done", ".delta"), data["output_index"]]
    response = events[-1][1]["response"]
    made = whole_response(response)
    said = "".join(t for (kind, _), t in texts.items() if kind == "response.output_text.delta")
    assert said == made["text"]
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert done == response["output"]
    for index, item in enumerate(response["output"]):
        if item["type"] == "function_call":
            delta = texts["response.function_call_arguments.delta", index]
            assert delta == item["arguments"]
    return made


def whole_response(response: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"thinking": "", "text": "", "calls": []}
    for item in response["output"]:
        match item["type"]:
            case "reasoning":
                made["thinking"] += item["content"][0]["text"]
            case "message":
                made["text"] += item["content"][0]["text"]
            case _:
                made["calls"].append([item["call_id"], item["arguments"]])
    return made | {"end": response["status"], "usage": response["usage"]}


def whole_of(api: Api, whole: dict[str, Any]) -> dict[str, Any]:
    match api:
        case Api.CHAT:
            (choice,) = whole["choices"]
            message = choice["message"]
            calls = [[c["id"], c["function"]["arguments"]] for c in message.get("tool_calls", [])]
            made = {"thinking": message.get("reasoning_content", ""), "text": message["content"]}
            return made | {"calls": calls, "end": choice["finish_reason"], "usage": whole["usage"]}
        case Api.COMPLETIONS:
            (choice,) = whole["choices"]
            return {"text": choice["text"], "end": choice["finish_reason"]}
        case Api.RESPONSES:
            return whole_response(whole)
    made = {"thinking": "", "text": "", "calls": []}
    for block in whole["content"]:
        match block["type"]:
            case "tool_use":
                written = json.dumps(block["input"], ensure_ascii=False)
                made["calls"].append([block["id"], written])
            case kind:
                made[kind] += block[kind]
    return made | {"end": whole["stop_reason"], "usage": whole["usage"]}


@pytest.mark.parametrize("api", list(Api))
def test_events_put_together_are_the_whole_answer(api: Api) -> None:
    chooser = random.Random(3)
    request = parse(api, BODIES[api], MODEL)
    for _ in range(300):
        pieces, finish = random_reply(chooser)
        if api is Api.COMPLETIONS and finish is Finish.TOOL_CALLS:
            continue
        streamed = reply_to(request, "id", 1, clock=lambda: 2.0)
        whole = reply_to(request, "id", 1, clock=lambda: 2.0)
        sent = streamed.start(USAGE)
        for piece in pieces:
            sent += streamed.piece(piece)
            whole.piece(piece)
        sent += streamed.finish(finish, USAGE, "x")
        for chunk in sent:
            assert chunk.endswith(b"\n\n") and chunk.count(b"\n\n") == 1
            lines = chunk.decode().splitlines()  # as clients cut it that know no better
            assert all(line.startswith(("data: ", "event: ")) for line in lines if line)
        expected = whole_of(api, whole.whole(finish, USAGE, "x"))
        assert put_together(api, read_events(sent)) == expected
        said = "".join(piece.text for piece in pieces if isinstance(piece, Text))
        assert expected["text"] == said
