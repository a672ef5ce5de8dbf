"""Make untrusted text safe to show: what models and files say never steers the terminal."""

import re

# Whole escape sequences first, so that their parameters do not stay behind as text.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS, SOS, PM, APC: titles, clipboard, links
    r"|\x1b[ -/]*[0-~]",  # two-character sequences
    re.DOTALL,
)
# C0 except tab and newline, DEL, C1, and separators that only some line splitters know.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Direction overrides can make shown text differ from the text that runs.
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")  # can't be encoded, so they can't be written out

TAB_CELLS = 4


def printable(text: str) -> str:
    """Return ``text`` without control sequences; newlines stay, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _ESCAPES.sub("", text)
    text = _CONTROLS.sub("", text)
    text = _BIDI.sub("", text)
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

    for pattern in (_CONTROLS, _BIDI, _SURROGATES):
        text = pattern.sub(spell, text)
    return text.replace("\t", " " * TAB_CELLS)


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
