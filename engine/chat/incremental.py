"""Rendering a conversation that grows: only what is new since the last time is encoded.

The tokens of a prompt are those of its turns, one after the other (``engine.chat.conversation``).
A turn that is the same as last time, at the same place, has the same tokens; so the work of an
update is that of the turns from the first difference on.
"""

from dataclasses import dataclass

from engine.chat.conversation import Conversation, PromptLayout, Turn
from engine.chat.segments import encode
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class PromptUpdate:
    """How the prompt has changed: ``n_kept`` tokens stay, then ``new_ids`` follow."""

    n_kept: int
    new_ids: tuple[int, ...]


class IncrementalPrompt:
    """The tokens of one conversation, kept up to date."""

    def __init__(self, layout: PromptLayout, tokenizer: Tokenizer) -> None:
        """Start with no tokens."""
        self._layout = layout
        self._tokenizer = tokenizer
        self._turns: list[Turn] = []
        self._ends: list[int] = []  # number of tokens up to and with each turn
        self._ids: list[int] = []

    @property
    def token_ids(self) -> list[int]:
        """The whole prompt."""
        return list(self._ids)

    def update(self, conversation: Conversation) -> PromptUpdate:
        """Take over the conversation as it is now.

        Raises:
            ConversationError: it has something that the format has no form for.
            ModelFileError: the vocabulary lacks a control token of the format.
            The state is then as before.
        """
        turns = self._layout.turns(conversation)
        n_same = 0
        for old, new in zip(self._turns, turns, strict=False):
            if old != new:
                break
            n_same += 1
        n_kept = self._ends[n_same - 1] if n_same else 0
        new_ids: list[int] = []
        ends: list[int] = []
        for turn in turns[n_same:]:
            new_ids += encode(self._layout.turn_segments(turn), self._tokenizer)
            ends.append(n_kept + len(new_ids))
        self._turns = turns
        self._ends[n_same:] = ends
        self._ids[n_kept:] = new_ids
        return PromptUpdate(n_kept, tuple(new_ids))
