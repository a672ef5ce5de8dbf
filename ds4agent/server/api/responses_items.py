"""The input items of the Responses interface, as messages.

What was one reply comes back as several items: thinking, a message, calls. They are put together
again: a reply begins with a ``reasoning`` item or with the first item of an assistant after
something else, and ends before the first item that is not of an assistant.
"""

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields, wrong
from engine.chat.conversation import Call, Message

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_BLOCKS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")
_NO_IMAGE = "[image left out: this model reads text only]"
_CALLS = {
    "function_call": "",
    "custom_tool_call": "",
    "local_shell_call": "local_shell",
    "web_search_call": "web_search_call",
    "tool_search_call": "tool_search",
    "image_generation_call": "image_generation_call",
}
_OUTPUTS = frozenset(f"{kind}_output" for kind in (*_CALLS, "tool_search"))
# What these say is read elsewhere, or only a service with a memory of its own can use it.
_SKIPPED = ("additional_tools", "compaction", "configuration_update", "context_compaction")
_SEAL = "ds4-thinking-1:"


def seal_thinking(text: str) -> str:
    """Return thinking in the form that clients keep and send back unread (``encrypted_content``).
    Not secret: the client is shown the text as well."""
    return _SEAL + base64.b64encode(text.encode()).decode()


def unseal_thinking(sealed: str) -> str | None:
    """Return the thinking, None where it was sealed by something else."""
    if not sealed.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(sealed.removeprefix(_SEAL), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def input_items(fields: Fields) -> list[Any]:
    """Return ``input`` as a list of items, unread."""
    value = fields.get("input")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return fields.list("input")


def read_input(fields: Fields) -> list[Message]:
    """Read ``input``: a text, or items.

    Raises:
        ApiError: there is none, or an item of no known kind.
    """
    value = fields.get("input")
    if value is None:
        raise ApiError("missing input", param="input")
    if isinstance(value, str):
        return [Message("user", value)]
    reader = _Reader()
    for item in fields.objects("input"):
        reader.read(item)
    reader.close()
    return reader.messages


@dataclass
class _Reader:
    messages: list[Message] = field(default_factory=list)
    reasoning: str | None = None  # of the open reply
    texts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    has_reply: bool = False
    had_reply: bool = False  # one is closed

    def read(self, item: Fields) -> None:
        kind = item.text("type", "message")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in _CALLS:
            if not (kind == "web_search_call" or kind == "image_generation_call"):
                self.has_reply = True
                self.calls.append(_call(item, _CALLS[kind]))
        elif kind in _OUTPUTS:
            self.close()
            call_id = item.text("call_id", "") or item.text("id")
            self.messages.append(Message("tool", _output(item), call_id=call_id))
        elif kind not in _SKIPPED:
            raise ApiError(
                f"{item.at('type')} is {kind[:80]!r}, expected message, reasoning, function_call "
                "or function_call_output.",
                param=item.at("type"),
            )

    def close(self) -> None:
        """End the open reply."""
        if self.has_reply:
            self.had_reply = True
            self.messages.append(
                Message("assistant", "\n\n".join(self.texts), self.reasoning, tuple(self.calls))
            )
        self.reasoning, self.texts, self.calls, self.has_reply = None, [], [], False

    def _message(self, item: Fields) -> None:
        role = item.one_of("role", _ROLES)
        text = _text_of(item.get("content"), item.at("content"))
        if role != "assistant":
            self.close()
            if role == "system" and self.had_reply:
                role = "developer"  # a chat format may lift a system text, and change the prompt
            self.messages.append(Message(role, text))
            return
        if self.texts and not self.calls:
            self.close()  # two messages in a row were two replies
        self.has_reply = True
        self.texts += [text] if text else []

    def _reasoning(self, item: Fields) -> None:
        """Begin a reply with its thinking. A summary is no thinking: it is not read."""
        if self.texts or self.calls:
            self.close()
        text = unseal_thinking(item.text("encrypted_content", ""))
        if text is None:
            text = _text_of(item.get("content"), item.at("content"))
        self.has_reply = True
        self.reasoning = (self.reasoning or "") + text


def _text_of(value: Any, where: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise wrong(where, value, "a text or a list of blocks")
    texts = []
    for index, entry in enumerate(value):
        if isinstance(entry, str):
            texts.append(entry)
            continue
        block = Fields(entry, f"{where}[{index}]")
        kind = block.text("type")
        if kind not in _TEXT_BLOCKS:
            raise ApiError(
                f"{block.at('type')} is {kind[:80]!r}, expected input_text or output_text: this "
                "model reads text only.",
                param=block.at("type"),
            )
        texts.append(block.text("refusal" if kind == "refusal" else "text"))
    return "\n\n".join(texts)


def _call(item: Fields, name: str) -> Call:
    call_id = item.text("call_id", "") or item.text("id")
    if not name:
        name = item.text("namespace", "") + item.text("name")
    if item.get("type") == "custom_tool_call":
        arguments: Any = {"input": item.text("input", "")}
    else:
        arguments = next((item.get(k) for k in ("arguments", "action", "input") if k in item), {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Call(call_id, name, arguments)


def _output(item: Fields) -> str:
    """Read the text of a result. An image in one can't be undone by a person, so it is named and
    left out instead of refused."""
    value = next((item.get(k) for k in ("output", "result", "tools") if k in item), None)
    if value is None or isinstance(value, str):
        return value or ""
    blocks = value if isinstance(value, list) else []
    if not blocks or not all(isinstance(b, dict) and b.get("type") for b in blocks):
        return json.dumps(value, ensure_ascii=False)
    texts = []
    for block in blocks:
        if block["type"] in _TEXT_BLOCKS and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif block["type"] == "input_image":
            texts.append(_NO_IMAGE)
        else:
            texts.append(json.dumps(block, ensure_ascii=False))
    return "\n\n".join(texts)
