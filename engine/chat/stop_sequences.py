"""Ending a reply at texts that the caller names: in the answer, never in thinking or in a call."""

from collections.abc import Sequence

from engine.chat.format import ParserEvent, StreamParser, Text
from engine.chat.syntax import Syntax


class StopSequences:
    """A StreamParser around another one. The stop sequence itself, and what follows, is dropped.

    A reply ends where a sequence is complete first; of two that are complete at the same place,
    the longer one is removed. So the result doesn't depend on how the bytes were cut.

    Attributes:
        finished: A sequence has come, or the parser inside is finished.
        found: The sequence that ended the reply, or ``""``.
    """

    def __init__(self, parser: StreamParser, sequences: Sequence[str]) -> None:
        """Wrap a parser. Empty sequences are ignored."""
        self._parser = parser
        self._sequences = tuple(sequence for sequence in sequences if sequence)
        self._beginnings = {s[:n] for s in self._sequences for n in range(1, len(s))}
        self._longest = max(map(len, self._sequences), default=0)
        self._held = ""  # the end of the text, while it may begin a sequence
        self.found = ""

    @property
    def finished(self) -> bool:
        return bool(self.found) or self._parser.finished

    @property
    def in_thinking(self) -> bool:
        return not self.found and self._parser.in_thinking

    @property
    def syntax(self) -> Syntax:
        return Syntax.OUTSIDE if self.found else self._parser.syntax

    def feed(self, data: bytes) -> list[ParserEvent]:
        """Take the next bytes of the reply and return what is now certain."""
        return [] if self.found else self._filter(self._parser.feed(data))

    def finish(self, stopped: bool = False) -> list[ParserEvent]:
        """Flush what was held back."""
        if self.found:
            return []
        events = self._filter(self._parser.finish(stopped))
        held, self._held = self._held, ""
        return [*events, Text(held)] if held else events

    def _filter(self, events: list[ParserEvent]) -> list[ParserEvent]:
        passed: list[ParserEvent] = []
        for event in events:
            if not isinstance(event, Text):
                if self._held:
                    passed.append(Text(self._held))
                    self._held = ""
                passed.append(event)
                continue
            text = self._text(self._held + event.text)
            if text:
                passed.append(Text(text))
            if self.found:
                break
        return passed

    def _text(self, text: str) -> str:
        """Return what of the text can be given out; hold the rest back."""
        ends = []
        for sequence in self._sequences:
            start = text.find(sequence)
            if start >= 0:
                ends.append((start + len(sequence), start, sequence))
        if ends:
            _, start, self.found = min(ends)
            self._held = ""
            return text[:start]
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start:] in self._beginnings:
                self._held = text[start:]
                return text[:start]
        self._held = ""
        return text
