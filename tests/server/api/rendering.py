"""The prompt of a request, rendered whole: the obvious way."""

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import ApiRequest
from engine.chat.conversation import PromptLayout, render_whole
from engine.chat.replay import CallReplay
from engine.chat.segments import Segment
from engine.errors import ConversationError


def render(
    request: ApiRequest, layout: PromptLayout, replay: CallReplay | None = None
) -> list[Segment]:
    """Render a request; past calls as they were sampled, where ``replay`` knows them."""
    conversation = request.conversation
    if replay is not None:
        conversation = replay.restore(conversation)
    try:
        return render_whole(conversation, layout)
    except ConversationError as error:
        raise ApiError(f"{error}. {error.hint}") from error
