"""A conversation as one HTML page that needs nothing else and runs nothing.

All text is escaped. Markdown is rendered without raw HTML, links go nowhere but to the web, and
the page forbids scripts and requests, so that an image in an answer cannot call home.
"""

import html
import json
from collections.abc import Sequence

from markdown_it import MarkdownIt

from ds4agent.events import HistoryEntry
from ds4agent.plain import one_line, plain
from ds4agent.record.record import NOTE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --dim: #667; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
header { border-bottom: 1px solid var(--line); margin-bottom: 1.5rem; }
header p, .note, summary { color: var(--dim); }
.user { border-left: 4px solid #4a80d0; background: var(--soft); padding: .1rem 1rem; }
.user p { white-space: pre-wrap; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; font-size: 14px; }
.thinking { color: var(--dim); }
.add { color: #1a7f37; } .del { color: #c0362c; } .hunk { color: var(--dim); }
section { margin: 1rem 0; unicode-bidi: isolate; }
"""


def to_html(entries: Sequence[HistoryEntry], title: str = "", about: str = "") -> str:
    """Return a page; the arguments are those of ``to_markdown``."""
    name = html.escape(one_line(title) or "Conversation")
    reader = MarkdownIt("gfm-like", {"html": False, "linkify": False})
    body = "\n".join(filter(None, (_section(entry, reader) for entry in entries)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{name}</h1>\n<p>{html.escape(one_line(about))}</p>\n</header>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _section(entry: HistoryEntry, reader: MarkdownIt) -> str:
    text = plain(entry.text).strip("\n")
    match entry.role:
        case "user" if text.strip():
            return f'<section class="user" dir="auto"><p>{html.escape(text)}</p></section>'
        case "assistant" if text.strip():
            return f'<section class="assistant" dir="auto">{reader.render(text)}</section>'
        case "thinking" if text.strip():
            return _folded("Thinking", f'<div class="thinking">{reader.render(text)}</div>')
        case "call":
            arguments = entry.arguments or {}
            shown = json.dumps(arguments, indent=2, ensure_ascii=False) if arguments else text
            return _folded(entry.title or entry.name or "call", _pre(plain(shown)))
        case "result":
            ended = {None: "", True: ": ok", False: ": failed"}[entry.ok]
            ended = f": exit {entry.exit_code}" if entry.exit_code else ended
            inside = _diff(plain(entry.diff)) if entry.diff else _pre(text)
            name = f"Result of {entry.title or entry.name}{ended}"
            return _folded(name, inside, is_open=bool(entry.diff))
        case role if role == NOTE:
            return f'<p class="note">{html.escape(one_line(text))}</p>'
        case _:
            return ""


def _folded(name: str, inside: str, is_open: bool = False) -> str:
    summary = html.escape(one_line(name))
    mark = " open" if is_open else ""
    return f"<section><details{mark}><summary>{summary}</summary>{inside}</details></section>"


def _pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _diff(text: str) -> str:
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    lines = []
    for line in text.rstrip("\n").split("\n"):
        kind = kinds.get(line[:1], "")
        shown = html.escape(line)
        lines.append(f'<span class="{kind}">{shown}</span>' if kind else shown)
    return "<pre>" + "\n".join(lines) + "</pre>"
