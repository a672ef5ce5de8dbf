"""Copying: by the terminal (OSC 52), which works over ssh, and by the platform's own tool."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping

from textual.app import App

from ds4agent.tui.theme import is_remote

_LONGEST_OSC = 74_000  # bytes: several terminals ignore a longer sequence altogether
_TOOL_TIMEOUT_S = 5.0


def copy(app: App, text: str) -> None:
    """Put ``text`` on the clipboard, in every way that may work here.

    A terminal does not tell whether it obeyed OSC 52, so both ways are gone, the tool in a thread
    of its own: it may wait for its display.
    """
    if len(text.encode("utf-8", "replace")) * 4 / 3 <= _LONGEST_OSC:
        app.copy_to_clipboard(text.encode("utf-8", "replace").decode("utf-8"))
    else:
        app._clipboard = text  # Textual's own, which its paste key uses
    tool = clipboard_tool()
    if tool:
        threading.Thread(target=_feed, args=(tool, text), name="copy", daemon=True).start()


def clipboard_tool(
    environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> tuple[str, ...]:
    """Return the command that takes the clipboard's text on its input, () where there is none."""
    if is_remote(environment):
        return ()  # it would be the clipboard of the wrong machine
    candidates: list[tuple[str, ...]] = []
    if platform == "darwin":
        candidates.append(("pbcopy",))
    if environment.get("WAYLAND_DISPLAY"):
        candidates.append(("wl-copy",))
    if environment.get("DISPLAY"):
        candidates += [("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input")]
    if environment.get("WSL_DISTRO_NAME"):
        candidates.append(("clip.exe",))
    path = environment.get("PATH")
    return next((found for found in candidates if shutil.which(found[0], path=path)), ())


def _feed(tool: tuple[str, ...], text: str) -> None:
    try:
        subprocess.run(
            tool,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # the terminal's way is gone as well, and says as little
