"""The errors of this package. Each carries a hint: one imperative sentence for the person."""


class EngineError(Exception):
    """A message (what failed, the value found, what was expected) and the next step."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ModelFileError(EngineError):
    """A model file is missing, damaged, or of a kind this program does not read."""


class ContextFull(EngineError):
    """More tokens were given than the context has room for. The state is unchanged."""


class StateMismatch(EngineError):
    """A saved state belongs to another model, or its arrays do not fit this one."""


class RewindError(EngineError):
    """The cache cannot go back to the requested position."""


class LoadCancelled(EngineError):
    """The person stopped the loading of a model; nothing of it is left."""


class NotEnoughMemory(EngineError):
    """A model needs more memory than is available; nothing was loaded."""


class ConversationError(EngineError):
    """A conversation given as data is not one, or the chat format has no form for a part of it."""
