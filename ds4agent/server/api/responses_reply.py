"""Writing a reply of the Responses interface: items, each opened, filled and closed.

An item is closed as soon as the next one begins, so clients show calls while they are written. The
events are numbered; ``output_index`` counts items in the order of opening.
"""

import time
from collections.abc import Callable
from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.gathered import Gathered, unfinished
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece, Usage
from ds4agent.server.api.request import ApiRequest, CalledAs
from ds4agent.server.api.responses_output import CallItem, OutputItem, TextItem
from ds4agent.server.api.sse import event
from engine.chat.format import CallArguments, Text, Thinking


class ResponsesReply:
    """The Reply of Responses."""

    def __init__(
        self,
        request: ApiRequest,
        reply_id: str,
        created: int,
        clock: Callable[[], float] = time.time,
        memory: ResponseMemory | None = None,
    ) -> None:
        """Begin a reply; ``clock`` tells when it is complete, in seconds since 1970, and
        ``memory`` gets it then."""
        self._request = request
        self._id = reply_id
        self._stem = reply_id.removeprefix("resp_")
        self._created = created
        self._clock = clock
        self._memory = memory
        self._gathered = Gathered()
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._n_events = 0

    def start(self, usage: Usage) -> list[bytes]:
        """Return the events that open the stream."""
        response = self._response("in_progress")
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def piece(self, piece: Piece) -> list[bytes]:
        """Take the next piece and return its events."""
        self._gathered.add(piece)
        match piece:
            case Thinking(text):
                return [*self._begin("reasoning"), *self._fill(text)]
            case Text(text):
                return [*self._begin("message"), *self._fill(text)]
            case CallOpened(_, call_id, name):
                if isinstance(self._open, TextItem):
                    self._open.phase = "commentary"
                called_as = self._request.names.get(name, CalledAs("function", name))
                item = CallItem(called_as, call_id, self._stem, len(self._items))
                return [*self._close("completed"), *self._open_item(item)]
            case CallArguments(_, text):
                return self._fill(text)
            case CallClosed(_, is_whole):
                return self._close("completed" if is_whole else "incomplete")
        return []

    def finish(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> list[bytes]:
        """Return the events that end the stream."""
        if finish is Finish.ERROR:
            return self.error(unfinished())
        status = "incomplete" if finish is Finish.LENGTH else "completed"
        closing = self._close(status)
        response = self._completed(status, usage)
        return [*closing, self._event(f"response.{status}", response=response)]

    def whole(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> dict[str, Any]:
        """Return the answer as one JSON object."""
        if finish is Finish.ERROR:
            raise unfinished()
        status = "incomplete" if finish is Finish.LENGTH else "completed"
        self._close(status)
        may_run = {call.call_id for call in self._gathered.whole_calls(finish)}
        self._items = [
            item
            for item in self._items
            if not isinstance(item, CallItem) or item.call_id in may_run
        ]
        return self._completed(status, usage)

    def error(self, error: ApiError) -> list[bytes]:
        """Return the event that ends a stream that can't go on."""
        code = "server_error" if error.status >= 500 else "invalid_request_error"
        if not self._n_events:  # nothing but comments so far
            fields = {"code": error.code or code, "message": error.message, "param": None}
            return [self._event("error", **fields)]
        closing = self._close("incomplete")
        response = self._response("failed")
        response["error"] = {"code": error.code or code, "message": error.message}
        return [*closing, self._event("response.failed", response=response)]

    def _begin(self, kind: str) -> list[bytes]:
        """Open an item of text unless one of its kind is open; close another one first."""
        if isinstance(self._open, TextItem) and self._open.kind == kind:
            return []
        item = TextItem(kind, self._stem, len(self._items), self._request.encrypts_thinking)
        return [*self._close("completed"), *self._open_item(item)]

    def _open_item(self, item: OutputItem) -> list[bytes]:
        self._items.append(item)
        self._open = item
        return [
            self._event(
                "response.output_item.added",
                item=item.written("in_progress"),
                output_index=item.index,
            ),
            *self._named(item.opening()),
        ]

    def _fill(self, text: str) -> list[bytes]:
        return self._named(self._open.fill(text)) if self._open else []

    def _close(self, status: str) -> list[bytes]:
        """Close the open item, if one is."""
        item, self._open = self._open, None
        if item is None:
            return []
        item.status = status
        return [
            *self._named(item.closing()),
            self._event(
                "response.output_item.done", item=item.written(status), output_index=item.index
            ),
        ]

    def _named(self, events: list[tuple[str, dict[str, Any]]]) -> list[bytes]:
        return [self._event(kind, **fields) for kind, fields in events]

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, **fields, "sequence_number": self._n_events}
        self._n_events += 1
        return event(data, kind)

    def _completed(self, status: str, usage: Usage) -> dict[str, Any]:
        """Return the whole response, and keep it for a later request."""
        response = self._response(status, usage)
        items = self._request.items
        if self._memory is not None and items is not None:
            self._memory.remember(self._id, [*items, *response["output"]])
        return response

    def _response(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        is_over = usage is not None
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "completed_at": int(self._clock()) if is_over else None,
            "content_filters": None,
            "error": None,
            "incomplete_details": reason,
            "model": self._request.model,
            "moderation": None,
            "output": [item.written(item.status) for item in self._items] if is_over else [],
            **self._request.echo,
            "usage": _usage_of(usage) if is_over else None,
        }


def _usage_of(usage: Usage) -> dict[str, Any]:
    cache = {"cached_tokens": usage.cached, "cache_write_tokens": usage.prompt - usage.cached}
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": cache,
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.thinking},
        "total_tokens": usage.prompt + usage.completion,
    }
