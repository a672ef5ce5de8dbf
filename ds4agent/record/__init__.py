"""The conversation as a person saw it, and the files that it can be written to.

Read in this order: ``record`` (events to entries), ``markdown``, ``html``, ``export``.
"""

__all__ = ["export", "html", "markdown", "record"]
