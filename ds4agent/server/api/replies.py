"""From a request to the ``Reply`` that answers it in its own interface."""

import secrets
import time
from collections.abc import Callable

from ds4agent.server.api.chat_reply import ChatReply
from ds4agent.server.api.completions_reply import CompletionReply
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.messages_reply import MessagesReply
from ds4agent.server.api.output import Reply
from ds4agent.server.api.request import Api, ApiRequest
from ds4agent.server.api.responses_reply import ResponsesReply

_PREFIXES = {
    Api.CHAT: "chatcmpl-",
    Api.COMPLETIONS: "cmpl-",
    Api.MESSAGES: "msg_",
    Api.RESPONSES: "resp_",
}


def new_reply_id(api: Api) -> str:
    """Return a new id in the manner of an interface."""
    return _PREFIXES[api] + secrets.token_hex(12)


def reply_to(
    request: ApiRequest,
    reply_id: str,
    created: int,
    clock: Callable[[], float] = time.time,
    memory: ResponseMemory | None = None,
) -> Reply:
    """Begin a reply.

    Args:
        request: What it answers.
        reply_id: From ``new_reply_id``.
        created: Now, in seconds since 1970.
        clock: Tells when it is complete, in seconds since 1970.
        memory: Gets a response that a later one may go on from.
    """
    match request.api:
        case Api.CHAT:
            return ChatReply(request, reply_id, created)
        case Api.COMPLETIONS:
            return CompletionReply(request, reply_id, created)
        case Api.MESSAGES:
            return MessagesReply(request, reply_id)
        case Api.RESPONSES:
            return ResponsesReply(request, reply_id, created, clock, memory)
