"""A conversation as Markdown. What a model or a tool wrote cannot break out of its block."""

import json
import re
from collections.abc import Sequence

from ds4agent.events import HistoryEntry
from ds4agent.plain import one_line, plain
from ds4agent.record.record import NOTE

_HEADINGS = {"user": "## You", "assistant": "## Assistant"}


def to_markdown(entries: Sequence[HistoryEntry], title: str = "", about: str = "") -> str:
    """Return a document: a heading for each change of speaker, fences around what tools said.

    Args:
        entries: the conversation, oldest first; the system prompt is left out.
        title: of the conversation; "" when it has none.
        about: a line below the title: model, folder, date.
    """
    parts = [f"# {one_line(title) or 'Conversation'}"]
    if about:
        parts.append(f"*{one_line(about)}*")
    speaker = ""
    for entry in entries:
        block = _block(entry)
        if not block:
            continue
        wanted = "user" if entry.role == "user" else "assistant"
        if wanted != speaker and entry.role != NOTE:
            speaker = wanted
            parts.append(_HEADINGS[speaker])
        parts.append(block)
    return "\n\n".join(parts) + "\n"


def fenced(text: str, language: str = "") -> str:
    """Return ``text`` in a fence that is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _block(entry: HistoryEntry) -> str:
    text = plain(entry.text).strip("\n")
    match entry.role:
        case "user" | "assistant":
            return _closed(text) if text.strip() else ""
        case "thinking":
            return _quoted(f"*Thinking:*\n\n{_closed(text)}") if text.strip() else ""
        case "call":
            arguments = entry.arguments or {}
            shown = json.dumps(arguments, indent=2, ensure_ascii=False) if arguments else text
            what = f"**{_escaped(entry.title or entry.name or 'call')}**"
            return f"{what}\n\n{fenced(plain(shown), 'json')}" if shown else what
        case "result":
            return _result(entry, text)
        case role if role == NOTE:
            return f"*{_escaped(text)}*"
        case _:
            return ""


def _result(entry: HistoryEntry, text: str) -> str:
    ended = {None: "", True: "ok", False: "failed"}[entry.ok]
    if entry.exit_code:
        ended = f"exit {entry.exit_code}"
    words = ", ".join(filter(None, (one_line(entry.title or entry.name), ended)))
    parts = [f"*Result: {_escaped(words)}*"] if words else ["*Result*"]
    if entry.diff:
        parts.append(fenced(plain(entry.diff), "diff"))
    elif text.strip():
        parts.append(fenced(text))
    return "\n\n".join(parts)


def _closed(text: str) -> str:
    """Return Markdown with its last fence closed: one that was cut off would swallow the rest."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if not found:
            continue
        marks, rest = found.groups()
        if not fence:
            fence = marks if marks[0] == "~" or "`" not in rest else ""
        elif marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", one_line(text))
