"""From a request to the tokens of its prompt, and how many there are."""

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import ApiRequest
from engine.chat.chatml import ChatmlFormat
from engine.chat.chatml_layout import ChatmlLayout
from engine.chat.conversation import Conversation, PromptLayout, render_whole
from engine.chat.format import ChatFormat
from engine.chat.replay import CallReplay
from engine.chat.segments import Segment, encode
from engine.errors import ConversationError
from engine.tokenizer import Tokenizer


def layout_of(chat: ChatFormat) -> PromptLayout:
    """Return how the models of a chat format see whole conversations."""
    return ChatmlLayout(chat) if isinstance(chat, ChatmlFormat) else chat.layout


def render(
    request: ApiRequest, layout: PromptLayout, replay: CallReplay | None = None
) -> list[Segment]:
    """Return the prompt of a request; past calls as they were sampled, where ``replay`` knows them.

    Raises:
        ApiError: the chat format has no form for a part of the conversation.
    """
    return render_conversation(request.conversation, layout, replay)


def render_conversation(
    conversation: Conversation, layout: PromptLayout, replay: CallReplay | None = None
) -> list[Segment]:
    """The same for a conversation alone."""
    if replay is not None:
        conversation = replay.restore(conversation)
    try:
        return render_whole(conversation, layout)
    except ConversationError as error:
        hint = f" {error.hint}" if error.hint else ""
        raise ApiError(f"{error}.{hint}") from error


def count_tokens(request: ApiRequest, layout: PromptLayout, tokenizer: Tokenizer) -> dict[str, int]:
    """Return the answer of ``/v1/messages/count_tokens``.

    Raises:
        ApiError: the chat format has no form for a part of the conversation.
    """
    return {"input_tokens": len(encode(render(request, layout), tokenizer))}
