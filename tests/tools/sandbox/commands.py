"""Running programs in the sandbox, for the tests of this folder."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from tools.base import ToolResult

Bash = Callable[..., ToolResult]
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]


def python(bash: Bash, program: str, **arguments: object) -> ToolResult:
    """Run a Python program in the sandbox."""
    return bash(f"{sys.executable} - <<'END'\n{textwrap.dedent(program)}\nEND", **arguments)


def refused_python(bash: Bash, program: str) -> None:
    """The program must fail with an OSError or its like, and say so as its only output."""
    indented = textwrap.indent(textwrap.dedent(program), "    ")
    wrapped = f"try:\n{indented}\nexcept OSError as error:\n    print('refused', error.errno)\n"
    result = python(bash, wrapped)
    assert result.text.startswith("refused "), result.text


def git(root: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True)


def refused(bash: Bash, *commands: str) -> None:
    """Each command must fail; all run in one sandbox, one after the other."""
    script = "".join(
        f"( {command}\n) && echo succeeded: {i}\n" for i, command in enumerate(commands)
    )
    result = bash(script + "echo finished")
    assert result.text.endswith("finished"), result.text
    assert "succeeded: " not in result.text, (commands, result.text)


def alive(mark: str) -> list[str]:
    """Process ids on this machine whose command line contains the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found
