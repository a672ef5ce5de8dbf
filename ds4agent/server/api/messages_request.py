"""Reading a request of Anthropic's Messages interface, and of its ``count_tokens``."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from ds4agent.server.api.answer_form import read_answer_form
from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields, wrong
from ds4agent.server.api.pairing import check_pairs
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.settings import (
    read_effort,
    read_limit,
    read_sampling,
    read_stop,
    read_thinking_switch,
    resolve_thinking,
)
from ds4agent.server.api.tools import check_names, choose_tools, read_function
from engine.chat.conversation import Call, Conversation, Message
from engine.chat.format import ToolSpec

_ROLES = ("user", "assistant", "system")
_CHOICES = ("auto", "any", "tool", "none")
# Claude Code sends a billing header as system text; it changes, and would break every cache.
_TRANSIENT = "x-anthropic-"
_NO_IMAGE = "[image left out: this model reads text only]"


def parse_messages(
    fields: Fields, model: ServedModel, live_call_ids: Collection[str] = ()
) -> ApiRequest:
    """Read and check a request.

    Args:
        fields: The body.
        model: What will answer.
        live_call_ids: Calls of the live state, whose results need no call before them.

    Raises:
        ApiError: it can't be answered.
    """
    asked_model = fields.text("model", model.name)
    messages = [*_system(fields), *_messages(fields)]
    pairing = check_pairs(messages, Api.MESSAGES, live_call_ids)
    config = fields.object("output_config")
    effort = read_effort(config, "effort") or read_effort(fields, "reasoning_effort")
    thinking, effort = resolve_thinking(model, asked_model, read_thinking_switch(fields), effort)
    tools = check_names([_tool(item) for item in fields.objects("tools")])
    choice, callable_tools, must_call, is_parallel = _tool_choice(fields, tools, thinking)
    wanted = fields.object("output_format")
    if config is not None and wanted is None:
        wanted = config.object("format")
    form, asked_format = read_answer_form(wanted)
    conversation = Conversation(
        tuple(messages),
        tools,
        thinking,
        effort,
        choice,
        asked_format if model.asks_for_formats else None,
    )
    return ApiRequest(
        Api.MESSAGES,
        asked_model,
        conversation,
        read_sampling(fields, model, thinking=thinking, tools=bool(callable_tools)),
        read_limit(fields, "max_tokens"),
        read_stop(fields, "stop_sequences"),
        fields.boolean("stream"),
        callable_tools=callable_tools,
        must_call=must_call,
        parallel_calls=is_parallel,
        answer_form=form,
        result_ids=pairing.result_ids,
        needs_live_state=pairing.needs_live_state,
    )


def _system(fields: Fields) -> Iterator[Message]:
    value = fields.get("system")
    if value is None:
        return
    texts = [value] if isinstance(value, str) else _block_texts(fields, "system")
    kept = [text for text in texts if text and not text.startswith(_TRANSIENT)]
    if kept:
        yield Message("system", "\n\n".join(kept))


def _block_texts(fields: Fields, name: str) -> list[str]:
    texts = []
    for block in fields.objects(name):
        block.one_of("type", ("text",), "text")
        texts.append(block.text("text"))
    return texts


def _messages(fields: Fields) -> list[Message]:
    items = list(fields.objects("messages"))
    if not items:
        raise ApiError("messages is empty, expected at least one message.", param="messages")
    messages: list[Message] = []
    has_reply = False
    for index, item in enumerate(items):
        match item.one_of("role", _ROLES):
            case "system":
                # After the first reply it stays where it stands: a chat format may lift it to
                # the top, and there it would change the whole prompt.
                messages += [
                    Message("user" if has_reply else "system", text) for text in _texts(item)
                ]
            case "user":
                messages += _user(item)
            case _:
                has_reply = True
                messages.append(_assistant(item, is_last=index == len(items) - 1))
    return messages


def _texts(fields: Fields) -> list[str]:
    value = fields.get("content")
    return [value] if isinstance(value, str) else _block_texts(fields, "content")


def _user(fields: Fields) -> Iterator[Message]:
    """Yield the results and texts of a message in their order, texts in a row as one."""
    value = fields.get("content")
    if isinstance(value, str):
        yield Message("user", value)
        return
    if value is None:
        raise wrong(fields.at("content"), value, "a text or a list of blocks")
    texts: list[str] = []
    for block in fields.objects("content"):
        kind = block.text("type")
        match kind:
            case "text":
                texts.append(block.text("text"))
            case "document":
                texts.append(_document(block))
            case "tool_result":
                if texts:
                    yield Message("user", "\n\n".join(texts))
                    texts = []
                yield Message("tool", _result(block), call_id=block.text("tool_use_id"))
            case _:
                raise _unknown_block(block, kind, "text, document or tool_result")
    if texts or not fields.list("content"):
        yield Message("user", "\n\n".join(texts))


def _document(block: Fields) -> str:
    source = block.object("source")
    if source is None:
        raise wrong(block.at("source"), None, "an object")
    source.one_of("type", ("text",))
    return source.text("data")


def _result(block: Fields) -> str:
    """Read the text of a result. An image in one can't be undone by a person, so it is named and
    left out instead of refused."""
    value = block.get("content")
    if value is None or isinstance(value, str):
        return value or ""
    texts = []
    for part in block.objects("content"):
        kind = part.text("type")
        match kind:
            case "text":
                texts.append(part.text("text"))
            case "image":
                texts.append(_NO_IMAGE)
            case _:
                texts.append(json.dumps(part.raw, ensure_ascii=False))
    return "\n\n".join(texts)


def _assistant(fields: Fields, *, is_last: bool) -> Message:
    """Read a reply. The last message of a request is one that the model is to go on with."""
    value = fields.get("content")
    if isinstance(value, str):
        return Message("assistant", value, is_prefix=is_last and bool(value))
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for block in fields.objects("content"):
        kind = block.text("type")
        match kind:
            case "text":
                texts.append(block.text("text"))
            case "thinking":
                thoughts.append(block.text("thinking"))
            case "redacted_thinking":
                continue
            case "tool_use":
                calls.append(_call(block))
            case _:
                raise _unknown_block(block, kind, "text, thinking or tool_use")
    text = "\n\n".join(texts)
    return Message(
        "assistant",
        text,
        "".join(thoughts) if thoughts else None,
        tuple(calls),
        is_prefix=is_last and bool(text) and not calls,
    )


def _call(block: Fields) -> Call:
    value = block.object("input")
    arguments = json.dumps(value.raw if value else {}, ensure_ascii=False)
    return Call(block.text("id"), block.text("name"), arguments)


def _unknown_block(block: Fields, kind: str, expected: str) -> ApiError:
    return ApiError(
        f"{block.at('type')} is {kind[:80]!r}, expected {expected}: this model reads text only.",
        param=block.at("type"),
    )


def _tool(fields: Fields) -> ToolSpec:
    kind = fields.text("type", "custom")
    if kind != "custom":
        raise ApiError(
            f"{fields.at('type')} is {kind[:80]!r}, expected custom: this server runs no tools of "
            "its own.",
            param=fields.at("type"),
        )
    return read_function(fields, "input_schema")


def _tool_choice(
    fields: Fields, tools: tuple[ToolSpec, ...], thinking: bool
) -> tuple[str, tuple[ToolSpec, ...], bool, bool]:
    """Return the choice as the prompt has it, what may be called, whether one must be, and whether
    several may. A call can't be forced while the model thinks: there it stays free."""
    value: Any = fields.object("tool_choice")
    if value is None:
        return "auto", tools, False, True
    is_parallel = not value.boolean("disable_parallel_tool_use")
    match value.one_of("type", _CHOICES):
        case "none":
            return "none", (), False, is_parallel
        case "tool":
            chosen = choose_tools(tools, [value.text("name")])
            return "auto", tools if thinking else chosen, not thinking, is_parallel
        case "any":
            if not tools:
                raise ApiError("tool_choice is any, but there are no tools.", param="tools")
            return "auto", tools, not thinking, is_parallel
    return "auto", tools, False, is_parallel
