"""Errors at the edge of the worker's thread, for the person and for the log."""

import logging

from ds4agent import paths
from ds4agent.errors import explain, is_expected

_log = logging.getLogger(__name__)


def told(error: Exception) -> str:
    """Return an error as one line; what nobody expected goes to the log with its traceback."""
    if is_expected(error):
        _log.info("%s: %s", type(error).__name__, error)
        return explain(error)
    _log.error("unexpected error", exc_info=error)
    return f"Internal error: {explain(error)}. Details are in {paths.log_file()}"
