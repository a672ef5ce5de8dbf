"""The parts of the screen, one widget a file.

Read in this order: ``transcript`` and what it holds (``user_message``, ``answer``, ``thinking``,
``tool_card`` with ``diff``, ``notice``, made from saved conversations by ``history``), then
``composer``, ``suggestions``, ``queue_preview``, ``approval``, ``status_line``, and the dialogs:
``session_picker``, ``settings_screen``, ``permission_screen``, ``help_screen``, ``trust_dialog``.
"""

__all__ = [
    "answer",
    "approval",
    "composer",
    "diff",
    "help_screen",
    "history",
    "notice",
    "permission_screen",
    "queue_preview",
    "session_picker",
    "settings_screen",
    "status_line",
    "suggestions",
    "thinking",
    "tool_card",
    "transcript",
    "trust_dialog",
    "user_message",
]
