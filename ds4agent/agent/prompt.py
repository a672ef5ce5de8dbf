"""The system prompt: a fixed text, the folder, and what the project says about itself.

The head of a conversation must be the same bytes for every conversation in a folder: its computed
state is kept on disk and reused. So it holds no date, no file listing and nothing else that moves.
"""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from ds4agent.paths import project_root
from engine.chat.format import ToolSpec
from tools.base import Tool

INSTRUCTIONS_FILES = ("AGENTS.md", "AGENT.md")  # of one folder, the first that is there
_REMINDER_LIMIT = 240  # characters of the task, repeated with every result
_INSTRUCTIONS_LIMIT = 4000  # characters, about a thousand tokens: a small context must stay usable


def system_text(cwd: Path, extra: str = "", prompt: str = "agent.md", functions: str = "") -> str:
    """Return the text of the system prompt for one folder, without the schemas of tools.

    Args:
        cwd: the folder; a prompt need not name it.
        extra: what the project and the person add.
        prompt: the file of the fixed text, that of a profile.
        functions: a line about tools, see ``in_words``.
    """
    text = files("ds4agent.agent").joinpath("prompts", prompt).read_text(encoding="utf-8")
    text = f"{text.replace('{folder}', str(cwd)).strip()} {functions}".rstrip()
    return f"{text}\n\n{extra.strip()}" if extra.strip() else text


def tool_specs(
    tools: Iterable[Tool], names: tuple[str, ...] | None = None, *, offers_limits: bool = True
) -> tuple[ToolSpec, ...]:
    """Return what a model is told of its tools.

    Args:
        tools: all there are.
        names: those it is told of; None: all.
        offers_limits: their optional numbers are among it.
    """
    return tuple(
        ToolSpec(
            tool.name,
            tool.description,
            tool.parameters if offers_limits else _without_limits(tool),
        )
        for tool in tools
        if names is None or tool.name in names
    )


def in_words(specs: Iterable[ToolSpec]) -> str:
    """Return a line about tools for a model that is not given their schemas."""
    calls = (f"{spec.name}({', '.join(spec.parameters.get('properties', {}))})" for spec in specs)
    return f"Functions: {', '.join(calls)}."


def reminder(task: str) -> str:
    """Return the line that follows a result: a small model forgets over it what it was asked."""
    asked = " ".join(task.split())
    if len(asked) > _REMINDER_LIMIT:
        asked = asked[:_REMINDER_LIMIT].rsplit(" ", 1)[0] + " ..."
    return (
        f'\n\n(The question was: "{asked}" '
        "Make the next call it needs, or answer it in your own words.)"
    )


def _without_limits(tool: Tool) -> dict[str, Any]:
    """Drop the optional numbers, and what a tool keeps for large models: a small one fills in
    every argument it sees, and reads a file line by line when it may choose how many lines. Their
    defaults serve it better."""
    parameters = tool.parameters
    large_only = getattr(tool, "large_only", frozenset())
    required = parameters.get("required", [])
    kept = {
        name: schema
        for name, schema in parameters["properties"].items()
        if name in required or (schema.get("type") != "integer" and name not in large_only)
    }
    return {**parameters, "properties": kept}


def project_instructions(cwd: Path) -> tuple[list[Path], str] | None:
    """Find what the project says to agents: AGENTS.md, or AGENT.md, in ``cwd`` and above it.

    The search ends at the top of the repository. The nearest file stands last, where it counts
    most, and is cut last: all of them share one limit.

    Returns:
        The files, nearest first, and their text with a line before each that says what it is;
        None without one.
    """
    found: list[tuple[Path, str]] = []
    cwd = cwd.absolute()
    top = project_root(cwd)  # without a repository, what lies above belongs to somebody else
    for folder in (cwd, *cwd.parents):
        if not folder.is_relative_to(top):
            break
        for name in INSTRUCTIONS_FILES:
            text = _read_instructions(folder / name)
            if text:
                found.append((folder / name, text))
                break
    if not found:
        return None
    parts, room = [], _INSTRUCTIONS_LIMIT
    for path, text in found:
        where = path.name if path.parent == cwd else str(path)
        if len(text) > room:
            text = text[:room] + f"\n(cut here; the rest is in {where})"
        room = max(0, room - len(text))
        parts.append(f"The project's own instructions, from {where}:\n{text}")
    return [path for path, _ in found], "\n\n".join(reversed(parts))


def _read_instructions(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    except OSError:
        return ""
