"""Text that is safe to show and to feed to a model: no escape sequences, no control characters.

Terminal escape sequences come in a few shapes: CSI (``ESC [ ... letter``), strings such as OSC and
DCS that run to BEL or ``ESC \\``, and short two-byte ones. All are removed whole; then every other
control character except newline and tab is removed.

What a person is asked to allow is different: there a removed character would hide what runs, so
control characters are spelled out instead.
"""

import codecs
import re

# The body of a string ends where another begins: else a run of beginnings costs quadratic time.
_STRING_START = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*"
_STRINGS = rf"{_STRING_START}(?:\x07|\x1b\\|\x9c)?"
_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
_SHORT = r"\x1b[ -/]*[0-~]?"
_SEQUENCES = re.compile(f"{_STRINGS}|{_CSI}|{_SHORT}")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Also what turns the direction of text, splits lines for some readers, or cannot be encoded.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# A sequence that has begun but not ended at the end of a piece of a stream.
_UNFINISHED = re.compile(rf"(?:{_STRING_START}\x1b?|(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[ -/]*)\Z")
# Bytes that mean themselves in a stream; most output has nothing else and needs no closer look.
_PLAIN_BYTES = bytes([*range(0x20, 0x7F), 0x09, 0x0A])
MAX_HELD_CHARS = 4096  # an unfinished sequence longer than this is no sequence anybody sends


def strip_controls(text: str) -> str:
    """Remove escape sequences and control characters; keep newlines and tabs.

    A carriage return inside a line (a progress bar) drops what was before it, as a terminal would
    overwrite it.
    """
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n"))
    if "\r" in text:
        text = "\n".join(_last_overwrite(line) for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def spell_controls(text: str) -> str:
    """Return all of ``text`` with control characters as ``\\x1b`` or ``\\u202e``, for an approval.

    Newlines and tabs stay. A shell reads on where a terminal would swallow an escape sequence, so
    a command must never be shown shorter than it is.
    """
    return _HIDDEN.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str, max_chars: int = 200) -> str:
    """Return ``text`` without controls as one line of at most ``max_chars`` characters."""
    line = " ".join(strip_controls(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


class TerminalStream:
    """Turn the bytes of a running command into clean text, piece by piece.

    A character or an escape sequence that is split between two pieces is held until it is whole.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def feed(self, data: bytes, is_last: bool = False) -> str:
        """Return what can be shown after ``data``. Mutates the held remainder."""
        text = self._held + self._decoder.decode(data, is_last)
        if len(text) == len(data) and not data.translate(None, _PLAIN_BYTES):
            return text
        self._held = ""
        if not is_last:
            unfinished = _UNFINISHED.search(text)
            if unfinished and len(text) - unfinished.start() <= MAX_HELD_CHARS:
                self._held = text[unfinished.start() :]
                text = text[: unfinished.start()]
        text = _SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
        return _CONTROLS.sub("", text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _last_overwrite(line: str) -> str:
    pieces = [piece for piece in line.split("\r") if piece]
    return pieces[-1] if pieces else ""
