"""Reading a request of OpenAI's Responses interface. Its items are read in ``responses_items``,
its tools in ``responses_tools``."""

from collections.abc import Collection
from typing import Any

from ds4agent.server.api.answer_form import read_answer_form
from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.pairing import check_pairs
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.responses_items import input_items, read_input
from ds4agent.server.api.responses_tools import DeclaredTools, read_tools
from ds4agent.server.api.settings import read_effort, read_limit, read_sampling, resolve_thinking
from ds4agent.server.api.tools import (
    choose_tools,
    read_allowed_tools,
    refuse_forced_call_in_thinking,
)
from engine.chat.conversation import Conversation, Message
from engine.chat.format import ToolSpec

_CHOICES = ("auto", "none", "required")
_ENCRYPTED = "reasoning.encrypted_content"


def parse_responses(
    fields: Fields,
    model: ServedModel,
    live_call_ids: Collection[str] = (),
    memory: ResponseMemory | None = None,
) -> ApiRequest:
    """Read and check a request.

    Args:
        fields: The body.
        model: What will answer.
        live_call_ids: Calls of the live state, whose results need no call before them.
        memory: Has the responses that this one may go on from.

    Raises:
        ApiError: it can't be answered.
    """
    _refuse_what_is_missing(fields)
    previous_id = fields.text("previous_response_id", "")
    if previous_id and memory is not None:
        items = [*memory.items(previous_id), *input_items(fields)]
        fields = Fields({**fields.raw, "input": items})
    asked_model = fields.text("model", model.name)
    messages = read_input(fields)
    instructions = fields.text("instructions", "")
    if instructions:
        messages = [Message("system", instructions), *messages]
    if not messages:
        raise ApiError("missing input", param="input")
    pairing = check_pairs(messages, Api.RESPONSES, live_call_ids)
    reasoning = fields.object("reasoning")
    update = _updates(fields)
    effort = read_effort(update.object("reasoning"), "effort") or read_effort(reasoning, "effort")
    thinking, effort = resolve_thinking(model, asked_model, None, effort)
    declared = read_tools(fields)
    choice, callable_tools, must_call = _tool_choice(fields, declared, thinking)
    text = update.object("text") or fields.object("text")
    form, asked_format = read_answer_form(text.object("format") if text else None)
    conversation = Conversation(
        tuple(messages),
        declared.tools,
        thinking,
        effort,
        choice,
        asked_format if model.asks_for_formats else None,
    )
    return ApiRequest(
        Api.RESPONSES,
        asked_model,
        conversation,
        read_sampling(fields, model, thinking=thinking, tools=bool(callable_tools)),
        read_limit(fields, "max_output_tokens", "max_tokens"),
        stream=fields.boolean("stream"),
        callable_tools=callable_tools,
        must_call=must_call,
        parallel_calls=fields.boolean("parallel_tool_calls", True),
        answer_form=form,
        encrypts_thinking=_ENCRYPTED in fields.list("include"),
        names=declared.names,
        result_ids=pairing.result_ids,
        needs_live_state=pairing.needs_live_state,
        items=tuple(input_items(fields)) if fields.boolean("store", True) else None,
        echo=_echo(fields, reasoning, effort),
    )


def _tool_choice(
    fields: Fields, declared: DeclaredTools, thinking: bool
) -> tuple[str, tuple[ToolSpec, ...], bool]:
    """Return the choice as the prompt has it, what may be called, and whether one must be."""
    tools = declared.tools
    if isinstance(fields.get("tool_choice"), dict):
        named = fields.object("tool_choice")
        if named.one_of("type", ("function", "custom", "allowed_tools")) == "allowed_tools":
            allowed, must_call = read_allowed_tools(named, tools)
        else:
            allowed, must_call = choose_tools(tools, [_whole_name(named)]), True
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


def _whole_name(named: Fields) -> str:
    return named.text("namespace", "") + named.text("name")


def _updates(fields: Fields) -> Fields:
    """Return the settings that items of the input change, later ones over earlier ones."""
    merged: dict[str, Any] = {}
    if isinstance(fields.get("input"), list):
        for item in fields.objects("input"):
            if item.get("type") == "configuration_update":
                merged |= {key: value for key, value in item.raw.items() if value is not None}
    return Fields(merged, "input")


def _refuse_what_is_missing(fields: Fields) -> None:
    """Refuse what the server would have to remember or to run by itself."""
    for name in ("conversation", "prompt"):
        if name in fields:
            raise ApiError(f"{name} is not supported; replay the full input instead.", param=name)
    if fields.boolean("background"):
        raise ApiError("background is not supported, expected false.", param="background")
    if fields.integer("top_logprobs", 0, 20):
        raise ApiError("top_logprobs is not supported, expected 0.", param="top_logprobs")


def _echo(fields: Fields, reasoning: Fields | None, effort: str | None) -> dict[str, Any]:
    """Return the settings that a response repeats, with the default where nothing was said."""
    text = fields.object("text")
    summary = reasoning.get("summary") if reasoning else None
    return {
        "background": False,
        "frequency_penalty": 0.0,
        "instructions": fields.get("instructions"),
        "max_output_tokens": fields.get("max_output_tokens"),
        "max_tool_calls": None,
        "parallel_tool_calls": fields.boolean("parallel_tool_calls", True),
        "presence_penalty": 0.0,
        "previous_response_id": fields.get("previous_response_id"),
        "prompt_cache_key": fields.get("prompt_cache_key"),
        "prompt_cache_retention": None,
        "reasoning": {"effort": effort or "none", "summary": summary},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": fields.number("temperature", 1.0, 0, 2),
        "text": {
            "format": (text.get("format") if text else None) or {"type": "text"},
            "verbosity": text.get("verbosity") if text else None,
        },
        "tool_choice": fields.get("tool_choice") or "auto",
        "tools": fields.list("tools"),
        "top_logprobs": 0,
        "top_p": fields.number("top_p", 1.0, 0, 1),
        "truncation": "disabled",
        "user": fields.get("user"),
        "metadata": fields.get("metadata") or {},
    }
