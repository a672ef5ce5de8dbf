"""From settings files and flags to what one run of the agent is told.

Twice where a folder is not trusted: without what its project brings, and, for the moment when the
person says yes, with it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds4agent import paths
from ds4agent.config import Config, load_config
from ds4agent.permissions.trust import TrustFile
from ds4agent.requests import Mode

if TYPE_CHECKING:
    from ds4agent.agent.project import UntrustedProject
    from ds4agent.agent.settings import AgentSettings

FORMATS = ("text", "json", "stream-json")  # of the output without a screen; see ``headless``


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asks for."""

    cwd: Path
    flags: Mapping[str, Any]  # setting name -> value, None where it was not given
    approval: str | None
    is_headless: bool
    saves: bool
    schema: Mapping[str, Any] | None = None  # that each answer is forced into
    trusts: bool = False  # what the folder brings is used in this run, unasked

    def config(self, *, with_project: bool) -> Config:
        """Read the settings.

        Raises:
            ConfigError: a file or a flag holds what is no setting.
        """
        approval = None if self.approval == Mode.FULL else self.approval
        flags = {**self.flags, "approval": approval}
        config = load_config(self.cwd, trust_project=with_project)
        return config.with_values(flags, "command line")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the worker is told at its start."""

    config: Config
    agent: "AgentSettings"
    project: "UntrustedProject | None" = None  # what the folder brings, if it is not used


def run_settings(request: RunRequest) -> RunSettings:
    """Read everything that one run needs.

    Raises:
        ConfigError: a file or a flag holds what is no setting.
    """
    from ds4agent.agent.project import UntrustedProject, brought_by

    memory = TrustFile(paths.project_root(request.cwd))
    said = True if request.trusts else memory.read()
    if said:
        config = request.config(with_project=True)
        return RunSettings(config, _agent_settings(request, config, with_project=True))
    config = request.config(with_project=False)
    settings = _agent_settings(request, config, with_project=False)
    brings = brought_by(request.cwd)
    if not brings:
        return RunSettings(config, settings)
    if said is False and not request.is_headless and request.approval is None:
        settings = dataclasses.replace(settings, mode=Mode.PLAN)  # as after a no in the screen

    def with_project() -> "AgentSettings":
        return _agent_settings(request, request.config(with_project=True), with_project=True)

    project = UntrustedProject(
        memory.project,
        brings,
        was_refused=said is False,
        memory=memory,
        with_project=with_project,
        keeps_mode=request.approval is not None,
    )
    return RunSettings(config, settings, project)


def _agent_settings(request: RunRequest, config: Config, *, with_project: bool) -> "AgentSettings":
    from ds4agent.agent.prompt import project_instructions
    from ds4agent.agent.settings import AgentSettings
    from ds4agent.extensions.settings import read_hooks, read_servers
    from ds4agent.permissions.file import PermissionFile
    from engine.sampling_options import SamplingOptions

    extras = []
    instructions = project_instructions(request.cwd) if with_project else None
    if instructions is not None:
        extras.append(instructions[1])
    if request.schema is not None:
        from ds4agent.agent.answer_form import instruction  # brings NumPy

        extras.append(instruction(request.schema))
    return AgentSettings(
        cwd=request.cwd,
        mode=Mode(request.approval or config.approval),
        sampling=SamplingOptions(
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            min_p=config.min_p,
            seed=config.seed,
        ),
        max_tokens=config.max_tokens,
        thinking=config.thinking,
        store_folder=config.kvcache_folder if request.saves else None,
        headless=request.is_headless,
        max_rounds=config.max_rounds,
        system_prompt_extra="\n\n".join(extras),
        answer_schema=request.schema,
        auto_compact=config.auto_compact,
        profile=config.profile,
        hooks=read_hooks(config.hooks, config.origin("hooks")),
        servers=read_servers(config.servers, config.origin("servers")),
        rules=config.rules(),
        permission_file=PermissionFile(paths.project_root(request.cwd)),
    )
