"""Which of the two looks to start with, and whether anything may move."""

import os
from collections.abc import Mapping

DARK = "textual-dark"
LIGHT = "textual-light"


def theme_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the theme for this terminal: dark, unless it says that its background is light.

    ``TEXTUAL_THEME`` wins when it names one of the two. Otherwise ``COLORFGBG`` ("0;15") tells
    the background where a terminal sets it: 7 and 9-15 are the light ones of the 16 colours.
    """
    chosen = environment.get("TEXTUAL_THEME", "")
    if chosen in (DARK, LIGHT):
        return chosen
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    is_light = background.isdecimal() and int(background) in {7, *range(9, 16)}
    return LIGHT if is_light else DARK


def is_remote(environment: Mapping[str, str] = os.environ) -> bool:
    """True when the terminal is at the other end of an ssh connection."""
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))


def may_animate(no_animation: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether scrolling may glide; never over ssh or where motion is not wanted."""
    wants_none = environment.get("TEXTUAL_ANIMATIONS", "").lower() == "none"
    return not (no_animation or wants_none or is_remote(environment))
