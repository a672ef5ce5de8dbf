"""The agent in the terminal's own scrollback: finished parts are printed, only the line is live.

For tmux, screen readers, logs, and terminals without cursor addressing. Read in this order:
``session`` (events and lines to what happens), ``paper`` (what is printed), ``blocks`` (Markdown
cut where it is finished), the two line editors ``editor`` and ``bare``, ``terminal`` and ``run``.
"""

__all__ = ["bare", "blocks", "editor", "paper", "run", "session", "terminal"]
