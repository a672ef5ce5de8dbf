"""Writing a conversation to a file that people can read."""

import re
import time
from pathlib import Path

from ds4agent.errors import UsageError
from ds4agent.plain import one_line
from ds4agent.record.html import to_html
from ds4agent.record.markdown import to_markdown
from ds4agent.record.record import Record

_HTML = (".html", ".htm")
_MARKDOWN = (".md", ".markdown", ".txt")


def export(record: Record, name: str, folder: Path, now: float | None = None) -> Path:
    """Write the conversation and return the file. Nothing is ever overwritten.

    Args:
        record: what to write.
        name: a path, relative to ``folder``; its ending chooses HTML or Markdown. "" makes one of
            the title and the time.
        folder: where the agent works.
        now: Unix seconds; None takes the clock.

    Raises:
        UsageError: there is nothing to write, the file exists, or it cannot be written.
    """
    if not record.entries:
        raise UsageError("there is nothing to export yet", "Say something first.")
    moment = time.localtime(time.time() if now is None else now)
    path = _path(name.strip(), folder, record.title, moment)
    about = " · ".join(
        filter(None, (record.model, record.cwd, time.strftime("%Y-%m-%d %H:%M", moment)))
    )
    render = to_html if path.suffix.lower() in _HTML else to_markdown
    text = render(record.entries, record.title, about)
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{one_line(str(path))} exists already", "Give another name.") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"cannot write {one_line(str(path))}: {reason}", "Give another name."
        ) from error
    return path


def _path(name: str, folder: Path, title: str, moment: time.struct_time) -> Path:
    if not name:
        words = re.sub(r"[^\w]+", "-", title.casefold()).strip("-")[:40].strip("-")
        stamp = time.strftime("%Y%m%d-%H%M%S", moment)
        name = f"{words or 'conversation'}-{stamp}.md"
    path = folder / Path(name).expanduser()
    if path.suffix.lower() not in (*_HTML, *_MARKDOWN):
        raise UsageError(
            f"/export {name}: expected a name that ends in .md or .html", "Add the ending."
        )
    return path
