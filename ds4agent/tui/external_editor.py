"""Writing a message in the person's own editor."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ds4agent.ending import ends_with_program
from ds4agent.errors import UsageError
from ds4agent.plain import one_line

_FALLBACKS = ("sensible-editor", "nano", "vi")


def editor_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the editor: ``$VISUAL``, ``$EDITOR``, or what most systems have.

    Raises:
        UsageError: there is none.
    """
    for name in ("VISUAL", "EDITOR"):
        wanted = environment.get(name, "").strip()
        if wanted:
            try:
                return shlex.split(wanted)
            except ValueError as error:
                raise UsageError(f"${name} is no command: {one_line(wanted)}") from error
    path = environment.get("PATH")
    found = next((name for name in _FALLBACKS if shutil.which(name, path=path)), None)
    if found is None:
        raise UsageError("there is no editor", "Set EDITOR to the name of one.")
    return [found]


def edit(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Let the person edit ``text`` and return the result. Blocks; the terminal must be free.

    Raises:
        UsageError: the editor cannot be run, ended with an error, or left no text.
    """
    command = editor_command(environment)
    name = one_line(Path(command[0]).name, 40)
    with tempfile.TemporaryDirectory(prefix="ds4-agent-") as folder:  # made with mode 0700
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            with (
                _keys_are_the_editors(),
                subprocess.Popen([*command, str(path)], env=dict(environment)) as editor,
                ends_with_program(editor.terminate),
            ):
                code = editor.wait()
        except OSError as error:
            raise UsageError(
                f"cannot run {name}: {error.strerror}", "Set EDITOR to another one."
            ) from error
        if code:
            raise UsageError(f"{name} ended with {code}; nothing taken")
        try:
            edited = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError("the editor left no text; nothing taken") from error
    return edited.removesuffix("\n")


@contextlib.contextmanager
def _keys_are_the_editors() -> Iterator[None]:
    """Ignore Ctrl+C and Ctrl+\\ here: the terminal sends them to everybody in the foreground.

    A function, not SIG_IGN, which the editor would inherit.
    """
    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGQUIT):
            before[number] = signal.signal(number, lambda *_: None)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
