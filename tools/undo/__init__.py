"""Taking back what was done to files, without touching the project's own version control.

Reading order: objects (contents, by hash), state (one file as it is), snapshot (all of them),
journal (which turn changed what), restore (putting a state back), log (all of it together).
"""

__all__ = ["journal", "log", "objects", "restore", "snapshot", "state"]
