"""From a request to the ``Reply`` that answers it in its own interface."""

from ds4agent.server.api.output import Reply
from ds4agent.server.api.request import ApiRequest


def reply_to(request: ApiRequest, reply_id: str, created: int) -> Reply:
    """Begin a reply.

    Args:
        request: What it answers.
        reply_id: From ``new_reply_id``.
        created: Now, in seconds since 1970.
    """
    raise NotImplementedError
