"""The system prompt: a fixed text, the folder, and what the project says about itself.

The head of a conversation must be the same bytes for every conversation in a folder: its computed
state is kept on disk and reused. So it holds no date, no file listing and nothing else that moves.
"""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from engine.chat.format import ToolSpec
from tools.base import Tool

_SMALL_MODEL = 3_000_000_000  # parameters; below it, a prompt over 600 tokens does more harm
_SMALL_TOOLSET = ("read", "write", "edit", "list", "bash")  # what is left out, bash can do
INSTRUCTIONS_FILE = "AGENTS.md"
_REMINDER_LIMIT = 240  # characters of the task, repeated with every result
_INSTRUCTIONS_LIMIT = 4000  # characters, about a thousand tokens: a small context must stay usable


def system_text(cwd: Path, extra: str = "") -> str:
    """Return the text of the system prompt for one folder, without the tools."""
    prompt = files("ds4agent.agent").joinpath("prompts", "agent.md").read_text(encoding="utf-8")
    text = prompt.replace("{folder}", str(cwd)).strip()
    return f"{text}\n\n{extra.strip()}" if extra.strip() else text


def is_small(n_params: int) -> bool:
    """Tell whether a model needs the short form of everything; 0 parameters: unknown, no."""
    return 0 < n_params < _SMALL_MODEL


def tool_specs(tools: Iterable[Tool], n_params: int) -> tuple[ToolSpec, ...]:
    """Return what a model of this size is told of its tools."""
    if not is_small(n_params):
        return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools)
    return tuple(
        ToolSpec(tool.name, tool.description, _without_limits(tool.parameters))
        for tool in tools
        if tool.name in _SMALL_TOOLSET
    )


def reminder(task: str) -> str:
    """Return the line that follows a result: a small model forgets over it what it was asked."""
    asked = " ".join(task.split())
    if len(asked) > _REMINDER_LIMIT:
        asked = asked[:_REMINDER_LIMIT].rsplit(" ", 1)[0] + " ..."
    return (
        f'\n\n(The question was: "{asked}" '
        "Make the next call it needs, or answer it in your own words.)"
    )


def _without_limits(parameters: dict[str, Any]) -> dict[str, Any]:
    """Drop the optional numbers: a small model fills in every one it sees, and reads a file line
    by line when it may choose how many lines. Their defaults serve it better."""
    required = parameters.get("required", [])
    kept = {
        name: schema
        for name, schema in parameters["properties"].items()
        if name in required or schema.get("type") != "integer"
    }
    return {**parameters, "properties": kept}


def project_instructions(cwd: Path) -> tuple[Path, str] | None:
    """Find the nearest AGENTS.md at or above ``cwd``, inside its repository.

    Returns:
        The file, and its text with one line before it that says what it is; None without one.
    """
    for folder in (cwd, *cwd.parents):
        path = folder / INSTRUCTIONS_FILE
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                return None
            if len(text) > _INSTRUCTIONS_LIMIT:
                text = text[:_INSTRUCTIONS_LIMIT] + f"\n(cut here; the rest is in {path.name})"
            return path, f"The project's own instructions, from {path.name}:\n{text}"
        if (folder / ".git").exists():
            return None
    return None
