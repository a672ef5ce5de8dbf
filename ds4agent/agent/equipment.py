"""What the model may use in one workspace: the sandbox, the tools, the servers, and the rules."""

import threading
from collections.abc import Callable

from ds4agent.agent.approval import ApprovalPolicy
from ds4agent.agent.calls import CallRunner
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.profiles.choose import choose
from ds4agent.agent.profiles.guide import Guide, Surroundings
from ds4agent.agent.prompt import in_words, system_text, tool_specs
from ds4agent.agent.settings import AgentSettings
from ds4agent.events import Notice
from ds4agent.extensions.hooks import Hooks
from ds4agent.extensions.mcp_client import McpServers
from ds4agent.requests import Mode
from engine.chat.format import System, ToolSpec
from engine.state import ModelInfo
from tools.sandbox.probe import open_sandbox
from tools.toolbox import Toolbox
from tools.undo.log import UndoLog

_MAX_RESULT_BYTES = 32 << 10
_MIN_RESULT_BYTES = 2 << 10


class Equipment:
    """Opened once for a worker; the toolbox anew for each conversation."""

    def __init__(
        self,
        settings: AgentSettings,
        model: ModelInfo,
        cancel: threading.Event,
        warn: Callable[[str], None],
        undo: UndoLog | None = None,
    ) -> None:
        """Open everything.

        Args:
            settings: the workspace, hooks, servers and rules.
            model: decides how long results may be, and which tools it is told of.
            cancel: stops waiting for a server.
            warn: takes a line for the person about what is left out.
            undo: keeps what calls change; belongs to the caller.

        Raises:
            ConfigError: the remembered rules cannot be read.
        """
        self._settings = settings
        self._undo = undo
        self._sandbox, self._report = open_sandbox(settings.cwd)
        self.policy = ApprovalPolicy(
            self._sandbox is not None, settings.rules, settings.permission_file
        )
        self.hooks = Hooks(settings.hooks, self._sandbox, undo)
        # A result may take a third of the context at three bytes a token.
        self._limit = max(_MIN_RESULT_BYTES, min(_MAX_RESULT_BYTES, model.ctx))
        self._servers = McpServers(settings.servers, settings.cwd, self._limit)
        self._of_servers, problems = self._servers.start(cancel)
        for problem in problems:
            warn(problem)
        self.profile = choose(model, settings.profile)
        self.toolbox = self._open_toolbox()
        self.specs = self._specs(self.profile.tools)
        self.understood = self._specs(self.profile.understood)  # though the model is not told

    def _specs(self, names: tuple[str, ...] | None) -> tuple[ToolSpec, ...]:
        tools = self.toolbox.tools.values()
        return tool_specs(tools, names, offers_limits=self.profile.offers_limits)

    def renew(self) -> None:
        """Forget what the model has read of which file: that belongs to another conversation."""
        self.toolbox.close()
        self.toolbox = self._open_toolbox()

    def system(self) -> System:
        """Return the head of each conversation."""
        settings, profile = self._settings, self.profile
        functions = "" if profile.lists_tools else in_words(self.specs)
        text = system_text(settings.cwd, settings.system_prompt_extra, profile.prompt, functions)
        return System(text, self.specs if profile.lists_tools else ())

    def guide(self, calls: CallRunner, mailbox: Mailbox, stream: EventStream, ctx: int) -> Guide:
        """Return what leads one turn; ``ctx`` is the length of the context in tokens."""
        around = Surroundings(
            toolbox=self.toolbox,
            specs=self.specs,
            ctx=ctx,
            may_change=lambda: mailbox.mode is not Mode.PLAN,
            run=calls.run_unasked,
            warn=lambda line: stream.emit(Notice(line, "warning")),
        )
        return self.profile.guide(around)

    def close(self) -> None:
        """End servers and release the workspace."""
        self.toolbox.close()
        self._servers.close()

    def _open_toolbox(self) -> Toolbox:
        toolbox = Toolbox(self._settings.cwd, self._sandbox, self._report, self._limit, self._undo)
        for tool in self._of_servers:
            toolbox.tools[tool.name] = tool
        return toolbox
