"""``prompt parse``: what the raw output of a model means, event by event, as JSON lines."""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from typing import Any

_FAMILIES = ("deepseek_v4", "deepseek_v41", "chatml")
_NAMES = re.compile(r'invoke name="([^"]+)"|"name"\s*:\s*"([^"\\]+)"')
_ANY_TOOL = "tool"  # so that a block without one good name is still seen as a block


def add_action(actions) -> None:
    """Add ``parse`` to the actions of ``prompt``."""
    parsing = actions.add_parser("parse", help="raw output of a model on stdin as events")
    parsing.add_argument(
        "--family", choices=_FAMILIES, default=_FAMILIES[0], help="chat format (deepseek_v4)"
    )
    parsing.add_argument("--thinking", action="store_true", help="the prompt ended in <think>")
    parsing.add_argument(
        "--finish", choices=("stop", "length"), default="stop", help="how the output ended"
    )
    parsing.set_defaults(run=parse_output)


def parse_output(args: argparse.Namespace) -> int:
    """Print each event as an object with its ``type``, and last the whole reply: ``content``,
    ``reasoning_content``, ``tool_calls``, ``finish_reason``. Any name counts as a tool's."""
    raw = sys.stdin.buffer.read()
    sys.stdout.reconfigure(encoding="utf-8")
    for line in event_lines(raw, args.family, args.thinking, args.finish):
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


def event_lines(raw: bytes, family: str, thinking: bool, finish: str) -> list[dict[str, Any]]:
    """Return the events of a reply, and its summary, as JSON-ready data."""
    parser = _parser(raw, family, thinking)
    events = [*parser.feed(raw), *parser.finish(stopped=finish == "stop")]
    lines = [_line(event) for event in events]
    return [*lines, _summary(lines, thinking, finish)]


def _parser(raw: bytes, family: str, thinking: bool) -> Any:
    from engine.chat.chatml_parser import ChatmlParser
    from engine.chat.dsml_parser import DsmlParser
    from engine.chat.dsml_tags import V4, V41
    from engine.chat.format import ToolSpec

    found = _NAMES.findall(raw.decode("utf-8", "replace"))
    names = dict.fromkeys((*(a or b for a, b in found), _ANY_TOOL))
    tools = tuple(ToolSpec(name, "", {}) for name in names)
    if family == "chatml":
        return ChatmlParser(tools)
    return DsmlParser(tools, thinking, families=(V41 if family == "deepseek_v41" else V4,))


def _line(event: Any) -> dict[str, Any]:
    from engine.chat import format as events

    match event:
        case events.Thinking(text):
            return {"type": "thinking", "reasoning_content": text}
        case events.Text(text):
            return {"type": "text", "content": text}
        case events.CallStarted(index, name):
            return {"type": "call_started", "index": index, "name": name}
        case events.CallArguments(index, text):
            return {"type": "call_arguments", "index": index, "arguments": text}
        case events.CallComplete(index, call, repaired):
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            line = {"type": "call_complete", "index": index, "name": call.name}
            return {**line, "arguments": arguments, "repaired": repaired, "raw": call.raw}
        case events.CallMalformed(reason, text):
            return {"type": "call_malformed", "reason": reason, "raw": text}
    raise AssertionError(f"no line for {event}")


def _summary(lines: Iterable[dict[str, Any]], thinking: bool, finish: str) -> dict[str, Any]:
    content, reasoning, calls = "", "", []
    for line in lines:
        content += line.get("content", "")
        reasoning += line.get("reasoning_content", "")
        if line["type"] == "call_complete":
            calls.append({"name": line["name"], "arguments": line["arguments"]})
    return {
        "type": "reply",
        "content": content,
        "reasoning_content": reasoning if thinking or reasoning else None,
        "tool_calls": calls,
        "finish_reason": "tool_calls" if calls and finish == "stop" else finish,
    }
