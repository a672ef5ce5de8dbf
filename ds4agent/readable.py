"""Untrusted text made safe to show, and numbers made short.

Events come without control sequences; what the screen adds is about cells and characters.
"""

import re

from ds4agent.plain import plain

# Characters without a width of their own, or whose width terminals disagree about: zero-width
# spaces and marks of direction, soft hyphens, fillers, invisible operators, variation selectors
# and tags. They hide text from a person, and make what stands behind them drift.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_JOINERS = "\u200c\u200d"  # they shape letters of Arabic and Indic scripts, and only those
_SHAPED = "\u0600-\u07ff\u0840-\u08ff\u0900-\u0dff"

# What must not reach a screen, spelled out where a person judges it: controls except newline and
# tab, separators that only some line splitters know, direction overrides, halves of characters.
_CONTROLS = re.compile(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff{_UNSEEN}{_JOINERS}]"
)
_SEPARATORS = re.compile("[\u2028\u2029]")
_HIDDEN = re.compile(f"[{_UNSEEN}]|(?<![{_SHAPED}])[{_JOINERS}]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # can't be encoded, so they can't be written out

TAB_CELLS = 4


def printable(text: str) -> str:
    """Return ``text`` without control sequences and unseen characters.

    Newlines stay, tabs become spaces. Letters stay in their logical order, whatever their
    direction.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _HIDDEN.sub("", _SEPARATORS.sub("", plain(text)))
    text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    return text.replace("\t", " " * TAB_CELLS)


def visible(text: str) -> str:
    """Return ``text`` with control and unseen characters spelled out, for a person to judge.

    A command or a diff that asks for approval is shown whole: hiding a character would hide
    what runs. Newlines stay and tabs become spaces.
    """

    def spell(match: re.Match[str]) -> str:
        code = ord(match.group())
        if code > 0xFFFF:
            return f"\\U{code:08x}"
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _CONTROLS.sub(spell, text).replace("\t", " " * TAB_CELLS)


def one_line(text: str) -> str:
    """Return ``text`` printable and on one line: runs of whitespace become one space."""
    return " ".join(printable(text).split())


def count(n: int, noun: str) -> str:
    """Return "1 line", "12 lines"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def short_count(n: int) -> str:
    """Return a token count in at most five cells: 950, 12.5k, 128k."""
    if n < 1000:
        return str(n)
    if n < 100_000:
        return f"{n / 1000:.1f}".removesuffix(".0") + "k"
    return f"{n // 1000}k"


def age(seconds: float) -> str:
    """Return how long ago something was in one unit: 40s, 5m, 3h, 12d."""
    seconds = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
