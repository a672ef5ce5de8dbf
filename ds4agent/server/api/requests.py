"""From the body of a request to an ``ApiRequest``: picks the interface's own reader."""

from collections.abc import Collection
from typing import Any

from ds4agent.server.api.request import Api, ApiRequest, ServedModel


def parse(
    api: Api,
    body: bytes | dict[str, Any],
    model: ServedModel,
    *,
    live_call_ids: Collection[str] = (),
) -> ApiRequest:
    """Read and check a request.

    Args:
        api: The interface, by the path it came through.
        body: As received, or already parsed.
        model: What will answer it.
        live_call_ids: Calls that the live state waits for: results of these may come without the
            conversation before them (Responses and Messages).

    Raises:
        ApiError: it can't be answered; status 4xx.
    """
    raise NotImplementedError
