"""The errors of this package, each with a hint for the person or the model."""


class ToolError(Exception):
    """A call that cannot be carried out: one line that says what, and one that says what next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SandboxUnavailable(ToolError):
    """No mechanism of this system can confine a command; nothing was run."""


class PathRefused(ToolError):
    """A path leaves the workspace, is protected, or is not a regular file."""
