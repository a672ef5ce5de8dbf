"""What was said, collected from the events that a screen shows: for copying and for export."""

import re

from ds4agent.events import (
    Compacted,
    Event,
    HistoryEntry,
    MessageDelivered,
    Outcome,
    Ready,
    TextDelta,
    ThinkingDelta,
    ToolCallReady,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)

NOTE = "note"  # the role of a line that is no part of the conversation

_FENCED = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


class Record:
    """Grows with each event; a stretch of text that still streams is already part of it."""

    def __init__(self) -> None:
        self.title = ""
        self.model = ""
        self.cwd = ""
        self._entries: list[HistoryEntry] = []
        self._role = ""  # of the text that streams now
        self._pieces: list[str] = []

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        """Everything so far, oldest first. A result follows its call."""
        return (*self._entries, *self._streaming())

    def take(self, event: Event) -> None:
        """Note what an event says; those that say nothing are passed over. O(1)."""
        match event:
            case TextDelta(text):
                self._text("assistant", text)
            case ThinkingDelta(text):
                self._text("thinking", text)
            case TurnStarted(text) | MessageDelivered(text) if text:
                self._add(HistoryEntry("user", text))
                self.title = self.title or text.strip().partition("\n")[0]
            case ToolCallReady():
                self._add(HistoryEntry("call", "", event.name, event.arguments, title=event.title))
            case ToolFinished():
                self._add(
                    HistoryEntry(
                        "result",
                        event.text,
                        event.name,
                        ok=event.ok,
                        title=event.title,
                        diff=event.diff,
                        exit_code=event.exit_code,
                    )
                )
            case TurnEnded(outcome) if outcome is not Outcome.DONE:
                self._add(HistoryEntry(NOTE, event.error or outcome.value))
            case Compacted():
                self._add(HistoryEntry(NOTE, "The context was compacted here."))
            case Ready():
                self._begin(event)

    def last_answer(self) -> str:
        """Return the newest text of the model, "" when there is none."""
        for entry in reversed(self.entries):
            if entry.role == "assistant" and entry.text.strip():
                return entry.text.strip("\n")
        return ""

    def last_code(self) -> str:
        """Return the newest fenced block of the model's text, "" when there is none."""
        for entry in reversed(self.entries):
            if entry.role == "assistant":
                blocks = [found["code"] for found in _FENCED.finditer(entry.text)]
                if blocks:
                    return blocks[-1]
        return ""

    def _begin(self, event: Ready) -> None:
        self._role = ""
        self._pieces.clear()
        self._entries = list(event.history)
        self.title, self.model, self.cwd = event.title, event.model, event.cwd

    def _text(self, role: str, text: str) -> None:
        if role != self._role:
            self._end_text()
            self._role = role
        self._pieces.append(text)

    def _add(self, entry: HistoryEntry) -> None:
        self._end_text()
        self._entries.append(entry)

    def _streaming(self) -> list[HistoryEntry]:
        return [HistoryEntry(self._role, "".join(self._pieces))] if self._pieces else []

    def _end_text(self) -> None:
        self._entries += self._streaming()
        self._pieces.clear()
