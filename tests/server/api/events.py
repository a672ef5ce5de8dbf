"""Reading streams of events back, and making two of them comparable whatever their cuts."""

import json
from typing import Any

DONE = "[DONE]"
Event = tuple[str | None, Any]


def read_events(chunks: list[bytes]) -> list[Event]:
    """Parse a stream as a client does: (name, data); comments are left out."""
    events = []
    for block in b"".join(chunks).decode().split("\n\n"):
        name, data = None, []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            if field == "event":
                name = value.strip()
            elif field == "data":
                data.append(value.removeprefix(" "))
        if data:
            text = "\n".join(data)
            events.append((name, text if text == DONE else json.loads(text)))
    return events


def joined(events: list[Event]) -> list[Event]:
    """Join neighbouring deltas, so that only structure and concatenated text are left."""
    result: list[Event] = []
    for name, data in events:
        data = json.loads(json.dumps(data))
        if isinstance(data, dict):
            data.pop("sequence_number", None)
            forget_newer_fields(data.get("response") or {})
        if not (result and result[-1][0] == name and _joined_into(result[-1][1], data)):
            result.append((name, data))
    return result


def forget_newer_fields(response: dict[str, Any]) -> dict[str, Any]:
    """Take out what the interface has got since the fixtures were recorded."""
    if response.get("usage"):
        response["usage"].get("input_tokens_details", {}).pop("cache_write_tokens", None)
    return response


def _joined_into(old: Any, new: Any) -> bool:
    """Append the text of a delta to one of the same shape; False where the shapes differ."""
    before, after = _text_place(old), _text_place(new)
    if before is None or after is None or before[1] != after[1]:
        return False
    holder, key = before[0], before[1][-1]
    text = after[0][key]
    kept, holder[key] = holder[key], ""
    after[0][key] = ""
    is_same = old == new
    holder[key] = kept + text if is_same else kept
    after[0][key] = text
    return is_same


def _text_place(data: Any) -> tuple[dict, tuple[str, ...]] | None:
    """Find the text of a delta: the object that holds it, and where."""
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("delta"), str):
        return data, (data["type"], "delta")
    holder: Any = data.get("delta")
    if data.get("choices"):
        choice = data["choices"][0]
        if choice["finish_reason"] or "role" in choice.get("delta", {}):
            return None
        holder = choice.get("delta", choice)
        if "tool_calls" in holder:
            call = holder["tool_calls"][0]
            if "id" in call:
                return None
            return call["function"], ("call", str(call["index"]), "arguments")
    for key in ("content", "reasoning_content", "text", "thinking", "partial_json"):
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            return holder, ("text", key)
    return None
