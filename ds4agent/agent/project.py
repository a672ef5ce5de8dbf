"""What a project brings for agents, and whether it takes effect here.

A repository may hold instructions (``AGENTS.md``), settings (``.ds4/config.toml``) and commands
(``.ds4/commands``). All of it was written by whoever wrote the repository. It can never widen what
the agent may do; but it speaks to the model, so nothing of it is used before the person has said
once that this folder is trusted. What was said is remembered outside the project.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ds4agent import paths
from ds4agent.agent.prompt import project_instructions
from ds4agent.agent.settings import AgentSettings
from ds4agent.permissions.trust import TrustFile
from ds4agent.plain import one_line

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class UntrustedProject:
    """What waits for the person's word. Until then the settings are those without the project."""

    folder: Path
    brings: tuple[str, ...]  # names of files, not empty
    was_refused: bool  # the person has said no before, so nobody is asked
    memory: TrustFile
    with_project: Callable[[], AgentSettings]  # the settings with what it brings
    keeps_mode: bool = False  # the mode was given for this run: a no does not make it read-only

    def unused(self) -> str:
        """Say in one line what does not take effect."""
        return f"{', '.join(self.brings)} of this folder is not used: it is not trusted."


def brought_by(cwd: Path) -> tuple[str, ...]:
    """Return the names of what the project of a folder brings, shortened for people."""
    root = paths.project_root(cwd)
    found = []
    config = paths.project_config_file(cwd)
    if config is not None:
        found.append(config)
    instructions = project_instructions(cwd)
    if instructions is not None:
        found += instructions[0]
    try:
        found += sorted(paths.command_folders(cwd)[1].glob("*.md"))
    except OSError:
        pass  # what cannot be listed brings no command either
    names = [_shown(path, root) for path in found]
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more files"]
    return tuple(names)


def _shown(path: Path, root: Path) -> str:
    inside = path.is_relative_to(root)
    return one_line(str(path.relative_to(root) if inside else path), 80)
