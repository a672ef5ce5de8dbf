"""Decoding text files and writing them back in the encoding they had.

The order of the guesses: a byte order mark says it; else NUL bytes mean a binary file; else valid
UTF-8 is UTF-8; else the bytes are taken as Latin-1, which never fails and writes back unchanged.
"""

import codecs
from dataclasses import dataclass

from tools.errors import ToolError

SAMPLE_BYTES = 65536  # what is looked at to choose the encoding of a large file
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Control characters that text files do hold: tab, newline, form feed, return, escape.
_TEXT_CONTROLS = frozenset(b"\t\n\x0c\r\x1b\x08")
_MAX_CONTROL_SHARE = 0.05  # more than this in bytes that are no UTF-8 is no text


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's bytes become text. ``mark`` is its byte order mark, b"" without one."""

    name: str
    mark: bytes = b""

    @property
    def label(self) -> str:
        """A name for people, "" for plain UTF-8."""
        if self.name == "utf-8":
            return "UTF-8 with BOM" if self.mark else ""
        return self.name

    def decode(self, data: bytes) -> str:
        """Decode a whole file; invalid bytes become U+FFFD."""
        return data[len(self.mark) :].decode(self.name, errors="replace")

    def encode(self, text: str) -> bytes:
        """Encode a whole file, with its byte order mark.

        Raises:
            ToolError: the encoding has no such character.
        """
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise ToolError(
                f"the file is {self.name}, which cannot hold the character {character!r}",
                "Use other characters, or convert the file to UTF-8 first.",
            ) from error


def detect(sample: bytes, is_whole: bool, what: str, n_bytes: int) -> Encoding:
    """Choose the encoding from the first bytes of a file.

    Args:
        sample: up to ``SAMPLE_BYTES`` bytes.
        is_whole: whether the sample is the whole file; else its last character may be cut.
        what: the path, for the message.
        n_bytes: size of the whole file, for the message.

    Raises:
        ToolError: the file is binary.
    """
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return Encoding(name, mark)
    if b"\0" not in sample:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(sample, is_whole)
            return Encoding("utf-8")
        except UnicodeDecodeError:
            n_controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
            if n_controls <= len(sample) * _MAX_CONTROL_SHARE:
                return Encoding("latin-1")
    raise ToolError(
        f"{what} is a binary file of {n_bytes} bytes", "Use bash to inspect it, if you must."
    )


def newline_of(text: str) -> str:
    r"""Return the line ending most lines have, ``\n`` when there is no line ending."""
    n_crlf = text.count("\r\n")
    return "\r\n" if n_crlf * 2 > text.count("\n") else "\n"
