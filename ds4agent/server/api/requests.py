"""From the body of a request to an ``ApiRequest``: picks the interface's own reader."""

from collections.abc import Collection
from typing import Any

from ds4agent.server.api.body import read_body
from ds4agent.server.api.chat_request import parse_chat
from ds4agent.server.api.completions_request import parse_completion
from ds4agent.server.api.fields import Fields
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.messages_request import parse_messages
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.responses_request import parse_responses


def parse(
    api: Api,
    body: bytes | dict[str, Any],
    model: ServedModel,
    *,
    live_call_ids: Collection[str] = (),
    memory: ResponseMemory | None = None,
) -> ApiRequest:
    """Read and check a request.

    Args:
        api: The interface, by the path it came through.
        body: As received, or already parsed.
        model: What will answer it.
        live_call_ids: Calls that the live state waits for: results of these may come without the
            conversation before them (Responses and Messages).
        memory: Has the responses that a request may go on from; without one, nothing is known of
            them and a request stands for itself.

    Raises:
        ApiError: it can't be answered; status 4xx.
    """
    fields = Fields(read_body(body))
    match api:
        case Api.CHAT:
            return parse_chat(fields, model)
        case Api.RESPONSES:
            return parse_responses(fields, model, live_call_ids, memory)
        case Api.MESSAGES:
            return parse_messages(fields, model, live_call_ids)
        case Api.COMPLETIONS:
            return parse_completion(fields, model)
