"""What the screen's own cleaning of text adds to ``ds4agent.plain``."""

import pytest
from rich.cells import cell_len

from ds4agent.tui.plain import one_line, printable, visible

UNSEEN = [
    "\u200b",  # zero-width space
    "\u200e",  # left-to-right mark
    "\u200f",  # right-to-left mark
    "\u061c",  # Arabic letter mark
    "\u2060",  # word joiner
    "\u2063",  # invisible separator
    "\ufeff",  # byte-order mark
    "\u00ad",  # soft hyphen
    "\u3164",  # Hangul filler
    "\ufe0f",  # variation selector
    "\U000e0041",  # tag letter
]


@pytest.mark.parametrize("character", UNSEEN)
def test_unseen_characters_are_dropped_where_text_is_read(character: str) -> None:
    assert printable(f"rm{character} x") == "rm x"
    assert one_line(f"{character}a{character}\nb") == "a b"


@pytest.mark.parametrize("character", [*UNSEEN, "\u200d", "\u200c", "\u202e", "\x1b"])
def test_unseen_characters_are_spelled_out_where_text_is_judged(character: str) -> None:
    shown = visible(f"rm{character}x")
    assert shown.isascii() and shown.startswith("rm\\") and shown.endswith("x")


@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם",  # Hebrew
        "می\u200cخواهم",  # Persian: the joiner shapes the word
        "क्\u200dष",  # Devanagari, the same
        "e\u0301 ñ",  # combining
        "日本語 한국어",
    ],
)
def test_text_of_other_scripts_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_a_joiner_without_letters_to_shape_is_dropped() -> None:
    assert printable("a\u200db") == "ab"
    assert cell_len(printable("👩\u200d👧")) == 4  # two pictures, as every terminal draws them
