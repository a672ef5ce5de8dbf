"""Make untrusted text safe to show: what models and files say never steers the terminal.

Events come without control sequences; what the screen adds is about cells and characters.
"""

import re

from ds4agent.plain import plain

# What must not reach a screen, spelled out where a person judges it: controls except newline and
# tab, separators that only some line splitters know, direction overrides, halves of characters.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SEPARATORS = re.compile("[\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # can't be encoded, so they can't be written out

TAB_CELLS = 4


def printable(text: str) -> str:
    """Return ``text`` without control sequences; newlines stay, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEPARATORS.sub("", plain(text))
    text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    return text.replace("\t", " " * TAB_CELLS)


def visible(text: str) -> str:
    """Return ``text`` with control characters spelled out, for text that a person must judge.

    A command or a diff that asks for approval is shown whole: hiding a character would hide
    what runs. Newlines stay and tabs become spaces.
    """

    def spell(match: re.Match[str]) -> str:
        code = ord(match.group())
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
