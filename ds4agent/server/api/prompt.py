"""How the models of a chat format see the conversation of a request."""

from engine.chat.chatml import ChatmlFormat
from engine.chat.chatml_layout import ChatmlLayout
from engine.chat.conversation import PromptLayout
from engine.chat.format import ChatFormat


def layout_of(chat: ChatFormat) -> PromptLayout:
    """Return the layout of whole conversations."""
    return ChatmlLayout(chat) if isinstance(chat, ChatmlFormat) else chat.layout
