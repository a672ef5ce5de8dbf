"""Reading a Chat Completions request."""

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
from ds4agent.server.api.tools import (
    check_names,
    choose_tools,
    read_allowed_tools,
    read_function,
    refuse_forced_call_in_thinking,
)
from engine.chat.conversation import Call, Conversation, Message
from engine.chat.format import ToolSpec

_ROLES = ("system", "user", "assistant", "tool", "latest_reminder")
_CHOICES = ("auto", "none", "required")


def parse_chat(fields: Fields, model: ServedModel) -> ApiRequest:
    """Read and check a request.

    Raises:
        ApiError: it can't be answered.
    """
    refuse_what_is_missing(fields)
    asked_model = fields.text("model", model.name)
    messages = tuple(_message(item) for item in fields.objects("messages"))
    if not messages:
        raise ApiError("Empty input messages", param="messages")
    _check_prefix(messages)
    pairing = check_pairs(messages, Api.CHAT)
    thinking, effort = resolve_thinking(
        model, asked_model, _thinking_switch(fields), read_effort(fields, "reasoning_effort")
    )
    tools = check_names([_tool(item) for item in fields.objects("tools")])
    choice, callable_tools, must_call = _tool_choice(fields, tools, thinking)
    form, asked_format = read_answer_form(fields.object("response_format"))
    options = fields.object("stream_options")
    conversation = Conversation(
        messages,
        tools,
        thinking,
        effort,
        choice,
        asked_format if model.asks_for_formats else None,
    )
    return ApiRequest(
        Api.CHAT,
        asked_model,
        conversation,
        read_sampling(fields, model, thinking=thinking, tools=bool(callable_tools)),
        read_limit(fields, "max_completion_tokens", "max_tokens"),
        read_stop(fields, "stop"),
        fields.boolean("stream"),
        options is not None and options.boolean("include_usage"),
        callable_tools=callable_tools,
        must_call=must_call,
        parallel_calls=fields.boolean("parallel_tool_calls", True),
        answer_form=form,
        result_ids=pairing.result_ids,
    )


def refuse_what_is_missing(fields: Fields) -> None:
    """Refuse what would change the answer and is not there: more than one choice, logprobs."""
    if fields.get("n") not in (None, 1):
        raise ApiError("Invalid n value (currently only n = 1 is supported)", param="n")
    logprobs = fields.get("logprobs")
    if logprobs is not None and logprobs is not False:
        raise ApiError("logprobs is not supported, expected false.", param="logprobs")


def text_of(value: Any, where: str) -> str:
    """Read a content: text, nothing, or text parts, which are joined by an empty line."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(where, value, "a text or a list of parts")
    texts = []
    for index, item in enumerate(value):
        part = Fields(item, f"{where}[{index}]")
        kind = part.text("type", "text")
        if kind not in ("text", "refusal"):
            raise ApiError(
                f"{part.at('type')} is {kind[:80]!r}, expected text: this model reads text only.",
                param=part.at("type"),
            )
        texts.append(part.text(kind))
    return "\n\n".join(texts)


def _message(fields: Fields) -> Message:
    role = fields.one_of("role", _ROLES)
    content = text_of(fields.get("content"), fields.at("content"))
    if role == "tool":
        return Message(role, content, call_id=fields.text("tool_call_id"))
    if role != "assistant":
        return Message(role, content)
    name = "reasoning_content" if "reasoning_content" in fields else "reasoning"
    reasoning = fields.text(name) if name in fields else None
    calls = tuple(_call(item) for item in fields.objects("tool_calls"))
    is_prefix = fields.boolean("prefix")
    if is_prefix and calls:
        raise ApiError(
            f"{fields.where} is a prefix with tool_calls, expected text to continue.",
            param=fields.at("tool_calls"),
        )
    return Message(role, content, reasoning, calls, is_prefix=is_prefix)


def _call(fields: Fields) -> Call:
    function = fields.object("function")
    if function is None:
        raise wrong(fields.at("function"), None, "an object")
    return Call(fields.text("id"), function.text("name"), function.text("arguments", "{}"))


def _check_prefix(messages: tuple[Message, ...]) -> None:
    for index, message in enumerate(messages[:-1]):
        if message.is_prefix:
            raise ApiError(
                f"messages[{index}].prefix is true, expected only in the last message.",
                param=f"messages[{index}].prefix",
            )


def _thinking_switch(fields: Fields) -> bool | None:
    """Read the switches of DeepSeek, antirez/ds4 and vLLM, in this order."""
    switch = read_thinking_switch(fields)
    if switch is None and "think" in fields:
        switch = fields.boolean("think")
    template = fields.object("chat_template_kwargs")
    for name in ("thinking", "enable_thinking"):
        if switch is None and template is not None and name in template:
            switch = template.boolean(name)
    return switch


def _tool(fields: Fields) -> ToolSpec:
    fields.one_of("type", ("function",), "function")
    function = fields.object("function")
    if function is None:
        raise wrong(fields.at("function"), None, "an object")
    return read_function(function)


def _tool_choice(
    fields: Fields, tools: tuple[ToolSpec, ...], thinking: bool
) -> tuple[str, tuple[ToolSpec, ...], bool]:
    """Return the choice as the prompt has it, what may be called, and whether one must be."""
    value = fields.get("tool_choice")
    if isinstance(value, dict):
        named = Fields(value, "tool_choice")
        kind = named.one_of("type", ("function", "allowed_tools"))
        inner = named.object(kind)
        if inner is None:
            raise wrong(named.at(kind), None, "an object")
        if kind == "allowed_tools":
            allowed, must_call = read_allowed_tools(inner, tools)
        else:
            allowed, must_call = choose_tools(tools, [inner.text("name")]), True
        if must_call:
            refuse_forced_call_in_thinking(thinking)
        return "auto", allowed, must_call
    choice = fields.one_of("tool_choice", _CHOICES, "auto")
    if choice == "required":
        refuse_forced_call_in_thinking(thinking)
        if not tools:
            raise ApiError("tool_choice is required, but there are no tools.", param="tools")
        return "auto", tools, True
    return choice, (() if choice == "none" else tools), False
