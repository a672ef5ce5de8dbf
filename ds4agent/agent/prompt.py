"""The system prompt: a fixed text, the folder, and what the project says about itself.

The head of a conversation must be the same bytes for every conversation in a folder: its computed
state is kept on disk and reused. So it holds no date, no file listing and nothing else that moves.
"""

from importlib.resources import files
from pathlib import Path

INSTRUCTIONS_FILE = "AGENTS.md"
_INSTRUCTIONS_LIMIT = 4000  # characters, about a thousand tokens: a small context must stay usable


def system_text(cwd: Path, extra: str = "") -> str:
    """Return the text of the system prompt for one folder, without the tools."""
    prompt = files("ds4agent.agent").joinpath("prompts", "agent.md").read_text(encoding="utf-8")
    text = prompt.replace("{folder}", str(cwd)).strip()
    return f"{text}\n\n{extra.strip()}" if extra.strip() else text


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
