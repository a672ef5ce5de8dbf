"""Whether the terminal can be drawn on."""

import os
import sys
from collections.abc import Mapping

_DUMB = {"", "dumb", "unknown"}  # values of TERM


def is_bare(environment: Mapping[str, str] = os.environ) -> bool:
    """True where the cursor cannot be addressed: no screen can be drawn there."""
    name = environment.get("TERM", "")
    if name in _DUMB:
        return True
    try:
        import curses

        curses.setupterm(name, sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return not curses.tigetstr("cup")
    except Exception:  # noqa: BLE001  no description of it: modern terminals need none
        return False
