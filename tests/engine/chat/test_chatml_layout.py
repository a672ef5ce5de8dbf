"""Whole conversations in ChatML: past thinking, calls and results, and growth."""

import dataclasses

import pytest

from engine.chat.chatml import ChatmlFormat
from engine.chat.chatml_layout import ChatmlLayout
from engine.chat.conversation import Call, Conversation, Message, ResponseFormat, render_whole
from engine.chat.incremental import IncrementalPrompt
from engine.chat.segments import encode, plain_text
from engine.errors import ConversationError
from engine.tokenizer import Tokenizer

CALLS = (Call("a", "ls", "{}"), Call("b", "read", '{"path":"x"}'))
TALK = Conversation(
    (
        Message("system", "S"),
        Message("user", "one"),
        Message("assistant", "first", reasoning="old"),
        Message("user", "two"),
        Message("assistant", "I look.", reasoning="new", calls=CALLS),
        Message("tool", "B", call_id="b"),
        Message("tool", "A", call_id="a"),
    ),
    thinking=True,
)
END_OF_TALK = (
    '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>\n'
    '<tool_call>\n{"name": "read", "arguments": {"path": "x"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n<tool_response>\nA\n</tool_response>\n"
    "<tool_response>\nB\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
)


def text(conversation: Conversation, tokenizer: Tokenizer) -> str:
    return plain_text(render_whole(conversation, ChatmlLayout(ChatmlFormat(tokenizer))))


def test_model_that_thinks_sees_its_last_thinking(thinking_tokenizer: Tokenizer) -> None:
    said = text(TALK, thinking_tokenizer)
    assert "old" not in said
    assert said.endswith("<think>\nnew\n</think>\n\nI look.\n" + END_OF_TALK)


def test_model_that_cannot_think_sees_none(chatml_tokenizer: Tokenizer) -> None:
    said = text(TALK, chatml_tokenizer)
    assert "think" not in said
    assert said.endswith("<|im_start|>assistant\nI look.\n" + END_OF_TALK)


def test_growing_message_by_message_equals_the_whole(thinking_tokenizer: Tokenizer) -> None:
    layout = ChatmlLayout(ChatmlFormat(thinking_tokenizer))
    prompt = IncrementalPrompt(layout, thinking_tokenizer)
    for n_messages in range(len(TALK.messages) + 1):
        part = dataclasses.replace(TALK, messages=TALK.messages[:n_messages])
        prompt.update(part)
        assert prompt.token_ids == encode(render_whole(part, layout), thinking_tokenizer)


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (Message("latest_reminder", "x"),)},
        {"response_format": ResponseFormat()},
        {"tool_choice": "required"},
    ],
)
def test_what_has_no_form_is_refused(change: dict, chatml_tokenizer: Tokenizer) -> None:
    with pytest.raises(ConversationError, match="chatml has no form for"):
        text(dataclasses.replace(TALK, **change), chatml_tokenizer)
