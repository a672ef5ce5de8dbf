"""Telling a person who looks elsewhere: a message of the desktop (OSC 9), or the bell."""

import os
from collections.abc import Callable, Mapping

from ds4agent.plain import one_line

_LONGEST = 120  # characters of a message

# Terminals that document OSC 9 as a notification. Elsewhere it is ignored, or means something else.
_OSC9_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")
_OSC9_VARIABLES = ("KITTY_WINDOW_ID", "GHOSTTY_RESOURCES_DIR", "WEZTERM_PANE")


def has_osc9(environment: Mapping[str, str] = os.environ) -> bool:
    """True where the terminal is known to show OSC 9. Inside tmux only the bell gets through."""
    if environment.get("TMUX") or environment.get("STY"):
        return False
    if environment.get("TERM_PROGRAM", "") in _OSC9_PROGRAMS:
        return True
    return any(environment.get(name) for name in _OSC9_VARIABLES)


class Notifier:
    """Sends one message at a time, and only to a window that has lost the focus.

    Args:
        write: sends control sequences to the terminal.
        way: "auto", "bell", "osc9" or "off".
        after_s: how long a turn must last for its end to be told, in seconds.
    """

    def __init__(self, write: Callable[[str], None], way: str, after_s: float) -> None:
        self._write = write
        self.way = way
        self.after_s = after_s

    def turn_ended(self, took_s: float, has_focus: bool, title: str) -> None:
        """A turn is over."""
        if took_s >= self.after_s and not has_focus:
            self._tell(f"ds4-agent is done: {title}" if title else "ds4-agent is done")

    def asked(self, has_focus: bool, title: str) -> None:
        """A question waits for its answer."""
        if not has_focus:
            self._tell(f"ds4-agent asks: {title}")

    def _tell(self, text: str) -> None:
        if self.way == "off":
            return
        if self.way == "osc9" or (self.way == "auto" and has_osc9()):
            # Nothing of the text may end the sequence or begin another one.
            self._write(f"\x1b]9;{one_line(text, _LONGEST)}\x07")
        else:
            self._write("\x07")
