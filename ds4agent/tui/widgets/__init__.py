"""The parts of the screen, one widget a file.

Read in this order: ``transcript`` and what it holds (``user_message``, ``answer``, ``thinking``,
``tool_card`` with ``diff``, ``notice``, made from saved conversations by ``history``), then
``composer``, ``suggestions``, ``queue_preview``, ``approval``, ``status_line``, ``session_picker``.
"""

__all__ = [
    "answer",
    "approval",
    "composer",
    "diff",
    "history",
    "notice",
    "queue_preview",
    "session_picker",
    "status_line",
    "suggestions",
    "thinking",
    "tool_card",
    "transcript",
    "user_message",
]
