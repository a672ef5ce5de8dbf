"""The agent. Modules in reading order:

``settings``      what a worker is told before it starts
``worker``        the thread that owns everything; the order of its events
``loop``          one turn
``answer``        one answer of the model
``calls``         carrying out its calls
``approval``      what may run without asking
``guards``        repeated calls, repeated text
``conversation``  a live session and its legal end
``archive``       conversations on disk
``prompt``        the system prompt
``mailbox``       commands from other threads, the queue, the interrupt
``event_stream``  events to other threads
``meter``         what a turn costs
"""

__all__ = [
    "answer",
    "approval",
    "archive",
    "calls",
    "conversation",
    "event_stream",
    "guards",
    "loop",
    "mailbox",
    "meter",
    "prompt",
    "settings",
    "worker",
]
