"""The system prompt: a fixed text, the folder, and what the project says about itself.

The head of a conversation must be the same bytes for every conversation in a folder: its computed
state is kept on disk and reused. So it holds no date, no file listing and nothing else that moves.
"""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from engine.chat.format import ToolSpec
from tools.base import Tool

_SMALL_MODEL = 3_000_000_000  # parameters; below it, a prompt over 600 tokens does more harm
_SMALL_TOOLSET = ("read", "write", "edit", "list", "bash")  # what is left out, bash can do
INSTRUCTIONS_FILE = "AGENTS.md"
_INSTRUCTIONS_LIMIT = 4000  # characters, about a thousand tokens: a small context must stay usable


def system_text(cwd: Path, extra: str = "") -> str:
    """Return the text of the system prompt for one folder, without the tools."""
    prompt = files("ds4agent.agent").joinpath("prompts", "agent.md").read_text(encoding="utf-8")
    text = prompt.replace("{folder}", str(cwd)).strip()
    return f"{text}\n\n{extra.strip()}" if extra.strip() else text


def tool_specs(tools: Iterable[Tool], n_params: int) -> tuple[ToolSpec, ...]:
    """Return what a model of this size is told of its tools; 0 parameters: unknown, all of them."""
    is_small = 0 < n_params < _SMALL_MODEL
    return tuple(
        ToolSpec(tool.name, tool.description, tool.parameters)
        for tool in tools
        if not is_small or tool.name in _SMALL_TOOLSET
    )


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
