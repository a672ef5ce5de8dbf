"""Writing a Chat Completions reply."""

from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.gathered import Gathered, unfinished
from ds4agent.server.api.output import CallOpened, Finish, Piece, Usage
from ds4agent.server.api.request import Api, ApiRequest
from ds4agent.server.api.sse import DONE, event
from engine.chat.format import CallArguments, Text, Thinking

FINISH_REASONS = {
    Finish.STOP: "stop",
    Finish.STOP_SEQUENCE: "stop",
    Finish.TOOL_CALLS: "tool_calls",
    Finish.LENGTH: "length",
}


class ChatReply:
    """The Reply of Chat Completions.

    Usage is in the last chunk of the choice, or, where the client asked for it, in a chunk of its
    own after that one, as OpenAI's service has it.
    """

    def __init__(self, request: ApiRequest, reply_id: str, created: int) -> None:
        self._request = request
        self._head = {"id": reply_id, "created": created, "model": request.model}
        self._thinks = request.thinking
        self._gathered = Gathered()

    def start(self, usage: Usage) -> list[bytes]:
        """Return the chunk that opens the stream."""
        return [self._chunk({"role": "assistant", **self._said("", is_thinking=self._thinks)})]

    def piece(self, piece: Piece) -> list[bytes]:
        """Take the next piece and return its chunk."""
        self._gathered.add(piece)
        match piece:
            case Thinking(text):
                return [self._chunk(self._said(text, is_thinking=True))]
            case Text(text):
                return [self._chunk(self._said(text))]
            case CallOpened(index, call_id, name):
                return [self._call_chunk(_opened(index, call_id, name, ""))]
            case CallArguments(index, text):
                return [self._call_chunk({"index": index, "function": {"arguments": text}})]
        return []

    def finish(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> list[bytes]:
        """Return the chunks that end the stream."""
        if finish is Finish.ERROR:
            return self.error(unfinished())
        reason = FINISH_REASONS[finish]
        apart = self._request.include_usage
        written = usage_of(usage)
        chunks = [self._chunk(self._said(""), reason, None if apart else written)]
        if apart:
            chunks.append(event({**self._chunk_head(), "choices": [], "usage": written}))
        return [*chunks, DONE]

    def whole(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> dict[str, Any]:
        """Return the answer as one JSON object."""
        if finish is Finish.ERROR:
            raise unfinished()
        gathered = self._gathered
        message: dict[str, Any] = {"role": "assistant", "content": gathered.text}
        if gathered.thinking:
            message["reasoning_content"] = gathered.thinking
        calls = gathered.whole_calls(finish)
        if calls:
            message["tool_calls"] = [
                _opened(index, call.call_id, call.name, call.arguments)
                for index, call in enumerate(calls)
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": FINISH_REASONS[finish],
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_of(usage),
            "system_fingerprint": None,
        }

    def error(self, error: ApiError) -> list[bytes]:
        """Return the events that end a stream that can't go on."""
        return [event(error.body(Api.CHAT)), DONE]

    def _said(self, text: str, *, is_thinking: bool = False) -> dict[str, str | None]:
        """Return a delta. While a reply thinks, both members are in it, one of them null."""
        if is_thinking:
            return {"content": None, "reasoning_content": text}
        return {"content": text, "reasoning_content": None} if self._thinks else {"content": text}

    def _call_chunk(self, call: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [call]})

    def _chunk(
        self, delta: dict[str, Any], reason: str | None = None, usage: dict | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event({**self._chunk_head(), "choices": [choice], "usage": usage})

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk", "system_fingerprint": None}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return usage as the OpenAI interface has it, and DeepSeek's own names for the cache."""
    written: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "prompt_cache_hit_tokens": usage.cached,
        "prompt_cache_miss_tokens": usage.prompt - usage.cached,
    }
    if usage.thinking:
        written["completion_tokens_details"] = {"reasoning_tokens": usage.thinking}
    return written


def _opened(index: int, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "index": index,
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
