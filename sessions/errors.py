"""The errors of this package. Each carries a hint: one imperative sentence for the person."""


class CheckpointError(Exception):
    """A message (what failed, the value found, what was expected) and the next step."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class TextOnly(CheckpointError):
    """The text of a conversation is there and its state is not: the text has to be read again."""


class ChecksumError(CheckpointError):
    """Every byte of a checkpoint was read, and they are not the bytes that were written."""
