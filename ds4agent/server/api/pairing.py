"""Calls and their results: each has its other half, or the conversation makes no sense."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import Api
from engine.chat.conversation import Message

_INSUFFICIENT = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. (insufficient tool messages following tool_calls message)"
)


@dataclass(frozen=True, slots=True)
class Pairing:
    """What ``check_pairs`` found.

    Attributes:
        result_ids: Ids of the results at the very end; empty where something else follows.
        needs_live_state: Some of them answer calls of the live state only.
    """

    result_ids: tuple[str, ...]
    needs_live_state: bool


def check_pairs(
    messages: Sequence[Message], api: Api, live_call_ids: Collection[str] = ()
) -> Pairing:
    """Check that every call has a result before the next reply, and every result a call.

    Args:
        messages: The conversation.
        api: The interface, for the words of an error.
        live_call_ids: Calls of the live state, whose results need no call before them.

    Raises:
        ApiError: a call or a result is alone.
    """
    open_ids: dict[str, None] = {}  # calls that have no result yet, in their order
    called: set[str] = set()
    needs_live_state = False
    for message in messages:
        if message.role == "tool":
            if message.call_id in open_ids:
                del open_ids[message.call_id]
            elif message.call_id not in called and message.call_id in live_call_ids:
                needs_live_state = True
            else:
                raise _no_call(api, message.call_id)
            continue
        if open_ids and (api is Api.CHAT or message.role == "assistant"):
            raise _no_result(api, next(iter(open_ids)))
        for call in message.calls:
            open_ids[call.call_id] = None
            called.add(call.call_id)
    if open_ids:
        raise _no_result(api, next(iter(open_ids)))
    return Pairing(_last_results(messages), needs_live_state)


def _last_results(messages: Sequence[Message]) -> tuple[str, ...]:
    ids: list[str] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        ids.append(message.call_id)
    return tuple(reversed(ids))


def _no_call(api: Api, call_id: str) -> ApiError:
    shown = call_id[:80]
    match api:
        case Api.RESPONSES:
            return ApiError(
                f"No tool call found for tool output with call_id {shown}.", param="input"
            )
        case Api.MESSAGES:
            return ApiError(
                f"A tool_result block has the tool_use_id {shown!r}, expected the id of a tool_use "
                "block in the message before it.",
                param="messages",
            )
    return ApiError(
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'. "
        f"(tool_call_id {shown!r})",
        param="messages",
    )


def _no_result(api: Api, call_id: str) -> ApiError:
    shown = call_id[:80]
    match api:
        case Api.RESPONSES:
            return ApiError(f"No tool output found for function call {shown}.", param="input")
        case Api.MESSAGES:
            return ApiError(
                f"The tool_use block {shown!r} has no tool_result block in the message after it.",
                param="messages",
            )
    return ApiError(_INSUFFICIENT, param="messages")
