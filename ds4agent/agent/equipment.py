"""What the model may use in one workspace: the sandbox, the tools, the servers, and the rules."""

import threading
from collections.abc import Callable

from ds4agent.agent.approval import ApprovalPolicy
from ds4agent.agent.prompt import is_small, tool_specs
from ds4agent.agent.settings import AgentSettings
from ds4agent.extensions.hooks import Hooks
from ds4agent.extensions.mcp_client import McpServers
from engine.chat.format import ToolSpec
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
        self.hooks = Hooks(settings.hooks, self._sandbox)
        # A result may take a third of the context at three bytes a token.
        self._limit = max(_MIN_RESULT_BYTES, min(_MAX_RESULT_BYTES, model.ctx))
        self._servers = McpServers(settings.servers, settings.cwd, self._limit)
        self._of_servers, problems = self._servers.start(cancel)
        for problem in problems:
            warn(problem)
        self.has_small_model = is_small(model.n_params)
        self.toolbox = self._open_toolbox()
        self.specs: tuple[ToolSpec, ...] = tool_specs(self.toolbox.tools.values(), model.n_params)

    def renew(self) -> None:
        """Forget what the model has read of which file: that belongs to another conversation."""
        self.toolbox.close()
        self.toolbox = self._open_toolbox()

    def close(self) -> None:
        """End servers and release the workspace."""
        self.toolbox.close()
        self._servers.close()

    def _open_toolbox(self) -> Toolbox:
        toolbox = Toolbox(self._settings.cwd, self._sandbox, self._report, self._limit, self._undo)
        for tool in self._of_servers:
            toolbox.tools[tool.name] = tool
        return toolbox
