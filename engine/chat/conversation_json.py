"""Reading a conversation from JSON: the field names of the public chat interface.

    {"messages": [...], "tools": [...], "thinking": true, "reasoning_effort": "high",
     "tool_choice": "auto", "response_format": null}

Only ``messages`` is needed. A tool is a function object, bare or wrapped as
``{"type": "function", "function": {...}}``. Half a surrogate pair, which no encoding can carry,
becomes U+FFFD.
"""

from typing import Any, NoReturn

from engine.chat.conversation import Call, Conversation, Effort, Message, ResponseFormat
from engine.chat.effort import EFFORTS
from engine.chat.format import ToolSpec
from engine.errors import ConversationError

_ROLES = ("system", "user", "developer", "assistant", "tool", "latest_reminder")
_CHOICES = ("auto", "none", "required")
_FIELDS = {
    "messages",
    "tools",
    "thinking",
    "effort",
    "reasoning_effort",
    "tool_choice",
    "response_format",
}


def read_conversation(data: Any) -> Conversation:
    """Turn parsed JSON into a conversation.

    Raises:
        ConversationError: a field is unknown or has a wrong type or value; the message names it.
    """
    data = _whole(_object(data, "the file"))
    for name in data:
        if name not in _FIELDS:
            _fail(f"the field {name!r} is unknown, expected {', '.join(sorted(_FIELDS))}")
    if "effort" in data and "reasoning_effort" in data:
        _fail("the file has both effort and reasoning_effort, expected one")
    messages = _list(data.get("messages"), "messages")
    conversation = Conversation(
        tuple(_message(item, f"messages[{i}]") for i, item in enumerate(messages)),
        tuple(
            _tool(t, f"tools[{i}]") for i, t in enumerate(_list(data.get("tools") or [], "tools"))
        ),
        _boolean(data.get("thinking", False), "thinking"),
        _effort(data.get("effort", data.get("reasoning_effort"))),
        _one_of(data.get("tool_choice") or "auto", _CHOICES, "tool_choice"),
        _response_format(data.get("response_format")),
    )
    for index, message in enumerate(conversation.messages[:-1]):
        if message.is_prefix:
            _fail(f"messages[{index}].prefix is true, expected only in the last message")
    return conversation


def _message(data: Any, where: str) -> Message:
    fields = _object(data, where)
    role = _one_of(fields.get("role"), _ROLES, f"{where}.role")
    reasoning = fields.get("reasoning_content")
    calls = _list(fields.get("tool_calls") or [], f"{where}.tool_calls")
    is_prefix = _boolean(fields.get("prefix") or False, f"{where}.prefix")
    if role != "assistant" and (calls or is_prefix or reasoning is not None):
        _fail(
            f"{where} is a {role} message with reasoning_content, tool_calls or prefix, "
            "expected these in assistant messages only"
        )
    if is_prefix and calls:
        _fail(f"{where} is a prefix with tool_calls, expected text to continue")
    return Message(
        role,
        _text(fields.get("content"), f"{where}.content"),
        None if reasoning is None else _string(reasoning, f"{where}.reasoning_content"),
        tuple(_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)),
        _string(fields.get("tool_call_id") or "", f"{where}.tool_call_id"),
        is_prefix,
    )


def _call(data: Any, where: str) -> Call:
    fields = _object(data, where)
    function = _object(fields.get("function", fields), f"{where}.function")
    return Call(
        _string(fields.get("id") or "", f"{where}.id"),
        _string(function.get("name"), f"{where}.function.name"),
        _string(function.get("arguments"), f"{where}.function.arguments"),
    )


def _tool(data: Any, where: str) -> ToolSpec:
    fields = _object(data, where)
    if fields.get("type") == "function" and "function" in fields:
        fields = _object(fields["function"], f"{where}.function")
    return ToolSpec(
        _string(fields.get("name"), f"{where}.name"),
        _string(fields.get("description") or "", f"{where}.description"),
        _object(fields.get("parameters") or {}, f"{where}.parameters"),
    )


def _text(value: Any, where: str) -> str:
    """Read a content: text, nothing, or text parts, which are joined by an empty line."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return _string(value, where)
    parts = [_object(part, f"{where}[{i}]") for i, part in enumerate(value)]
    for index, part in enumerate(parts):
        if part.get("type", "text") != "text":
            _fail(f"{where}[{index}].type is {part['type']!r}, expected text")
    return "\n\n".join(_string(p.get("text"), f"{where}[{i}].text") for i, p in enumerate(parts))


def _effort(value: Any) -> Effort:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return _one_of(value, EFFORTS, "effort")


def _response_format(value: Any) -> ResponseFormat | None:
    if value is None:
        return None
    fields = _object(value, "response_format")
    kinds = ("text", "json_object", "json_schema", "regex")
    match _one_of(fields.get("type"), kinds, "response_format.type"):
        case "json_object":
            return ResponseFormat()
        case "json_schema":
            wrapped = fields.get("json_schema")
            schema = wrapped.get("schema") if isinstance(wrapped, dict) else fields.get("schema")
            return ResponseFormat(_object(schema, "response_format.schema"))
        case _:  # a pattern constrains decoding and leaves no trace in the prompt
            return None


# --- values -------------------------------------------------------------------------------------


def _fail(message: str) -> NoReturn:
    raise ConversationError(message, "Correct the file.")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _fail(f"{where} is {_kind(value)}, expected an object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        _fail(f"{where} is {_kind(value)}, expected a list")
    return value


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        _fail(f"{where} is {_kind(value)}, expected a text")
    return value


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        _fail(f"{where} is {_kind(value)}, expected true or false")
    return value


def _one_of(value: Any, choices: tuple[str, ...], where: str) -> str:
    if value not in choices:
        shown = repr(value)[:80] if isinstance(value, str) else _kind(value)
        _fail(f"{where} is {shown}, expected one of {', '.join(choices)}")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "missing or null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return names.get(type(value), "a list" if isinstance(value, list) else "an object")


def _whole(value: Any) -> Any:
    """Replace half surrogate pairs in every text."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
