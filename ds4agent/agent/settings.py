"""What a worker is told once, before it starts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ds4agent.extensions.hooks import Hook
from ds4agent.extensions.settings import ServerSettings
from ds4agent.permissions.file import PermissionFile
from ds4agent.permissions.rules import OwnedRule
from ds4agent.requests import Mode
from engine.sampling_options import SamplingOptions


def default_sampling() -> SamplingOptions:
    """Return how agent work samples when nobody says otherwise: always the likeliest token.

    A call is syntax and paths, where an unlikely token is simply a mistake, and small models
    make fewer of them this way. The loop raises the temperature itself when an answer repeats.
    """
    return SamplingOptions(temperature=0.0)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The fixed choices of one worker."""

    cwd: Path  # the workspace: what the tools may read and change
    mode: Mode = Mode.ASK
    sampling: SamplingOptions = field(default_factory=default_sampling)
    max_tokens: int = 8192  # longest answer of one round, tokens
    thinking: bool = False  # used only with a model that can think
    store_folder: Path | None = None  # None: nothing is read from disk and nothing is saved
    headless: bool = False  # nobody is there to answer: what needs an approval is refused
    max_rounds: int = 50  # answers of the model in one turn
    system_prompt_extra: str = ""  # appended to the system prompt
    auto_compact: bool = True  # make room unasked when the context is full
    hooks: tuple[Hook, ...] = ()  # commands of the person around calls
    servers: tuple[ServerSettings, ...] = ()  # MCP servers
    rules: tuple[OwnedRule, ...] = ()  # about calls, of the settings
    permission_file: PermissionFile | None = None  # the rules remembered for this project
    answer_schema: dict[str, Any] | None = None  # JSON schema that each answer is forced into
    profile: str = "auto"  # of prompt and tools; auto: by the model
