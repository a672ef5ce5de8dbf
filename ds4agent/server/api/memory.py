"""Responses that a later request may go on from by ``previous_response_id``.

Kept in memory only and never for long: what a restart or newer responses have displaced is
answered with an error that makes clients send the whole input.
"""

import json
import threading
from collections import OrderedDict
from typing import Any

from ds4agent.server.api.errors import ApiError

_MAX_BYTES = 64 << 20


class ResponseMemory:
    """Inputs and outputs by the id of the response; the oldest go first. For any thread."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        """Make an empty memory that holds so many bytes of JSON."""
        self._max_bytes = max_bytes
        self._items: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def remember(self, response_id: str, items: list[Any]) -> None:
        """Keep the items of a response, input and output. One that is too long is not kept."""
        written = tuple(json.dumps(item, ensure_ascii=False).encode() for item in items)
        size = sum(map(len, written))
        with self._lock:
            if size > self._max_bytes:
                return
            self._items[response_id] = written
            self._n_bytes += size
            while self._n_bytes > self._max_bytes:
                _, oldest = self._items.popitem(last=False)
                self._n_bytes -= sum(map(len, oldest))

    def items(self, response_id: str) -> list[Any]:
        """Return the items of a response.

        Raises:
            ApiError: it is not kept.
        """
        with self._lock:
            written = self._items.get(response_id)
        if written is None:
            raise ApiError(
                f"There is no response {response_id[:80]!r} any more; send the full input.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return [json.loads(item) for item in written]
