"""Whether a change holds: what a model that never looks back is told of its own work.

Each check returns one short text that says what is wrong, with the names of this very task, or ""
when it found nothing. A check that cannot tell says nothing.
"""

import ast
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ds4agent.agent.calls import CallOutcome

_MOST_RUNS = 3
_RUN_S = 15
_TAIL_LINES = 6
_TAIL_CHARS = 500
_DEFINITION = re.compile(
    r"^(?P<sign>[-+])\s*(?:export\s+|async\s+|pub\s+|static\s+)*"
    r"(?:def|class|function|func|fn|struct|interface|enum)\s+(?P<name>\w+)",
    re.MULTILINE,
)
_ELISION = re.compile(
    r"^\+\s*(?:#|//|--|/\*|<!--)[^\n]*(?:\.\.\.|…|\b(?:rest of|remaining|existing) )[^\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
# A failure of these kinds is one, whatever the program expected to be given.
_ALWAYS_WRONG = re.compile(
    r"\b(?:SyntaxError|IndentationError|NameError|ImportError|ModuleNotFoundError|AttributeError|"
    r"TypeError)\b|syntax error"
)
_TAKES_ARGUMENTS = re.compile(r"\bsys\.argv\b|\bargparse\b|\$[1@]|\bclick\b|\btyper\b")
_TAKES_FIXTURES = re.compile(r"^(?:class\s+Test|(?:async\s+)?def\s+test_\w*\((?!\)))", re.MULTILINE)
_ABOUT_INPUT = re.compile(r"\b(?:asks?|enters?|input|stdin|standard input|prompts?|types?)\b", re.I)
_IMPORTS = r"^\s*(?:from|import)\s+{stem}\b"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that shows whether a change works, and the file that it runs."""

    line: str
    path: str


def is_test(path: str) -> bool:
    """Tell whether a file holds tests, by its name."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def spoiled(path: str, text: str) -> str:
    """Say why a file cannot be what it should be: it is no JSON, no Python."""
    suffix = PurePosixPath(path).suffix.lower()
    try:
        if suffix == ".json":
            json.loads(text)
        elif suffix in (".py", ".pyi"):
            ast.parse(text)
    except SyntaxError as error:
        return f"{path} line {error.lineno}: {error.msg}."
    except ValueError as error:
        return f"{path} is no valid JSON: {error}." if suffix == ".json" else ""
    except (RecursionError, MemoryError):
        return ""
    return ""


def lost(path: str, diff: str, task: str) -> str:
    """Say what a new text of a file left out though nobody asked for that."""
    signs: dict[str, set[str]] = {"-": set(), "+": set()}
    for found in _DEFINITION.finditer(diff):
        signs[found["sign"]].add(found["name"])
    words = set(re.findall(r"\w+", task))
    gone = sorted(signs["-"] - signs["+"] - words)
    if gone:
        return f"{', '.join(gone)} is missing in {path} now and must stay."
    if _ELISION.search(diff):
        return f"{path} must hold its whole text, with nothing left out."
    return ""


def commands(
    changed: Sequence[str],
    named: Sequence[str],
    entries: Sequence[str],
    text_of: Callable[[str], str | None],
) -> list[Command]:
    """Return the commands that show whether a change works: tests first, then programs.

    Args:
        changed: files that were changed.
        named: files that the person named.
        entries: all files there are.
        text_of: reads one.
    """
    stems = [PurePosixPath(path).stem for path in changed if path.endswith(".py")]
    beside = {f"{kind}.py" for stem in stems for kind in (f"test_{stem}", f"{stem}_test")}
    tests, programs = [], []
    for path in dict.fromkeys([*named, *changed, *entries]):
        name = PurePosixPath(path).name
        is_named = path in named or path in changed
        if path not in entries:
            continue
        if is_test(path):
            if is_named or name in beside:
                tests.append(Command(_test(path, text_of(path) or ""), path))
        elif is_named and name.endswith((".py", ".sh")):
            text = text_of(path) or ""
            uses = any(
                re.search(_IMPORTS.format(stem=re.escape(stem)), text, re.M) for stem in stems
            )
            if path in changed or uses:
                programs.append(Command(_program(path, text), path))
    return [*tests, *programs][:_MOST_RUNS]


def call(command: str) -> dict[str, object]:
    """Return the arguments of the shell tool for the line of a command."""
    return {"command": command, "timeout_s": _RUN_S}


def failure(command: str, outcome: CallOutcome, text: str, task: str) -> str:
    """Say how a command failed: its last lines.

    Args:
        command: the line of one of ``commands``.
        outcome: what it came to.
        text: of the file that was run.
        task: the person's words.
    """
    if outcome.ok or outcome.exit_code in (None, 126, 127):
        return ""
    said = outcome.text
    if "No module named pytest" in said or "no tests ran" in said.lower():
        return ""
    if not _ALWAYS_WRONG.search(said):
        if _TAKES_ARGUMENTS.search(text):
            return ""  # it was run without any
        if "EOFError" in said and _ABOUT_INPUT.search(task):
            return ""  # nobody typed
    lines = [line for line in said.splitlines() if line.strip()][-_TAIL_LINES:]
    return f"{_short(command)} fails:\n" + "\n".join(lines)[-_TAIL_CHARS:]


def _short(command: str) -> str:
    """Return how the model is told of a command: in its own words a test is its file."""
    found = re.match(r'python3 -c "import (\w+) as t;', command)
    return f"{found[1]}.py" if found else command


def _test(path: str, text: str) -> str:
    quoted = shlex.quote(path)
    if "__main__" in text:
        return f"python3 {quoted}"
    if "unittest" in text:
        return f"python3 -m unittest {quoted}"
    if "/" not in path and "pytest" not in text and not _TAKES_FIXTURES.search(text):
        stem = PurePosixPath(path).stem
        if stem.isidentifier():  # no need of a test runner, which may not be installed
            return (
                f'python3 -c "import {stem} as t; '
                "[f() for n, f in list(vars(t).items()) if n.startswith('test_') and callable(f)]\""
            )
    return f"python3 -m pytest -q -x {quoted}"


def _program(path: str, text: str) -> str:
    if path.endswith(".py"):
        return f"python3 {shlex.quote(path)}"
    shell = "bash" if text.startswith("#!") and "bash" in text.partition("\n")[0] else "sh"
    return f"{shell} {shlex.quote(path)}"
