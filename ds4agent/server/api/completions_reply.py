"""Writing a reply of the legacy Completions interface: text and nothing else."""

from typing import Any

from ds4agent.server.api.chat_reply import FINISH_REASONS, usage_of
from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.gathered import Gathered, unfinished
from ds4agent.server.api.output import Finish, Piece, Usage
from ds4agent.server.api.request import Api, ApiRequest
from ds4agent.server.api.sse import DONE, event
from engine.chat.format import Text


class CompletionReply:
    """The Reply of Completions."""

    def __init__(self, request: ApiRequest, reply_id: str, created: int) -> None:
        self._request = request
        self._head = {
            "id": reply_id,
            "object": "text_completion",
            "created": created,
            "model": request.model,
        }
        self._gathered = Gathered()

    def start(self, usage: Usage) -> list[bytes]:
        """Return nothing: the first chunk has text."""
        return []

    def piece(self, piece: Piece) -> list[bytes]:
        """Take the next piece and return its chunk."""
        self._gathered.add(piece)
        match piece:
            case Text(text):
                return [event({**self._head, "choices": [_choice(text)]})]
        return []

    def finish(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> list[bytes]:
        """Return the chunks that end the stream."""
        if finish is Finish.ERROR:
            return self.error(unfinished())
        last = {**self._head, "choices": [_choice("", FINISH_REASONS[finish])]}
        if not self._request.include_usage:
            return [event({**last, "usage": usage_of(usage)}), DONE]
        return [event(last), event({**self._head, "choices": [], "usage": usage_of(usage)}), DONE]

    def whole(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> dict[str, Any]:
        """Return the answer as one JSON object."""
        if finish is Finish.ERROR:
            raise unfinished()
        choice = _choice(self._gathered.text, FINISH_REASONS[finish])
        return {**self._head, "choices": [choice], "usage": usage_of(usage)}

    def error(self, error: ApiError) -> list[bytes]:
        """Return the events that end a stream that can't go on."""
        return [event(error.body(Api.COMPLETIONS)), DONE]


def _choice(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
