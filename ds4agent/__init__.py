"""The application. Modules in reading order:

``cli``           the command line
``config``        settings and where they came from
``paths``         where files live
``errors``        errors, and how they are told
``events``        everything the worker tells a screen, and everything a screen may ask
``agent``         the agent: the turn, the worker thread, approvals, the system prompt
``commands``      the slash commands
``headless``      one prompt without a screen
``tui``           the screen
``sessions_cli``  list, show and delete saved conversations
``models``        finding a model file; ``models_cli`` its commands
``doctor``        what a bug report needs
``bench``         measuring the agent
"""

__all__ = [
    "agent",
    "bench",
    "cli",
    "commands",
    "config",
    "doctor",
    "errors",
    "events",
    "headless",
    "models",
    "models_cli",
    "paths",
    "sessions_cli",
    "tui",
]
