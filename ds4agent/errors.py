"""The application's own errors, and how any error of the packages below is told to a person."""


class Ds4Error(Exception):
    """One line for the person and one imperative sentence saying what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(Ds4Error):
    """A configuration file, an environment variable or an option has a bad value."""


class UsageError(Ds4Error):
    """The command line asks for something that does not exist (exit code 2)."""


class DownloadError(Ds4Error):
    """A model could not be fetched, or its hash is wrong."""


def is_expected(error: BaseException) -> bool:
    """True for errors written for people: those of every package here carry a ``hint``."""
    return isinstance(getattr(error, "hint", None), str)


def explain(error: BaseException) -> str:
    """The error as one line, with its hint after it where there is one."""
    message = " ".join(str(error).split()) or type(error).__name__
    hint = getattr(error, "hint", "")
    return f"{message}. {hint}" if hint else message
