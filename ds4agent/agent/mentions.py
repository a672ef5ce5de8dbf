"""``@path`` in a message: the file's text goes along, so that the model need not ask for it.

    @src/app.py   @src/app.py:10-40   @"a name.txt"   @docs

A file comes as the ``read`` tool shows it, a folder as ``list`` does: the same limits hold, the
same paths are refused, and a file that was mentioned counts as read. What is no file stays what it
is; something that looks like one is told to the person.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ds4agent.plain import one_line
from tools.toolbox import Toolbox

_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"]+))')
_RANGE = re.compile(r"(?P<path>.+?):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")
_AFTER = ".,;:!?)]}'"  # what a sentence puts behind a name
_MOST = 8  # mentions of one message that are read; more would fill the context unnoticed
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tiff", ".ico", ".heic", ".avif")


@dataclass(frozen=True, slots=True)
class _Mention:
    path: str
    first: int | None = None  # lines, from 1
    last: int | None = None


def expand(text: str, toolbox: Toolbox, tell: Callable[[str], None]) -> str:
    """Return a message with what it mentions behind it.

    Args:
        text: as the person wrote it.
        toolbox: reads the files.
        tell: takes a line for the person, about what could not be attached.
    """
    attached: dict[_Mention, str] = {}
    for found in _MENTION.finditer(text):
        name = found["quoted"] or found["bare"]
        if len(attached) == _MOST:
            tell(f"Only the first {_MOST} files that a message mentions are attached")
            break
        for mention in _readings(name, is_quoted=found["quoted"] is not None):
            if mention in attached:
                break
            content = _content(mention, toolbox)
            if content:
                attached[mention] = content
                break
        else:
            _complain(name, toolbox, tell)
    return "\n\n".join([text, *attached.values()])


def _readings(name: str, *, is_quoted: bool) -> list[_Mention]:
    """Return what a word may mean, the likeliest first: a file may be called ``a:1.``"""
    names = [name] if is_quoted else list(dict.fromkeys([name, name.rstrip(_AFTER)]))
    readings = [_Mention(each) for each in names if each]
    for each in names:
        lines = _RANGE.fullmatch(each)
        if lines:
            first = int(lines["first"])
            readings.append(_Mention(lines["path"], first, int(lines["last"] or first)))
    return readings


def _content(mention: _Mention, toolbox: Toolbox) -> str:
    """Return the text to attach, "" when there is no such file or it is none to read."""
    path = one_line(mention.path)
    if mention.path.lower().endswith(_IMAGES):
        return ""
    arguments: dict[str, object] = {"path": mention.path}
    if mention.first is not None and mention.last is not None:
        arguments["start_line"] = mention.first
        arguments["max_lines"] = mention.last - mention.first + 1
    shown = toolbox.run("read", arguments)
    if not shown.ok and mention.first is None:
        shown = toolbox.run("list", arguments)
    return f"[@{path}: {one_line(shown.title)}]\n{shown.text}" if shown.ok else ""


def _complain(name: str, toolbox: Toolbox, tell: Callable[[str], None]) -> None:
    shown = one_line(name)
    bare = name.rstrip(_AFTER)
    if bare.lower().endswith(_IMAGES):
        tell(f"@{shown} is not attached: this model reads text, no images. Describe what is on it.")
    elif "/" in bare or "." in bare:
        reason = toolbox.run("read", {"path": bare}).text
        tell(f"@{shown} is not attached: {one_line(reason)}")
