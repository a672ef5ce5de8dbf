"""What the inline mode prints: lines that stay as they are once they are written.

``Paper`` is plain text, as a dumb terminal shows it: an answer is written as it comes.
``RichPaper`` prints an answer block by block, each as soon as it is finished, with the styles of
Rich in the terminal's own sixteen colours.
"""

import json
from typing import Any, TextIO

from ds4agent.events import HistoryEntry, ToolFinished
from ds4agent.inline.blocks import BlockCutter, parser
from ds4agent.readable import count, one_line, printable

_SHOWN_LINES = 8  # of a result; the rest is counted
_SHOWN_DIFF = 60  # lines
_MARKS = {"info": "", "warning": "! ", "error": "✗ "}


class Paper:
    """Plain text on a stream."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_in_line = False  # something stands in the last line
        self._is_at_prompt = False  # and that is the prompt
        self._thought = 0  # words of the running thought

    # --- the model's text ------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Print the next piece of an answer."""
        self.end_thought()
        if not self._is_in_line:
            text = text.lstrip("\n")
        if text:
            self._write(printable(text))

    def think(self, text: str) -> None:
        """Take the next piece of a thought; only its length is printed."""
        self._thought += len(text.split())

    def end_thought(self) -> None:
        """Say how long the thought was that is over."""
        words, self._thought = self._thought, 0
        if words:
            self.line(f"thought, {count(words, 'word')}", "dim")

    def end_text(self) -> None:
        """Finish what is being written: something else follows."""
        self.end_thought()
        if self._is_in_line:
            self._write("\n")

    @property
    def unfinished(self) -> str:
        """The text that is written but not printed yet."""
        return ""

    # --- lines -----------------------------------------------------------------------------------

    def line(self, text: str, style: str = "") -> None:
        """Print lines of their own."""
        self.end_text()
        self._write(printable(text).rstrip("\n") + "\n")

    def notice(self, text: str, level: str = "info") -> None:
        """Print what is no part of the conversation."""
        styles = {"info": "dim", "warning": "yellow", "error": "red"}
        self.line(_MARKS.get(level, "") + text, styles.get(level, ""))

    def message(self, text: str) -> None:
        """Print a message of the person."""
        for line in text.strip("\n").split("\n"):
            self.line(f"> {line}", "bold")

    def answer(self, text: str) -> None:
        """Print a whole answer."""
        self.text(text)
        self.end_text()

    def call(self, name: str, title: str) -> None:
        """Print that a call begins."""
        self.line(f"● {one_line(title) or one_line(name)}", "cyan")

    def finished(self, event: ToolFinished) -> None:
        """Print how a call went."""
        notes = [f"exit {event.exit_code}"] if event.exit_code else []
        if event.seconds >= 0.1:
            notes.append(f"{event.seconds:.1f} s")
        told = "".join(f" · {note}" for note in notes)
        title = one_line(event.title) or one_line(event.name)
        self.line(f"{'✓' if event.ok else '✗'} {title}{told}", "green" if event.ok else "red")
        if event.diff:
            self.diff(event.diff)
        if not event.diff or not event.ok:
            self.output(event.text, from_end=not event.ok)

    def output(self, text: str, *, from_end: bool = False) -> None:
        """Print the beginning of a result, or its end, indented, with a count of the rest."""
        lines = printable(text).strip("\n").split("\n")
        hidden = len(lines) - _SHOWN_LINES
        shown = lines[-_SHOWN_LINES:] if from_end else lines[:_SHOWN_LINES]
        told = [f"  {line}" for line in shown if text.strip()]
        if hidden > 0:
            told.insert(0 if from_end else len(told), f"  … {count(hidden, 'more line')}")
        if told:
            self.line("\n".join(told), "dim")

    def diff(self, diff: str) -> None:
        """Print a unified diff; + and - say it without colours."""
        lines = printable(diff).rstrip("\n").split("\n")
        for line in lines[:_SHOWN_DIFF]:
            style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            self.line(f"  {line}", style)
        if len(lines) > _SHOWN_DIFF:
            self.line(f"  … {count(len(lines) - _SHOWN_DIFF, 'more line')}", "dim")

    def history(self, entries: tuple[HistoryEntry, ...], last: int) -> None:
        """Print the end of a saved conversation: its ``last`` entries."""
        shown = [entry for entry in entries if entry.role != "system"]
        if len(shown) > last:
            self.line(f"… {count(len(shown) - last, 'earlier part')}", "dim")
        for entry in shown[-last:] if last else []:
            match entry.role:
                case "user":
                    self.message(entry.text)
                case "assistant":
                    self.answer(entry.text)
                case "thinking":
                    self.think(entry.text)
                    self.end_thought()
                case "call":
                    self.call(entry.name, _call_title(entry.name, entry.arguments))
                case "result":
                    self.output(entry.text)

    def prompt(self, text: str) -> None:
        """Print a prompt; what is printed next begins a line of its own."""
        self.end_text()
        self._write(text)
        self._is_at_prompt = True

    def entered(self) -> None:
        """The person ended the line with the prompt."""
        if self._is_at_prompt:
            self._is_in_line = self._is_at_prompt = False

    def _write(self, text: str) -> None:
        if self._is_at_prompt:
            self._is_at_prompt = False
            text = text if text.startswith("\n") else "\n" + text
        self._out.write(text)
        self._out.flush()
        self._is_in_line = not text.endswith("\n")


class RichPaper(Paper):
    """The same with Markdown laid out and colours."""

    def __init__(self, out: TextIO, width: int | None = None) -> None:
        from rich.console import Console

        super().__init__(out)
        self._console = Console(
            file=out, width=width, force_terminal=True, highlight=False, markup=False, emoji=False
        )
        self._cutter = BlockCutter()

    def text(self, text: str) -> None:
        self.end_thought()
        for block in self._cutter.feed(printable(text)):
            self._print_block(block)

    def end_text(self) -> None:
        super().end_text()
        rest = self._cutter.finish()
        if rest.strip():
            self._print_block(rest)

    @property
    def unfinished(self) -> str:
        return self._cutter.open_text

    def line(self, text: str, style: str = "") -> None:
        self.end_text()
        self._console.print(printable(text).rstrip("\n"), style=style or None, soft_wrap=True)
        self._console.file.flush()

    def _print_block(self, source: str) -> None:
        from rich.markdown import Markdown

        block = Markdown("", code_theme="ansi_dark", hyperlinks=False)
        block.parsed = parser().parse(source)  # as elsewhere: Rich's own parser drops HTML
        with self._console.capture() as drawn:
            self._console.print(block)
        self._write(drawn.get().strip("\n") + "\n\n")  # Rich parts some blocks by itself


def _call_title(name: str, arguments: dict[str, Any] | None) -> str:
    for value in (arguments or {}).values():
        return f"{name}: {one_line(value if isinstance(value, str) else json.dumps(value))}"
    return name
