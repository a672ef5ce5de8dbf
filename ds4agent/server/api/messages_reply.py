"""Writing a reply of Anthropic's Messages interface: blocks, one after the other."""

import json
from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.gathered import Gathered, unfinished
from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece, Usage
from ds4agent.server.api.request import Api, ApiRequest
from ds4agent.server.api.sse import event
from engine.chat.format import CallArguments, Text, Thinking

_STOP_REASONS = {
    Finish.STOP: "end_turn",
    Finish.STOP_SEQUENCE: "stop_sequence",
    Finish.TOOL_CALLS: "tool_use",
    Finish.LENGTH: "max_tokens",
}


class MessagesReply:
    """The Reply of Messages.

    Attributes:
        signature: Of thinking; clients send it back, and it is not looked at, because the thinking
            comes back with it in full.
    """

    def __init__(self, request: ApiRequest, reply_id: str) -> None:
        self.signature = reply_id
        self._head = {
            "id": reply_id,
            "type": "message",
            "role": "assistant",
            "model": request.model,
        }
        self._gathered = Gathered()
        self._n_blocks = 0
        self._open = ""  # type of the open block

    def start(self, usage: Usage) -> list[bytes]:
        """Return the event that opens the stream."""
        message = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage_of(usage, 0),
        }
        return [_event("message_start", message=message)]

    def piece(self, piece: Piece) -> list[bytes]:
        """Take the next piece and return its events."""
        self._gathered.add(piece)
        match piece:
            case Thinking(text):
                return [
                    *self._begin("thinking", {"thinking": "", "signature": ""}),
                    self._delta("thinking_delta", thinking=text),
                ]
            case Text(text):
                return [
                    *self._begin("text", {"text": ""}),
                    self._delta("text_delta", text=text),
                ]
            case CallOpened(_, call_id, name):
                return [
                    *self._end(),
                    *self._begin("tool_use", {"id": call_id, "name": name, "input": {}}),
                ]
            case CallArguments(_, text):
                return [self._delta("input_json_delta", partial_json=text)]
            case CallClosed():
                return self._end()
        return []

    def finish(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> list[bytes]:
        """Return the events that end the stream."""
        if finish is Finish.ERROR:
            return self.error(unfinished())
        events = self._end()
        if not self._gathered.texts and not self._gathered.calls:
            events += [*self._begin("text", {"text": ""}), *self._end()]
        stops = {
            "stop_reason": _STOP_REASONS[finish],
            "stop_sequence": stop_sequence if finish is Finish.STOP_SEQUENCE else None,
        }
        usage_now = _usage_of(usage, usage.completion)
        return [
            *events,
            _event("message_delta", delta=stops, usage=usage_now),
            _event("message_stop"),
        ]

    def whole(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> dict[str, Any]:
        """Return the answer as one JSON object."""
        if finish is Finish.ERROR:
            raise unfinished()
        gathered = self._gathered
        calls = gathered.whole_calls(finish)
        content: list[dict[str, Any]] = []
        if gathered.thinking:
            thinking = {"thinking": gathered.thinking, "signature": self.signature}
            content.append({"type": "thinking", **thinking})
        if gathered.text or not calls:
            content.append({"type": "text", "text": gathered.text})
        content += [
            {
                "type": "tool_use",
                "id": call.call_id,
                "name": call.name,
                "input": json.loads(call.arguments),
            }
            for call in calls
        ]
        return {
            **self._head,
            "content": content,
            "stop_reason": _STOP_REASONS[finish],
            "stop_sequence": stop_sequence if finish is Finish.STOP_SEQUENCE else None,
            "usage": _usage_of(usage, usage.completion),
        }

    def error(self, error: ApiError) -> list[bytes]:
        """Return the event that ends a stream that can't go on."""
        return [event(error.body(Api.MESSAGES), "error")]

    def _begin(self, kind: str, fields: dict[str, Any]) -> list[bytes]:
        """Open a block of a kind unless one is open; end a block of another kind first."""
        if self._open == kind:
            return []
        events = self._end()
        block = {"type": kind, **fields}
        events.append(_event("content_block_start", index=self._n_blocks, content_block=block))
        if not self._n_blocks:
            events.append(_event("ping"))
        self._open = kind
        return events

    def _end(self) -> list[bytes]:
        """Close the open block, if one is."""
        if not self._open:
            return []
        events = []
        if self._open == "thinking":
            events.append(self._delta("signature_delta", signature=self.signature))
        events.append(_event("content_block_stop", index=self._n_blocks))
        self._n_blocks += 1
        self._open = ""
        return events

    def _delta(self, kind: str, **fields: Any) -> bytes:
        delta = {"type": kind, **fields}
        return _event("content_block_delta", index=self._n_blocks, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _usage_of(usage: Usage, output: int) -> dict[str, Any]:
    """Return usage; ``input_tokens`` are those that were evaluated."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": output,
        "service_tier": "standard",
    }
