"""Taking back what was done to files, without touching the project's own version control.

Reading order: objects (contents, by hash), state (one file as it is), snapshot (all of them),
journal (which turn changed what), pending (a step that was cut off), restore (putting a state
back), log (all of it together).
"""

__all__ = ["journal", "log", "objects", "pending", "restore", "snapshot", "state"]
