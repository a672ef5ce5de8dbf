"""The application. Modules in reading order:

``cli``           the command line
``config``        settings and where they came from
``paths``         where files live
``errors``        errors, and how they are told
``events``        everything the worker tells a screen
``requests``      everything a screen may ask of the worker
``plain``         text made safe for a terminal
``agent``         the agent: the turn, the worker thread, approvals, the system prompt
``commands``      the slash commands
``headless``      one prompt without a screen
``tui``           the screen
``sessions_cli``  look at saved conversations, name, keep and delete them
``sessions_transfer_cli``  export and import conversations
``sessions_upkeep_cli``  verify and strip saved conversations, make room
``known_models``  the models that can be fetched by name
``models``        finding a model file; ``models_cli`` its commands
``model_facts``   what is in a model file, and the memory that it needs
``pull``          fetching a model: ``download`` from the hub, ``packaged`` in parts, ``verify``
``permissions``   rules about calls, and the file that keeps those of a project
``extensions``    commands, hooks and servers that a person adds
``evaluation``    agent tasks, run on a model
``event_schema``  the JSON schema of the event stream
``doctor``        what a bug report needs; ``doctor_checks`` what it looks at
``bench``         measuring the agent
"""

__all__ = [
    "agent",
    "bench",
    "cli",
    "commands",
    "config",
    "doctor",
    "doctor_checks",
    "download",
    "errors",
    "evaluation",
    "event_schema",
    "events",
    "extensions",
    "headless",
    "known_models",
    "model_facts",
    "models",
    "models_cli",
    "packaged",
    "paths",
    "permissions",
    "plain",
    "pull",
    "requests",
    "sessions_cli",
    "sessions_transfer_cli",
    "sessions_upkeep_cli",
    "tui",
    "verify",
]
