"""The full-screen front end, built on Textual.

Read in this order: ``app`` (composition and keys), ``feed`` (worker queue to event batches),
``controller`` (events to widget calls), ``own_commands`` (what the screen does by itself: help,
copy, export, colours, settings), ``slash`` and ``keys``, then the files of ``widgets``. Behind the
composer stand ``ds4agent.completion``, ``input_history``, ``paste``, ``external_editor`` and
``own_shell``. ``plain`` cleans untrusted text, ``clipboard`` and ``notify``
talk to the terminal, ``markdown``, ``theme`` and ``app.tcss`` are the looks.
"""

__all__ = [
    "app",
    "clipboard",
    "controller",
    "external_editor",
    "feed",
    "input_history",
    "keys",
    "markdown",
    "notify",
    "own_commands",
    "own_shell",
    "paste",
    "plain",
    "slash",
    "theme",
    "widgets",
]
