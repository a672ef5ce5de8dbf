"""Which colours to start with, and whether anything may move.

Four looks: dark, light, the terminal's own palette, and high contrast. No meaning is told by a
colour alone, so ``NO_COLOR``, which Textual honours, costs nothing.
"""

import os
from collections.abc import Mapping

from textual.theme import Theme

DARK = "textual-dark"
LIGHT = "textual-light"
ANSI_DARK = "ansi-dark"
ANSI_LIGHT = "ansi-light"
HIGH_CONTRAST = "high-contrast"

NOTE = "$foreground 70%"  # style of what is said beside; "dim" is too faint on several grounds

# Contrast with black is at least 7 to 1 for everything that is read (WCAG 2.2, level AAA).
_HIGH_CONTRAST = Theme(
    name=HIGH_CONTRAST,
    primary="#66b3ff",
    secondary="#ffd700",
    accent="#00ffff",
    warning="#ffd700",
    error="#ff9090",
    success="#7cfc00",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1a1a1a",
    boost="#262626",
    dark=True,
    variables={
        "text-muted": "#ffffff",
        "text-disabled": "#d0d0d0",
        "text-primary": "#66b3ff",
        "text-accent": "#00ffff",
        "text-warning": "#ffd700",
        "text-error": "#ff9090",
        "text-success": "#7cfc00",
        "input-selection-background": "#ffffff",
        "input-selection-foreground": "#000000",
        "screen-selection-background": "#ffffff",
        "screen-selection-foreground": "#000000",
    },
)
OWN_THEMES = (_HIGH_CONTRAST,)


def theme_name(choice: str = "auto", environment: Mapping[str, str] = os.environ) -> str:
    """Return Textual's name of the theme for a setting: auto, dark, light, ansi, high-contrast.

    *auto* is dark, unless the terminal says that its background is light. ``TEXTUAL_THEME`` wins
    over *auto* when it names a theme of ours.
    """
    light = has_light_background(environment)
    match choice:
        case "dark":
            return DARK
        case "light":
            return LIGHT
        case "ansi":
            return ANSI_LIGHT if light else ANSI_DARK
        case "high-contrast":
            return HIGH_CONTRAST
    chosen = environment.get("TEXTUAL_THEME", "")
    if chosen in (DARK, LIGHT, ANSI_DARK, ANSI_LIGHT, HIGH_CONTRAST):
        return chosen
    return LIGHT if light else DARK


def has_light_background(environment: Mapping[str, str] = os.environ) -> bool:
    """True when ``COLORFGBG`` ("0;15") says so: 7 and 9-15 are the light ones of 16 colours."""
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return background.isdecimal() and int(background) in {7, *range(9, 16)}


def is_remote(environment: Mapping[str, str] = os.environ) -> bool:
    """True when the terminal is at the other end of an ssh connection."""
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))


def may_animate(no_animation: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether scrolling may glide; never over ssh or where motion is not wanted."""
    wants_none = environment.get("TEXTUAL_ANIMATIONS", "").lower() == "none"
    return not (no_animation or wants_none or is_remote(environment))
